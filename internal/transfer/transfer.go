// Package transfer copies all entries of a store into another one, and verifies
// the copy.
//
// # Passes
//
// A pass takes the entries of the source in the order of their keys, with a bounded
// number of operations of the target under way, and as much in memory, however large
// the source is. The first pass writes each entry. The second one reads each back
// and compares it with the source.
//
// # Timestamps
//
// All that is written carries one timestamp, the moment up to which the source was
// written to, and a target keeps of each key what has the latest. So what has been
// written to the target since that moment stays, and is not taken for a difference;
// and every write can be repeated, after an error or a crash, at any time, without
// an effect on anything but what is missing.
//
// # Resuming
//
// A file has the progress of the pass: the key up to which all have been
// acknowledged. It is written every two seconds, durably. The same copy, run again,
// continues after that key. The file also names source and target, and their state,
// so that it is used for no other copy. If the target has lost what it acknowledged,
// the second pass, which reads all that is in the source from the beginning, finds
// that.
package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/durable"
	"github.com/spillway-go/spillway/internal/store"
)

// Source is what is copied. It must not change.
type Source interface {
	// After returns the entries whose keys are greater than key, in ascending
	// order, all for nil. No key is empty.
	After(key []byte) (store.ExpiringIterator, error)
	// Share estimates which share of all, from 0 to 1, is in keys up to that one, and
	// reports whether it can.
	Share(key []byte) (share float64, known bool)
}

// Target is what is copied to. Its methods are safe for concurrent use, and their
// errors those of a store.Remote.
type Target interface {
	// PutStamped writes a value, which is gone after so many seconds, 0 for never, if
	// nothing has been written to the key with a later timestamp, in microseconds since
	// 1970.
	PutStamped(key, value []byte, ttl uint32, stamp int64) error
	// GetStamped appends the value of the key to dst, or a copy of it, and returns
	// its timestamp.
	GetStamped(dst, key []byte) (value []byte, stamp int64, err error)
}

// Identity says what is copied to where.
type Identity struct {
	// From and To are the names of source and target, for people.
	From string `json:"from"`
	To   string `json:"to"`
	// Source and Target tell the two from all others, and from what they were or
	// will be.
	Source string `json:"source"`
	Target string `json:"target"`
}

// Job is a copy. All fields must be set, but for those that say otherwise.
type Job struct {
	Source Source
	Target Target
	Identity
	// Moment is such that nothing was written to the source later.
	Moment time.Time
	// State is the path of the file that says how far the copy is. There is none
	// before the first run and after the last one.
	State string
	// InFlight is how many operations of the target are under way at most.
	InFlight int
	// VerifyOnly leaves out the first pass.
	VerifyOnly bool
	// Resumed is told how far an earlier run got, if there was one, before anything
	// is done. Nil means nobody wants to know.
	Resumed func(Result)
	// Report is told every two seconds how far the pass is, by one goroutine at a time.
	// Nil means nobody wants to know.
	Report func(Progress)
}

// expirySlack is how much earlier than in the source a value may be gone in the target.
const expirySlack = 2 * time.Second

const (
	// interval is the time between two reports, and two writes of the file.
	interval = 2 * time.Second
	// patience is for how long an operation is tried that fails in a way that may
	// pass.
	patience = 2 * time.Minute
	// suspicion is for how long a write is tried whose outcome is unknown each time,
	// and not for want of time, while the target takes others: then it is the entry
	// that the target cannot take, such as a value that is larger than it allows.
	suspicion = 10 * time.Second
	// firstPause and longestPause are between two tries. Each pause is twice the one
	// before, and up to half of it is left away, by chance.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// Result is what was done, by all runs of the copy.
type Result struct {
	// Moment is the timestamp of all that was written: that of the Job of the first
	// run, or when that began if it was earlier. It is zero if nothing was begun.
	Moment time.Time
	// Copied and Verified tell how far the passes are.
	Copied, Verified Position
}

// Run copies and verifies, or goes on with that. It returns when all is done, ctx
// ends, or something fails for good; operations that are under way are waited for. The
// Result tells how far it got in any case. Differences are no error.
func (j *Job) Run(ctx context.Context) (Result, error) {
	s, err := j.begin()
	if err != nil {
		return Result{}, err
	}
	r := &run{Job: j, state: s, stamp: s.Moment.UnixMicro()}
	err = r.passes(ctx)
	return s.result(), err
}

// begin returns the state to go on from, which is in the file.
func (j *Job) begin() (*state, error) {
	s, err := load(j.State)
	if err != nil {
		return nil, err
	}
	if s != nil {
		if err := s.belongsTo(j); err != nil {
			return nil, err
		}
		if j.Resumed != nil {
			j.Resumed(s.result())
		}
		return s, nil
	}
	// A clock or a file from the future must not win against what is written then.
	moment := j.Moment
	if now := time.Now(); moment.After(now) {
		moment = now
	}
	s = &state{Identity: j.Identity, Moment: moment.UTC().Truncate(time.Microsecond), VerifyOnly: j.VerifyOnly, Verifying: j.VerifyOnly}
	return s, s.save(j.State) // so that one that cannot be written is found out now
}

// run is one run of a Job.
type run struct {
	*Job
	state *state
	stamp int64

	done    atomic.Int64 // operations that ended well
	retries atomic.Int64
	trouble atomic.Pointer[error] // of the latest try that has failed
}

// passes does what is left of both passes, and removes the file.
func (r *run) passes(ctx context.Context) error {
	s := r.state
	if !s.Verifying {
		if err := r.pass(ctx, &s.Copied, r.put); err != nil {
			return err
		}
		s.Verifying = true
		if err := s.save(r.State); err != nil {
			return err
		}
	}
	if err := r.pass(ctx, &s.Verified, r.compare); err != nil {
		return err
	}
	if err := os.Remove(r.State); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(r.State))
}

