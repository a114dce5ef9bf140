// Package delay makes a store slow on purpose, so that the lab can study queues
// under a known service time.
//
// The delays come from time.Sleep, which overshoots: eight goroutines that sleep
// exp:4ms were measured at 0.86 of the rate that this promises, and at 0.08 with
// exp:50us. So compare strategies by the capacity that a closed loop measures in
// the same run, not by the nominal one.
package delay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/store"
)

// Distribution is a distribution of delays. Its zero value is no delay.
type Distribution struct {
	mean        time.Duration // of those that are not long
	exponential bool
	long        time.Duration // what a share takes in its place
	share       float64
}

// Max is the largest delay, or mean, that ParseDistribution accepts.
const Max = time.Hour

// ParseDistribution parses "4ms", a constant, "exp:4ms", an exponential distribution of
// that mean, or "bimodal:1ms,30ms,0.1": a tenth takes 30 ms, the others 1 ms. "" and "0"
// mean no delay.
func ParseDistribution(s string) (Distribution, error) {
	if s == "" {
		return Distribution{}, nil
	}
	if text, ok := strings.CutPrefix(s, "bimodal:"); ok {
		return parseBimodal(s, text)
	}
	text, exponential := strings.CutPrefix(s, "exp:")
	mean, err := time.ParseDuration(text)
	if err != nil || mean < 0 || mean > Max {
		return Distribution{}, notDelay(s)
	}
	if mean == 0 {
		return Distribution{}, nil
	}
	return Distribution{mean: mean, exponential: exponential}, nil
}

func parseBimodal(s, text string) (Distribution, error) {
	parts := strings.Split(text, ",")
	if len(parts) != 3 {
		return Distribution{}, notDelay(s)
	}
	short, err := time.ParseDuration(parts[0])
	long, failed := time.ParseDuration(parts[1])
	share, no := strconv.ParseFloat(parts[2], 64)
	if errors.Join(err, failed, no) != nil || short <= 0 || long < short || long > Max || !(share > 0 && share <= 1) {
		return Distribution{}, notDelay(s)
	}
	return Distribution{mean: short, long: long, share: share}, nil
}

func notDelay(s string) error {
	return fmt.Errorf("%q is not a delay: allowed are 0, a duration such as 4ms, exp:4ms for exponentially distributed ones of that mean, "+
		"and bimodal:1ms,30ms,0.1 where a tenth is longer, up to %v", s, Max)
}

// IsZero reports whether there is no delay.
func (d Distribution) IsZero() bool { return d.mean == 0 }

// String returns what ParseDistribution parses.
func (d Distribution) String() string {
	switch {
	case d.IsZero():
		return "0"
	case d.exponential:
		return "exp:" + d.mean.String()
	case d.share > 0:
		return fmt.Sprintf("bimodal:%v,%v,%g", d.mean, d.long, d.share)
	default:
		return d.mean.String()
	}
}

// Draw returns one delay. It is safe for concurrent use.
func (d Distribution) Draw() time.Duration {
	if d.exponential {
		return time.Duration(rand.ExpFloat64() * float64(d.mean))
	}
	if d.share > 0 && rand.Float64() < d.share {
		return d.long
	}
	return d.mean
}

// Store is a store with a delay before each operation: one draw for a Get, a View, a
// Transact, for opening a Range, and for each write of an Apply. A Commit is not
// delayed.
type Store struct {
	store.Store
	d Distribution
	// hands holds one element for each operation that is being done; nil if they
	// have no bound. Go serves those that wait to send in the order in which they
	// came.
	hands chan struct{}
	left  chan struct{} // closed by Leave
	leave sync.Once
}

// Wrap returns s with such a delay. If parallel is not 0, the store does so many
// operations at once, and others wait in it, first come first served: what is not
// held back before a disk or a database waits there just so.
func Wrap(s store.Store, d Distribution, parallel int) *Store {
	w := &Store{Store: s, d: d, left: make(chan struct{})}
	if parallel > 0 {
		w.hands = make(chan struct{}, parallel)
	}
	return w
}

// Leave lets nobody wait for their turn any more: operations that do, and that
// come, fail with store.ErrClosed. Those that are being done go on.
func (s *Store) Leave() { s.leave.Do(func() { close(s.left) }) }

// begin waits for a turn and for the delay of so many operations. If it returns
// no error, end must be called when they have been done.
func (s *Store) begin(operations int) error {
	if s.hands != nil {
		select {
		case <-s.left:
			return store.ErrClosed
		default:
		}
		select {
		case s.hands <- struct{}{}:
		case <-s.left:
			return store.ErrClosed
		}
	}
	var sum time.Duration
	for range operations {
		sum += s.d.Draw()
	}
	time.Sleep(sum)
	return nil
}

func (s *Store) end() {
	if s.hands != nil {
		<-s.hands
	}
}

// Get implements store.Store.
func (s *Store) Get(dst, key []byte) ([]byte, store.Meta, error) {
	if err := s.begin(1); err != nil {
		return dst, store.Meta{}, err
	}
	defer s.end()
	return s.Store.Get(dst, key)
}

// Apply implements store.Store.
func (s *Store) Apply(writes []store.Write) (store.Commit, error) {
	if err := s.begin(len(writes)); err != nil {
		return nil, err
	}
	defer s.end()
	return s.Store.Apply(writes)
}

// View implements store.Store.
func (s *Store) View(read func(store.View) error) error {
	if err := s.begin(1); err != nil {
		return err
	}
	defer s.end()
	return s.Store.View(read)
}

// Transact implements store.Store.
func (s *Store) Transact(looks []store.Look, decide func(store.View) ([]store.Write, error)) (store.Commit, error) {
	if err := s.begin(1); err != nil {
		return nil, err
	}
	defer s.end()
	return s.Store.Transact(looks, decide)
}

// Range implements store.Store.
func (s *Store) Range(start, end []byte, descending bool) (store.Iterator, error) {
	if err := s.begin(1); err != nil {
		return nil, err
	}
	defer s.end()
	return s.Store.Range(start, end, descending)
}

// Close lets nobody wait any more, and closes the store.
func (s *Store) Close() error {
	s.Leave()
	return s.Store.Close()
}
