//go:build integration

package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Three nodes, three replicas, quorums: while one node at a time is killed, comes
// back, hangs, or cannot be reached, the service goes on, nothing that was
// acknowledged is lost, and nothing is seen that was said to have had no effect.
//
// Each writer has a key of its own, to which it writes rising numbers, and reads
// after each. What it may read is the last number that was acknowledged, or a
// later one whose outcome is unknown; and never less than it has read before.
// What is told of each phase is what clients without a deadline got. Beside them
// others write and read keys that they share, whose histories must be linearizable.
func TestCassandra_NodesFail(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	apart := c.nodes[1].behindProxy()
	// The service starts on nodes that may not know each other yet.
	c.start()
	s := c.on(t, raced)
	whole := func() {
		t.Helper()
		a := s.insist(http.MethodPut, entity("whole"), "v", "Spillway-Consistency: all")
		require.Equal(t, http.StatusCreated, a.status, a.body)
	}
	whole()
	c.await()

	writers := make([]*quorumWriter, 8)
	for i := range writers {
		writers[i] = &quorumWriter{path: entity(fmt.Sprint("writer", i)), maybe: map[int]bool{}}
	}
	shared := &registers{t: t, s: s, keys: "shared", seed: seedOr(t, rand.Uint64())}
	table := []string{
		"| meanwhile | errors seen by clients | acknowledged writes lost | slowest |",
		"|---|---|---|---|",
	}
	turns := longer(t, "SPILLWAY_TORTURE_CYCLES", 10)
	phase := func(what string, during func()) (lost int64, pauses int) {
		t.Helper()
		var log tally
		var running sync.WaitGroup
		stop, watched := make(chan struct{}), make(chan int)
		go func() { watched <- watchPauses(stop) }()
		faults := make([]error, len(writers)+1)
		for i, w := range writers {
			until := stop
			if i > 1 {
				until = nil // two are enough to see what happens meanwhile
			}
			running.Go(func() { faults[i] = w.run(s, turns, until, &log) })
		}
		running.Go(func() { faults[len(writers)] = shared.run(stop) })
		if during != nil {
			during()
		}
		close(stop) // the turns that are left are made to the end
		running.Wait()
		pauses = <-watched
		for _, fault := range faults {
			require.NoError(t, fault, what)
		}
		table = append(table, fmt.Sprintf("| %s | %v | %d | %.1f s |", what, &log, log.gone.Load(), time.Duration(log.longest.Load()).Seconds()))
		require.Zero(t, log.gone.Load(), strings.Join(table, "\n"))
		return log.lost(), pauses
	}

	// What may be lost is what was under way as a node fell silent, one operation of
	// each writer, about as many reads for which another node counts on it, what this
	// machine loses anyway, and what was under way whenever it stood still.
	// A node alone may stand still too, on a busy machine, which nobody sees here: so one
	// of three times it has to be so.
	anyway, _ := phase("three nodes", nil)
	bounded := func(what string, during func(), then string, after func()) {
		t.Helper()
		for attempt := 1; ; attempt++ {
			lost, pauses := phase(what, during)
			most := int64(2*len(writers)*(1+pauses)) + anyway
			phase(then, after)
			if lost <= most {
				return
			}
			require.Less(t, attempt, 3, "%s: %d operations were lost, want at most %d", what, lost, most)
		}
	}
	dies, hangs, last := c.nodes[1], c.nodes[2], c.nodes[0]
	killed, _ := phase("a node is killed", dies.kill)
	anyway += killed
	back, _ := phase("it comes back", func() {
		dies.start()
		dies.await()
		whole()
		c.await() // one of them may still take it for dead, and count on the next to hang
	})
	anyway += back
	bounded("another hangs", hangs.freeze, "it goes on", func() {
		hangs.thaw()
		whole()
		c.await()
	})
	// What asks a second node soon does not wait for one that hangs, and reads nothing
	// that is older. Otherwise a third of the first reads would take 2.5 s.
	var slowest time.Duration
	attempt := 0
	s.eventually("speculative reads do not wait for a node that hangs", func() bool {
		eager := c.on(t, raced, "SPILLWAY_CASSANDRA_SPECULATIVE_DELAY=50ms") // one that does not know yet who hangs
		hangs.freeze()
		attempt++
		stop, linear := make(chan struct{}), make(chan error, 1)
		others := &registers{t: t, s: eager, keys: fmt.Sprint("eager-", attempt), seed: shared.seed}
		go func() { linear <- others.run(stop) }()
		slowest = 0
		for i := range 40 {
			began := time.Now()
			a := eager.request(http.MethodGet, eager.dataURL(entity(fmt.Sprint("none", i))), "", "Spillway-Consistency: one")
			require.Contains(t, []int{http.StatusNotFound, http.StatusServiceUnavailable}, a.status, a.body)
			slowest = max(slowest, time.Since(began))
		}
		close(stop)
		require.NoError(t, <-linear)
		hangs.thaw()
		eager.stop()
		return slowest < 2*time.Second
	})
	c.await()
	// The nodes still reach each other, so that all replicas answer through the
	// two that the service reaches.
	bounded("one cannot be reached by the service", func() {
		apart.cut()
		whole()
	}, "it can again", func() {
		apart.heal()
		whole()
		c.await()
	})
	phase("the third is killed", last.kill)
	for _, w := range writers {
		var log tally
		s.eventually("the last value of every writer is read", func() bool {
			require.NoError(t, w.read(s, &log))
			return log.read.Load() > 0
		})
		require.Zero(t, log.gone.Load(), w.path)
	}
	t.Logf("what clients without a deadline got:\n%s\nthe slowest speculative read while a node hung: %.2f s\nbeside them, linearizable: %d operations in %d pieces, of which %d writes of unknown outcome; %d reads not answered",
		strings.Join(table, "\n"), slowest.Seconds(), shared.operations.Load(), shared.pieces, shared.unknown.Load(), shared.unanswered.Load())
	s.awaitConserved("auto")
	s.stop()
}

