package pebble

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// When the store has become unwritable, no new write gets as far as Pebble, and
// those under way end as unknown if the log was lost. Every RetryInterval
// comeBack tries to return:
//
//  1. A probe shows that the folder takes a file, with its sync.
//  2. Those who were in Apply when it happened have left.
//  3. The memtables are flushed. They hold all that was acknowledged, so none of
//     it needs the log any more, whose end is lost. If flushing fails the
//     instance stays, serves reads, and the next attempt comes.
//  4. If the log is lost, or Pebble has given up, another instance is opened.
//     First the one in use is fenced: it can read, but change nothing. Reads
//     move over when the new one is ready. Who is in the middle of a range
//     finishes it on the old one, which is closed after the last of them.
//  5. Writes are let in again, unless something else has failed meanwhile.
//
// If Pebble has given up (its MANIFEST is in doubt), nothing can be flushed.
// Then the log must do: it has everything if it is not lost and has been synced.
// If it is lost as well, that is, two kinds of files failed within the same
// moment, Always has still kept its word, since everything acknowledged had been
// synced. Under the other modes what only the memory knows is gone.

// failed takes a failure of the disk, or of Pebble, from an instance.
func (s *Store) failed(i *instance, err error) {
	// What goes wrong while an instance is being opened is seen by who opens
	// it, and a replaced one does not matter any more.
	if s.active.Load() == i {
		s.health.fail(err)
		s.tables.halt()
	}
}

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
		if err := s.comeBack(s.closing); err != nil {
			s.opts.Logger.Warn("the store still cannot write", "err", err)
		}
	}
}

// comeBack tries once to make the store writable again.
func (s *Store) comeBack(stop <-chan struct{}) error {
	if err := s.probe(); err != nil {
		return err
	}
	if n := s.appliers.Load(); n > 0 {
		return fmt.Errorf("%d writes are still under way", n)
	}
	// From here on every new failure spoils the attempt.
	failures := s.health.failures()
	s.tables.proceed()
	inst := s.cur // it changes below only
	if !inst.spent {
		if err := s.settle(inst, failures, stop); err != nil {
			return err
		}
	}
	if inst.lost() != nil {
		inst.spent = true
		inst.disk.fence()
		next, err := s.openInstance()
		if err != nil {
			return fmt.Errorf("cannot reopen the data folder: %w", err)
		}
		failures = s.replace(next)
	}
	if !s.health.recovered(failures) {
		return errors.New("another failure came in between")
	}
	s.tables.proceed()
	return nil
}

// settle makes sure that the folder holds all that was acknowledged, without
// the part of the log that was lost.
func (s *Store) settle(inst *instance, failures uint64, stop <-chan struct{}) error {
	if inst.broken.Load() != nil {
		_ = inst.db.LogData(nil, pebble.Sync)
		if err := inst.disk.logLost(); err != nil && s.opts.Sync != Always {
			s.opts.Logger.Error("the log and the manifest have both failed: writes that were acknowledged but not yet synced are lost", "err", err)
		}
		return nil
	}
	flushed, err := inst.db.AsyncFlush()
	if err != nil {
		return err
	}
	for {
		failed, reason := s.health.watch()
		if s.health.failures() != failures {
			return reason
		}
		select {
		case <-flushed:
			return nil
		case <-failed:
		case <-stop:
			return errors.New("the store is being closed")
		}
	}
}

// replace puts another instance in use and returns how many failures there were
// before. The health is not touched.
func (s *Store) replace(next *instance) (failures uint64) {
	prev := s.cur
	m := prev.db.Metrics()
	s.old.Add(1)
	failures = s.health.failures()
	s.active.Store(next)
	s.mu.Lock()
	s.retired.add(m)
	s.cur = next
	s.mu.Unlock()
	prev.release()
	if err := next.lost(); err != nil {
		// It failed before it was active, when nobody listened.
		s.health.fail(err)
	}
	return failures
}

// probe shows that a file can be written and synced in the folder.
func (s *Store) probe() error {
	fs := s.opts.FS
	name := fs.PathJoin(s.opts.Dir, "probe.tmp")
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 64<<10))
	err = errors.Join(err, f.Sync(), f.Close(), fs.Remove(name))
	if err != nil {
		return err
	}
	dir, err := fs.OpenDir(s.opts.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// pace is called before an instance creates a table. While the store is
// unwritable it waits for the next attempt to come back, because Pebble repeats
// a failed flush or compaction at once, for ever. A fenced instance waits for
// its end.
func (s *Store) pace(d *disk) {
	if d.isFenced() {
		<-d.ending
		return
	}
	wait := s.tables.halted()
	if wait == nil {
		return
	}
	timer := time.NewTimer(2 * s.opts.RetryInterval)
	defer timer.Stop()
	select {
	case <-wait:
	case <-timer.C:
		// Attempts may be waiting for this very flush.
	case <-d.ending:
	}
}

// lastChance is comeBack for a store that is being closed.
func (s *Store) lastChance(reason error) error {
	never := make(chan struct{})
	if err := s.comeBack(never); err != nil {
		if s.opts.Sync == Always || s.cur.spent {
			// Whatever was acknowledged is on disk.
			return reason
		}
		return fmt.Errorf("acknowledged writes may be lost: %w", err)
	}
	return nil
}
