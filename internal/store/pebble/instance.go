package pebble

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/spillway-go/spillway/internal/store"
)

// instance is one opening of the folder by Pebble. It can be closed when the last
// reference is released: one is the store's, the others belong to whoever reads,
// writes, or waits for a commit.
type instance struct {
	db        *pebble.DB
	disk      *disk
	scheduler *scheduler
	// broken is why Pebble has said that it cannot go on: it may have lost track
	// of its own MANIFEST, so that only reopening the folder helps.
	broken atomic.Pointer[error]
	// spent is set when the instance is fenced and waits for its successor, of
	// which it no longer knows anything that the folder does not.
	spent bool
	// expiring says that the folder has a note that there may be values that expire.
	expiring atomic.Bool
	// compactions counts those of the instances that this one has replaced.
	compactions uint64
	refs        atomic.Int64
	unused      chan struct{} // closed with the last reference
}

// acquire takes a reference, unless the last one has been released.
func (i *instance) acquire() bool {
	for n := i.refs.Load(); n > 0; n = i.refs.Load() {
		if i.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

func (i *instance) release() {
	if i.refs.Add(-1) == 0 {
		close(i.unused)
	}
}

// lost returns nil, or why what was applied to the instance, and maybe synced,
// may not be in the log.
func (i *instance) lost() error {
	if err := i.disk.logLost(); err != nil {
		return err
	}
	if p := i.broken.Load(); p != nil {
		return *p
	}
	return nil
}

// openInstance opens the folder, whose lock the store holds. Pebble's Open does
// not come back from a disk that fails meanwhile, as it repeats what fails. So
// when stop is closed it is given a second more, and then whatever it still
// does is made to succeed without effect, and the instance is thrown away.
//
// Pebble opens a folder that is new, or in an older format, with a log in that
// format, in which later chunks prove nothing of earlier ones: see format.Examine. So
// old says that another log is to be begun.
func (s *Store) openInstance(stop <-chan struct{}, old bool) (*instance, error) {
	inst := &instance{unused: make(chan struct{})}
	inst.refs.Store(1)
	broke := make(chan struct{})
	broken := func(err error) {
		if inst.broken.CompareAndSwap(nil, &err) {
			close(broke)
		}
	}
	failed := func(err error) {
		s.gate.halt()
		s.health.fail(err)
	}
	inst.disk = newDisk(s.opts.FS, s.opts.Dir, &s.files, diskHooks{
		failed: failed, broken: broken, pause: s.pause, fsynced: s.opts.OnFsync,
		remove: s.removals.later,
	})
	inst.disk.taken = s.taken
	inst.scheduler = newScheduler(s.opts.RetryInterval / 5)
	if s.opts.Sync == Always { // otherwise there are few syncs, of much at a time
		inst.disk.logAhead = int64(min(len(zeros), int(s.opts.memTableBytes)/4))
	}
	o := s.opts.pebbleOptions()
	o.Cache = s.cache
	o.FS = inst.disk
	o.Experimental.CompactionScheduler = inst.scheduler
	o.Logger = logger{log: s.opts.Logger, fatal: func(err error) {
		broken(err)
		failed(err)
	}}
	o.EventListener = s.events(inst)

	opened := make(chan error, 1)
	go func() {
		inst.disk.opening.Store(true)
		err := func() (err error) {
			defer rescue(&err) // on some kinds of damage Pebble panics
			inst.db, err = pebble.Open(s.opts.Dir, o)
			if err != nil {
				return err
			}
			if old {
				_ = inst.db.Flush() // whose failure is none of the store
			}
			inst.expiring.Store(mayExpire(inst.db))
			return nil
		}()
		inst.disk.opening.Store(false)
		if err != nil {
			// Pebble does not wait for the compactions that it has begun. They would
			// remove tables that belong to the next instance.
			inst.disk.abort()
			inst.scheduler.Unregister()
			s.taken = inst.disk.unfinished()
			_ = inst.disk.settled(nil)
		}
		opened <- inst.disk.blame(err)
	}()
	var reason error
	select {
	case err := <-opened:
		return inst, err
	case <-broke:
		reason = *inst.broken.Load()
	case <-stop:
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		select {
		case err := <-opened:
			return inst, err
		case <-timer.C:
		}
		if reason = s.health.reason(); reason == nil {
			reason = store.ErrClosed
		}
	}
	inst.disk.abort()
	err := <-opened
	if err == nil {
		_ = inst.db.Close()
		s.taken = inst.disk.unfinished()
		err = reason
	}
	return nil, errors.Join(err, inst.disk.settled(nil))
}

func (s *Store) events(inst *instance) *pebble.EventListener {
	log := s.opts.Logger
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			inst.scheduler.fail()
			if !inst.disk.isFenced() {
				s.lines.backgroundError(err)
			}
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) { s.lines.corruption(i.Path, i.Details) },
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			s.stall.count.Add(1)
			log.Warn("writes stall in Pebble", "reason", i.Reason)
		},
		WALCreated: func(pebble.WALCreateInfo) { s.stall.filled() },
		FlushEnd:   func(pebble.FlushInfo) { s.stall.check() },
		CompactionEnd: func(i pebble.CompactionInfo) {
			if !inst.disk.isFenced() {
				s.stall.compacted(i.Err)
			}
		},
	}
}

// retire closes a replaced instance once nobody reads from it.
func (s *Store) retire(i *instance) {
	i.release()
	s.old.Go(func() {
		<-i.unused
		i.disk.end()
		if err := i.db.Close(); err != nil {
			s.opts.Logger.Debug("closed a replaced instance of the store", "err", err.Error())
		}
		for _, name := range s.removals.release() {
			_ = s.opts.FS.Remove(name)
		}
	})
}

// shut closes the instance in use. If the disk fails meanwhile, or has failed
// before, Pebble is not allowed to change anything more. Nor is it once enough is
// closed: it would finish the flush and the compactions that it has begun.
func (s *Store) shut(inst *instance, enough <-chan struct{}) error {
	failed, reason := s.health.watch()
	closed := make(chan error, 1)
	inst.release()
	go func() {
		<-inst.unused
		closed <- inst.db.Close()
	}()
	if reason == nil {
		select {
		case err := <-closed:
			return err
		case <-failed:
		case <-enough:
		}
	}
	inst.disk.fence()
	inst.disk.end()
	return <-closed
}