// pass does something with every entry behind the position, and moves the position
// on behind all that are done. Nobody else uses the state meanwhile.
func (r *run) pass(ctx context.Context, at *Position, do func(context.Context, *entry) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	w := newWindow(*at, windowEntries*r.InFlight)
	defer context.AfterFunc(ctx, w.wake)()
	work := make(chan *entry)
	var workers, observer sync.WaitGroup
	for range r.InFlight {
		workers.Go(func() {
			for e := range work {
				if err := do(ctx, e); err != nil {
					fail(err)
					return
				}
				w.finish(e)
			}
		})
	}
	observer.Go(func() {
		if err := r.observe(ctx, at, w); err != nil {
			fail(err)
		}
	})
	err := r.read(ctx, w.position().After, w, work)
	if err != nil {
		fail(err) // so that nothing is tried again
	}
	close(work)
	workers.Wait()
	if err == nil && !w.empty() {
		err = context.Cause(ctx)
	}
	fail(err)
	observer.Wait()
	*at = w.position()
	unsaved := r.state.save(r.State)
	if unsaved != nil && errors.Is(err, context.Canceled) {
		return unsaved // whoever interrupts it has to know
	}
	return errors.Join(err, unsaved)
}

// read hands on the entries behind a key.
func (r *run) read(ctx context.Context, after []byte, w *window, work chan<- *entry) error {
	it, err := r.Source.After(after)
	if err != nil {
		return err
	}
	err = func() error {
		for it.Next() {
			key, value, err := it.Entry()
			if err != nil {
				return fmt.Errorf("the source cannot be read at the key %s: %w", quote(key), err)
			}
			e := newEntry(key, value, it.Expires())
			if err := w.begin(ctx, e); err != nil {
				return err
			}
			select {
			case work <- e:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := it.Err(); err != nil {
			return fmt.Errorf("the source cannot be read: %w", err)
		}
		return nil
	}()
	return errors.Join(err, it.Close())
}

// put writes an entry, unless it has expired meanwhile.
func (r *run) put(ctx context.Context, e *entry) error {
	return r.insist(ctx, "write", e, func() error {
		ttl, gone := e.ttl(time.Now())
		if gone {
			return nil
		}
		return r.Target.PutStamped(e.key, e.value, ttl, r.stamp)
	})
}

// compare reads an entry back, and notes what it finds.
func (r *run) compare(ctx context.Context, e *entry) error {
	var stamp int64
	got := bufpool.Get(len(e.value))
	err := r.insist(ctx, "read", e, func() (err error) {
		got, stamp, err = r.Target.GetStamped(got[:0], e.key)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		e.found = missing
		// Who knows how many whole seconds are left may count them from a moment
		// before or after.
		if _, gone := e.ttl(time.Now().Add(expirySlack)); gone {
			e.found = equal
		}
	case err != nil:
		return err
	case bytes.Equal(got, e.value):
		e.found = equal
	case stamp > r.stamp:
		e.found = newer
	default:
		e.found = different
	}
	bufpool.Put(got)
	return nil
}

// insist does an operation until it ends otherwise than by what may pass.
func (r *run) insist(ctx context.Context, what string, e *entry, operation func() error) error {
	began, done := time.Now(), r.done.Load()
	own := true // only what the entry itself can be the reason of has failed it
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := operation()
		own = own && errors.Is(err, store.ErrUnknownOutcome) && !errors.Is(err, store.ErrTimeout)
		switch {
		case err == nil || errors.Is(err, store.ErrNotFound):
			r.done.Add(1)
			return err
		case !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrTimeout) && !errors.Is(err, store.ErrUnknownOutcome):
			return fmt.Errorf("cannot %s the key %s: %w", what, quote(e.key), err)
		case own && time.Since(began) >= suspicion && r.done.Load() > done:
			return fmt.Errorf("cannot %s the key %s: the target takes others, and not this one with its value of %d bytes, which may be more than it is set up for: %w", what, quote(e.key), len(e.value), err)
		case time.Since(began) >= patience:
			return fmt.Errorf("cannot %s the key %s for %v: %w", what, quote(e.key), patience, err)
		}
		r.trouble.Store(&err) // before it counts
		r.retries.Add(1)
		timer := time.NewTimer(pause - rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// observe writes the state and reports, every interval until ctx ends.
func (r *run) observe(ctx context.Context, at *Position, w *window) error {
	meter := r.newMeter(*at)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		*at = w.position()
		if err := r.state.save(r.State); err != nil {
			return err
		}
		if r.Report != nil {
			r.Report(meter.progress(*at))
		}
	}
}
