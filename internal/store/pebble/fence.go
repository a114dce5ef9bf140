package pebble

import (
	"fmt"
	"slices"
)

// fence cuts the instance off from the folder. What is under way goes on: see settled.
func (d *disk) fence() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.fenced {
		return
	}
	d.mu.fenced = true
	err := errFenced
	d.lost.CompareAndSwap(nil, &err)
	close(d.fencing)
}

// settled waits, once the disk is fenced, until no change is under way that could spoil
// the folder for a successor, or until stop is closed. Some cannot, and may hang for as
// long as they like, since a successor gives none of the numbers that it finds in the
// folder to another file:
//
//   - a write to a table, or its sync: whoever made it is cut off, and no manifest
//     will name it;
//   - the removal of a file: Pebble removes what is obsolete to the manifest on the disk;
//   - the creation of a table, whose number is taken as well: see List.
func (d *disk) settled(stop <-chan struct{}) error {
	d.mu.Lock()
	if d.mu.changes == 0 {
		d.mu.Unlock()
		return nil
	}
	if d.mu.quiet == nil {
		d.mu.quiet = make(chan struct{})
	}
	quiet, n := d.mu.quiet, d.mu.changes
	d.mu.Unlock()
	select {
	case <-quiet:
		return nil
	case <-stop:
		return fmt.Errorf("%d changes of the folder are still under way", n)
	}
}

// harm tells what becomes of the folder if a change takes effect after a successor has it.
type harm uint8

const (
	harmful harm = iota
	harmless
	creates // a table
)

// enter begins a change of that kind. It returns false if the disk is fenced.
func (d *disk) enter(name string, h harm) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.mu.fenced:
		return false
	case h == harmful:
		d.mu.changes++
	case h == creates:
		d.mu.creating = append(d.mu.creating, d.PathBase(name))
	}
	return true
}

func (d *disk) leave(name string, h harm) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch h {
	case harmless:
	case creates:
		i := slices.Index(d.mu.creating, d.PathBase(name))
		d.mu.creating = slices.Delete(d.mu.creating, i, i+1)
	case harmful:
		if d.mu.changes--; d.mu.changes == 0 && d.mu.quiet != nil {
			close(d.mu.quiet)
			d.mu.quiet = nil
		}
	}
}

// unfinished returns the names of the tables that may be created yet.
func (d *disk) unfinished() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Concat(d.taken, d.mu.creating)
}

func (d *disk) isFenced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.fenced
}

// refusesTables reports whether no table is made any more: the disk is fenced, and others
// still read from the instance.
func (d *disk) refusesTables() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.fenced && !d.mu.aborted
}

// abort fences and ends an instance that has not been used yet. Nobody will read
// its tables, so it may even believe that it has written some.
func (d *disk) abort() {
	d.mu.Lock()
	d.mu.aborted = true
	d.mu.Unlock()
	d.fence()
	d.end()
}

// end lets a fenced instance be closed: flushes and compactions, which wait for
// it, fail.
func (d *disk) end() { d.endOnce.Do(func() { close(d.ending) }) }

// harmOf is what a change of a file does that is there.
func (d *disk) harmOf(name string) harm {
	if d.isTable(name) || !d.inDir(name) && name != d.dir {
		return harmless
	}
	return harmful
}