// pace is the least time between two turns of who only waits for a node: it shall
// not take the time of the machine from that.
const pace = 50 * time.Millisecond

// watchPauses counts until stop is closed how often this machine stands still for
// so long that healthy nodes are late.
func watchPauses(stop <-chan struct{}) (n int) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-stop:
			return n
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(last) > time.Second {
			n++
		}
		last = now
	}
}

// tally counts answers.
type tally struct {
	acknowledged, unknown, refused, read, unread atomic.Int64
	gone                                         atomic.Int64 // writes that were acknowledged or seen, and are not there
	longest                                      atomic.Int64 // ns
}

// String tells what was not done.
func (l *tally) String() string {
	writes, reads := l.acknowledged.Load()+l.unknown.Load()+l.refused.Load(), l.read.Load()+l.unread.Load()
	return fmt.Sprintf("of %d writes %d of unknown outcome, %d without effect; of %d reads %d not answered",
		writes, l.unknown.Load(), l.refused.Load(), reads, l.unread.Load())
}

// lost returns how many operations have not been done, as far as anyone knows.
func (l *tally) lost() int64 { return l.unknown.Load() + l.refused.Load() + l.unread.Load() }

func (l *tally) took(d time.Duration) {
	for was := l.longest.Load(); int64(d) > was && !l.longest.CompareAndSwap(was, int64(d)); was = l.longest.Load() {
	}
}

// quorumWriter is the one writer and reader of a key.
type quorumWriter struct {
	path  string
	next  int          // number of the last write
	least int          // what a read must see at least
	maybe map[int]bool // numbers of unknown outcome
}

// run writes and reads until so many writes have been acknowledged, and stop, if
// there is one, is closed. It returns what must not be.
func (w *quorumWriter) run(s *service, turns int, stop <-chan struct{}, log *tally) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for acknowledged := 0; ; {
		if acknowledged >= turns {
			if stop == nil {
				return nil
			}
			select {
			case <-stop:
				return nil
			case <-tick.C:
			}
		}
		w.next++
		began := time.Now()
		a, err := s.try(http.MethodPut, s.dataURL(w.path), strconv.Itoa(w.next))
		switch {
		case err != nil:
			return err
		case a.status == http.StatusCreated:
			acknowledged++
			log.acknowledged.Add(1)
			w.least = w.next
		case a.status != http.StatusServiceUnavailable || a.shed() != "":
			return fmt.Errorf("PUT %s: %d %s", w.path, a.status, a.body)
		case strings.Contains(a.body, "no effect"):
			log.refused.Add(1)
		case strings.Contains(a.body, "outcome of the write is unknown"):
			log.unknown.Add(1)
			w.maybe[w.next] = true
		default:
			return fmt.Errorf("PUT %s does not say what became of it: %s", w.path, a.body)
		}
		log.took(time.Since(began))
		if err := w.read(s, log); err != nil {
			return err
		}
	}
}

func (w *quorumWriter) read(s *service, log *tally) error {
	began := time.Now()
	a, err := s.try(http.MethodGet, s.dataURL(w.path), "")
	if err != nil {
		return err
	}
	log.took(time.Since(began))
	if a.status == http.StatusServiceUnavailable && a.shed() == "" {
		log.unread.Add(1)
		return nil
	}
	log.read.Add(1)
	n := 0 // nothing is there
	if a.status != http.StatusNotFound {
		n, err = strconv.Atoi(a.body)
		if a.status != http.StatusOK || err != nil {
			return fmt.Errorf("GET %s, %d of which was acknowledged or seen: %d %q", w.path, w.least, a.status, a.body)
		}
	}
	if n < w.least {
		log.gone.Add(1)
		return nil
	}
	if n > w.least && !w.maybe[n] {
		return fmt.Errorf("GET %s is %d; acknowledged or seen was %d, of unknown outcome are %v", w.path, n, w.least, w.maybe)
	}
	w.least = n
	return nil
}
