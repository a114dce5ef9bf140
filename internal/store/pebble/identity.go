package pebble

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// What lies at the path of the data folder may become something else while the store
// is open: another volume is mounted there, the folder is moved, emptied, or replaced
// by a backup. What is acknowledged then may be where no start looks for it, and a
// recovery would find a folder in which there is nothing, take it for a new one, or
// remove what somebody is about to put there.
//
// So the store asks each second, and before it changes anything to come back, whether
// the folder is still the one that it has opened: it must have the same identity, the
// note that this store has left in it, the manifest that it has written last, and the
// newest log. If not, the store is unwritable until it is, and changes nothing there;
// reads go on with the files that it has open. Before the folder is opened again all
// tables must be there as well.

// holder is a lock that knows the folder that it is of.
type holder interface {
	io.Closer
	// Check returns an error if the folder or the lock is not there any more.
	Check() error
	// Again locks what there is now, after an error that wraps datadir.ErrLockLost.
	Again() error
	// Exposed reports whether anybody may read the folder.
	Exposed() bool
}

var _ holder = (*datadir.Lock)(nil)

// errForeign is what the folder is when it lacks what the store has put there.
var errForeign = errors.New("what is in the data folder is not what the store has put there")

// whatToDo ends what the store says of a folder that is not its own.
const whatToDo = "; nothing is changed there: put back what was there, and writes return, or stop the service and start it on a folder that you trust"

// possessions are the files that must be there. Whichever instance makes them or
// removes them says so, while it is not fenced.
type possessions struct {
	mu       sync.Mutex
	manifest manifest // that is in force
	next     manifest // that was synced last, and may come into force
	logs     map[uint64]struct{}
	missing  uint64       // the log that was found removed or replaced while it was written, or 0
	newest   string       // the log that is being written, "" if none is
	identity vfs.FileInfo // of newest, as it was when it was made
}

// manifest is one as far as it has been synced.
type manifest struct {
	name   string
	synced format.Extent
}

// found notes what a start has found.
func (p *possessions) found(m manifest, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.manifest, p.logs = m, make(map[uint64]struct{})
	for _, name := range names {
		if n, ok := format.LogNumber(name); ok {
			p.logs[n] = struct{}{}
		}
	}
}

// synced notes that a manifest is on the disk as far as that.
func (p *possessions) synced(m manifest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = m
	if p.manifest.name == m.name {
		p.manifest = m
	}
}

// marked notes which manifest is in force.
func (p *possessions) marked(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.manifest = p.next; p.manifest.name != name {
		p.manifest = manifest{name: name}
	}
}

// begun notes a log, and returns the numbers of all that there are.
func (p *possessions) begun(name string, identity vfs.FileInfo) (logs []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest, p.identity = name, identity
	if n, ok := format.LogNumber(name); ok {
		p.logs[n] = struct{}{}
	}
	for n := range p.logs {
		logs = append(logs, n)
	}
	return logs
}

// closed notes that a log is not being written any more.
func (p *possessions) closed(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.newest == name {
		p.newest = ""
	}
}

// removed notes that a file is gone.
func (p *possessions) removed(name string) {
	if n, ok := format.LogNumber(name); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.logs, n)
	}
}

// checkNewest returns an error if the log that is being written has gone from the
// folder.
func (p *possessions) checkNewest(stat func(name string) (vfs.FileInfo, error)) error {
	name, mine := p.writing()
	if name == "" {
		return nil
	}
	there, err := stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !datadir.Same(mine, there) {
		err = fmt.Errorf("%w: the log %s, which is being written, was removed or replaced", errForeign, name)
	}
	if now, _ := p.writing(); now != name {
		return nil // it was closed meanwhile, and may have been removed
	}
	if errors.Is(err, errForeign) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.missing, _ = format.LogNumber(name)
	}
	return err
}

// logsThere reports whether no log that the store still needs is known to be missing.
func (p *possessions) logsThere() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, needed := p.logs[p.missing]
	return !needed
}

