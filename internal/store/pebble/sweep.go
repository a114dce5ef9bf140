package pebble

import (
	"bytes"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/spillway-go/spillway/internal/store"
)

// What has expired is gone for readers at once. The sweeper, a goroutine, removes it
// later, so that compactions give back its space. It goes over the whole store in the
// order of the keys, since nothing in Pebble leads to the values that expire: its tables
// tell no properties of values. So that this costs next to nothing,
//
//   - it does so only if there ever was a value that expires, and when the next one
//     does, which it has learnt by the pass before and from the writes since;
//   - it works in steps of some milliseconds, and pauses after each for many times as
//     long: so it takes a twentieth of a CPU, or a fifth while it finds much, and holds
//     up writes for the few hundred microseconds in which it removes what it has found.
const (
	firstSweep    = 5 * time.Second
	sweepKeys     = 128
	sweepVisits   = 4096
	sweepPauses   = 19 // times as long as a step
	sweepingPause = 4  // as a step that has found as many keys as it may
)

// That there ever was a value that expires is noted in the batch of the first one, so
// that no crash parts them. The note is a range key, which who reads points does not
// meet, over a range that matters to nobody.
var noteStart, noteEnd = []byte{0}, []byte{0, 0}

// noteExpiring adds the note to a batch.
func noteExpiring(b *pebble.Batch) {
	_ = b.RangeKeySet(noteStart, noteEnd, nil, []byte("expiring"), nil)
}

// mayExpire reports whether there is the note. If it cannot be read there may be.
func mayExpire(db *pebble.DB) (may bool) {
	defer func() {
		if recover() != nil { // on some kinds of damage Pebble panics
			may = true
		}
	}()
	it, err := db.NewIter(&pebble.IterOptions{KeyTypes: pebble.IterKeyTypeRangesOnly})
	if err != nil {
		return true
	}
	may = it.First()
	return it.Close() != nil || may
}

// expires notes that a value is written that expires then.
func (s *Store) expires(then int64) {
	for {
		soonest := s.soonest.Load()
		if soonest != 0 && soonest <= then || s.soonest.CompareAndSwap(soonest, then) {
			return
		}
	}
}

func (s *Store) sweepLoop() {
	next := int64(math.MaxInt64) // when something expires
	if s.cur.Load().expiring.Load() {
		next = 0
	}
	for s.rest(s.opts.SweepInterval) {
		if soonest := s.soonest.Swap(0); soonest != 0 {
			next = min(next, soonest)
		}
		if s.clock.read() >= next {
			_, next = s.sweep()
		}
	}
}

// rest waits, and reports whether the store is not being closed.
func (s *Store) rest(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closing:
		return false
	}
}

// sweep goes over the store once. It returns how many values it has removed, and when
// the next one expires, 0 if that is not known.
func (s *Store) sweep() (removed int, next int64) {
	next = math.MaxInt64
	for from := []byte{0}; ; {
		if s.health.reason() != nil || s.Stalled() {
			return removed, 0
		}
		began := time.Now()
		found, err := s.findExpired(from)
		if err != nil {
			return removed, 0 // reads say so
		}
		n, commit, err := s.remove(found.keys)
		took := time.Since(began)
		if err == nil && commit != nil {
			err = commit.Wait()
		}
		if err != nil {
			return removed, 0
		}
		removed += n
		next = min(next, found.next)
		if found.from == nil {
			return removed, next
		}
		from = found.from
		pauses := sweepPauses
		if n == sweepKeys {
			pauses = sweepingPause
		}
		if !s.rest(time.Duration(pauses) * took) {
			return removed, 0
		}
	}
}

// expired is what a step of the sweeper has come across.
type expired struct {
	keys [][]byte // whose values have expired
	next int64    // when the next one does
	from []byte   // where the next step begins, nil at the end
}

// findExpired looks at the keys from that one on.
func (s *Store) findExpired(from []byte) (expired, error) {
	f := expired{next: math.MaxInt64}
	it, err := s.iterate(from, nil, false)
	if err != nil {
		return f, err
	}
	for visits := 0; it.Next(); visits++ {
		if len(f.keys) == sweepKeys || visits == sweepVisits {
			f.from = bytes.Clone(it.it.Key())
			break
		}
		kept, err := it.it.ValueAndErr()
		if err != nil {
			continue // it may be readable later, or others are told
		}
		switch h, _, err := s.prefix.Split(kept); {
		case err != nil || h.Expires == 0:
		case it.moment.gone(it.it.Key(), h.Expires):
			f.keys = append(f.keys, bytes.Clone(it.it.Key()))
		default:
			f.next = min(f.next, h.Expires)
		}
	}
	err = it.Err()
	if closeErr := it.Close(); err == nil {
		err = closeErr
	}
	return f, err
}

// remove removes those of the keys whose values are gone.
func (s *Store) remove(keys [][]byte) (n int, commit store.Commit, err error) {
	if len(keys) == 0 {
		return 0, nil, nil
	}
	looks := make([]store.Look, len(keys))
	for i, key := range keys {
		looks[i].Key = key
	}
	commit, err = s.transact(looks, func(v *looked) (writes []store.Write, _ error) {
		for _, key := range keys {
			if f := v.keys[string(key)]; f.found && v.moment.gone(key, f.expires) {
				writes = append(writes, store.Write{Key: key, Delete: true})
			}
		}
		n = len(writes)
		return writes, nil
	})
	return n, commit, err
}
