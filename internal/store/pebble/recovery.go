package pebble

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// When the store has become unwritable, no new write gets as far as Pebble, and
// those under way end as unknown if the log was lost. Every RetryInterval
// comeBack tries to return:
//
//  1. The folder is the one that was opened, and has what it had: see identity.go. A
//     probe shows that it takes a file, with its sync.
//  2. Those who were in Apply when it happened have left.
//  3. The memtables are flushed. They hold all that was acknowledged, so none of
//     it needs the log any more, whose end may be lost. If flushing fails the
//     instance stays, serves reads, and the next attempt comes.
//  4. If the log is lost, or the instance is broken, another one is opened.
//     First the one in use is fenced: it can read, but change nothing. The folder
//     is checked as at a start, and must have all its tables. Reads move over when
//     the new instance is ready. Ranges that are under way end on the old one, which
//     is closed after the last of them; until then no table is removed.
//  5. Writes are let in again, unless something else has failed meanwhile, or they
//     would wait for compactions that fail.
//
// A broken instance cannot flush, as its manifest is in doubt. Then the log must
// do: it has everything if it is not lost and has been synced. If it is lost as
// well, Always has still kept its word, since everything acknowledged had been
// synced. Under the other modes, what only the memory knew is gone. It takes a log
// that fails together with a new marker of the manifest, or with a manifest that
// is not what was written to it.

func (s *Store) recoverLoop() {
	for {
		failed, err := s.health.watch()
		if err == nil {
			select {
			case <-failed:
			case <-s.closing:
				return
			}
		}
		timer := time.NewTimer(s.opts.RetryInterval)
		select {
		case <-timer.C:
		case <-s.closing:
			timer.Stop()
			return
		}
		if s.health.reason() == nil {
			continue
		}
		s.attempt()
	}
}

// attempt is comeBack for a store that goes on.
func (s *Store) attempt() {
	switch err := s.comeBack(s.closing); {
	case isForeign(err):
		s.health.explain(err)
	case err != nil:
		s.opts.Logger.Warn("the store still cannot write", "err", err.Error())
	}
}

// comeBack tries once to make the store writable again.
func (s *Store) comeBack(stop <-chan struct{}) error {
	if err := s.checkContent(); err != nil {
		return err
	}
	if err := s.probe(); err != nil {
		return err
	}
	if n := s.appliers.Load(); n > 0 {
		return fmt.Errorf("%d writes are still under way", n)
	}
	// From here on every new failure spoils the attempt.
	failures := s.health.failures()
	s.gate.proceed()
	inst := s.cur.Load() // it changes below only
	hangs := false
	if !inst.spent {
		err := s.settle(inst, failures, stop)
		if hangs = errors.Is(err, errNoFlush); err != nil && !hangs {
			return err
		}
	}
	if inst.lost() != nil || hangs {
		inst.spent = true
		inst.disk.fence()
		if err := inst.disk.settled(stop); err != nil {
			return err
		}
		s.taken = inst.disk.unfinished()
		next, err := s.reopen(inst, stop)
		if err != nil {
			return err
		}
		failures = s.replace(next)
	}
	if err := s.stillStuck(); err != nil {
		return err
	}
	if !s.health.recovered(failures) {
		return errors.New("another failure came in between")
	}
	s.gate.proceed()
	// There was no measure while the store was unwritable.
	s.stall.check()
	return nil
}

// reopen opens the folder for an instance that is to take the place of the fenced one.
func (s *Store) reopen(fenced *instance, stop <-chan struct{}) (*instance, error) {
	// Again, as the flush has gone to the manifest that the instance has open, which
	// may not be the one in the folder.
	if err := s.checkContent(); err != nil {
		return nil, err
	}
	if err := s.checkTables(fenced); err != nil {
		return nil, err
	}
	found, err := s.inspect()
	if err != nil {
		return nil, fmt.Errorf("cannot reopen the data folder: %w", err)
	}
	s.removals.hold()
	next, err := s.openInstance(stop, found.old)
	if err != nil {
		s.removals.release()
		return nil, fmt.Errorf("cannot reopen the data folder: %w", err)
	}
	return next, nil
}

// flushPatience is for how many RetryIntervals a flush may take before what it would have
// written is read from the log.
const flushPatience = 4

// errNoFlush is returned by settle when the flush takes long, and may hang, under Always.
// All that was acknowledged is in the log, which is there.
var errNoFlush = errors.New("the flush of the memtables does not end")

// settle makes sure that the folder holds all that was acknowledged, without
// the part of the log that was lost.
func (s *Store) settle(inst *instance, failures uint64, stop <-chan struct{}) error {
	if inst.broken.Load() != nil {
		if s.opts.Sync == Always { // all that was acknowledged is in the log
			return nil
		}
		_ = inst.db.LogData(nil, pebble.Sync)
		if err := inst.disk.logLost(); err != nil {
			s.opts.Logger.Error("the log and the manifest have both failed: writes that were acknowledged but not yet synced are lost", "err", err.Error())
		}
		return nil
	}
	flushed, err := inst.db.AsyncFlush()
	if err != nil {
		return err
	}
	var enough <-chan time.Time
	if s.opts.Sync == Always && s.files.logsThere() {
		timer := time.NewTimer(flushPatience * s.opts.RetryInterval)
		defer timer.Stop()
		enough = timer.C
	}
	for {
		failed, reason := s.health.watch()
		if s.health.failures() != failures {
			return reason
		}
		select {
		case <-flushed:
			return nil
		case <-enough:
			return errNoFlush
		case <-failed:
		case <-stop:
			return errors.New("the store is being closed")
		}
	}
}

// replace puts another instance in use and returns how many failures there were
// before.
func (s *Store) replace(next *instance) (failures uint64) {
	failures = s.health.failures()
	if err := next.lost(); err != nil {
		// It has failed already. It can take the place nevertheless, to be
		// replaced in turn.
		s.health.fail(err)
	}
	prev := s.cur.Load()
	next.compactions = prev.compactions + uint64(prev.db.Metrics().Compact.Count) // does not block, as prev is fenced
	s.cur.Store(next)
	// Only now, so that whoever has a ticket of later reads from next.
	s.values.Clear() // of what the folder may not have
	s.retire(prev)
	return failures
}

// probe shows that a file can be written and synced in the folder.
func (s *Store) probe() error {
	fs := s.opts.FS
	name := s.path("probe.tmp")
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 64<<10))
	err = errors.Join(err, f.Sync(), f.Close())
	// Who tries to start on the folder meanwhile makes the same file, and removes it.
	if removed := fs.Remove(name); !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return err
	}
	return syncDir(s.opts.FS, s.opts.Dir)
}

// pause waits for the next attempt to come back, if the store is unwritable.
func (s *Store) pause(stop <-chan struct{}) {
	wait := s.gate.halted()
	if wait == nil {
		return
	}
	timer := time.NewTimer(2 * s.opts.RetryInterval)
	defer timer.Stop()
	select {
	case <-wait:
	case <-timer.C: // an attempt may be waiting for the one that pauses
	case <-stop:
	}
}

// lastChance is comeBack for a store that is being closed.
func (s *Store) lastChance(reason error) error {
	stop := make(chan struct{})
	timer := time.AfterFunc(10*time.Second, func() { close(stop) })
	defer timer.Stop()
	if err := s.comeBack(stop); err != nil {
		if s.opts.Sync == Always || s.cur.Load().spent {
			// Whatever was acknowledged is on disk.
			return reason
		}
		return fmt.Errorf("acknowledged writes may be lost: %w", err)
	}
	return nil
}