// writing returns the log that is being written, "" if none is, and which file it is.
func (p *possessions) writing() (string, vfs.FileInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newest, p.identity
}

// expected returns the manifest that must be in force.
func (p *possessions) expected() manifest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.manifest
}

// sign leaves the note that this store has opened the folder.
func (s *Store) sign() error {
	s.signature = rand.Text() + format.OpenedValues
	return s.writeFile(s.opts.Dir, format.OpenedName, []byte(s.signature))
}

// checkFolder returns an error if the folder at the path, or its lock, is not the one
// that was opened, or if the newest log is gone.
func (s *Store) checkFolder() error {
	if h, ok := s.lock.(holder); ok {
		switch err := h.Check(); {
		case errors.Is(err, datadir.ErrLockLost):
			return err
		case err != nil:
			return fmt.Errorf("%w%s", err, whatToDo)
		}
	}
	return s.files.checkNewest(func(name string) (vfs.FileInfo, error) { return s.opts.FS.Stat(s.path(name)) })
}

// checkContent returns an error unless what is in the folder is what the store has
// put there. The newest log may be gone: the memory has what it had.
func (s *Store) checkContent() error {
	if h, ok := s.lock.(holder); ok {
		err := h.Check()
		if errors.Is(err, datadir.ErrLockLost) {
			err = h.Again()
		}
		if err != nil {
			return fmt.Errorf("%w%s", err, whatToDo)
		}
	}
	note, err := s.read(format.OpenedName)
	if err == nil && string(note) != s.signature {
		err = errors.New("somebody else has opened it")
	}
	if err == nil {
		err = s.checkInForce()
	}
	if isOfSystem(err) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w%s", errForeign, err, whatToDo)
	}
	return nil
}

// checkInForce compares the manifest that is in force with the one that the store
// knows of.
func (s *Store) checkInForce() error {
	found, err := s.look()
	if err != nil {
		return err
	}
	want := s.files.expected()
	switch {
	case found.manifest == "":
		return fmt.Errorf("the file %s* is missing", format.ManifestMarker)
	case found.manifest != want.name:
		return fmt.Errorf("it is of %s, and %s was written last", found.manifest, want.name)
	case !want.synced.IsOf(found.content):
		return fmt.Errorf("%s is not what was written", want.name)
	}
	return nil
}

// checkTables returns an error if a table is missing that the instance refers to.
func (s *Store) checkTables(inst *instance) error {
	levels, err := inst.db.SSTables()
	if err != nil {
		return err
	}
	for _, level := range levels {
		for _, t := range level {
			name := fmt.Sprintf("%s.sst", t.BackingSSTNum)
			if _, err := s.opts.FS.Stat(s.path(name)); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w: the table %s is missing%s", errForeign, name, whatToDo)
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// watchLoop looks at the folder once a second.
func (s *Store) watchLoop() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.clock.watch(s.opts.Logger)
			s.watch()
		case <-s.closing:
			return
		}
	}
}

// watch makes the store unwritable if the folder is not the one that was opened. The
// log counts as lost then: what is being acknowledged may be nowhere any more.
func (s *Store) watch() {
	if s.health.reason() != nil {
		return // comeBack looks itself
	}
	if err := s.checkFolder(); err != nil {
		s.cur.Load().disk.loseLog(err)
	}
}

// isForeign reports whether an error says that the folder is not the store's.
func isForeign(err error) bool {
	return errors.Is(err, errForeign) || errors.Is(err, datadir.ErrNotOurs) || errors.Is(err, datadir.ErrLockLost)
}

// warnExposed says so if anybody may read the folder.
func (s *Store) warnExposed() {
	if h, ok := s.lock.(holder); ok && h.Exposed() {
		s.opts.Logger.Warn("anybody on this machine may look into the data folder, chmod o= keeps others out", "path", s.opts.Dir)
	}
}
