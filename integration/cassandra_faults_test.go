//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Three nodes, three replicas, quorums: while one node at a time is killed,
// comes back, or hangs, the service goes on, nothing that was acknowledged is
// lost, and nothing is seen that was said to have had no effect.
//
// Each writer has a key of its own, to which it writes rising numbers, and reads
// after each. What it may read is the last number that was acknowledged, or a
// later one whose outcome is unknown; and never less than it has read before.
// What is told of each phase is what clients without a deadline got.
func TestCassandra_NodesFail(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := c.on(t, raced)
	whole := func() {
		t.Helper()
		a := s.insist(http.MethodPut, entity("whole"), "v", "Spillway-Consistency: all")
		require.Equal(t, http.StatusCreated, a.status, a.body)
	}
	whole()

	writers := make([]*quorumWriter, 8)
	for i := range writers {
		writers[i] = &quorumWriter{path: entity(fmt.Sprint("writer", i)), maybe: map[int]bool{}}
	}
	turns := longer(t, "SPILLWAY_TORTURE_CYCLES", 10)
	phase := func(what string, during func()) (lost int64) {
		t.Helper()
		began := time.Now()
		var log tally
		var running sync.WaitGroup
		stop := make(chan struct{})
		faults := make([]error, len(writers))
		for i, w := range writers {
			until := stop
			if i > 1 {
				until = nil // two are enough to see what happens meanwhile
			}
			running.Go(func() { faults[i] = w.run(s, turns, until, &log) })
		}
		if during != nil {
			during()
		}
		close(stop) // the turns that are left are made to the end
		running.Wait()
		for _, fault := range faults {
			require.NoError(t, fault, what)
		}
		t.Logf("%s, in %v: %v", what, time.Since(began).Round(time.Second), &log)
		return log.lost()
	}

	anyway := phase("three nodes", nil)
	dies, hangs, last := c.nodes[1], c.nodes[2], c.nodes[0]
	anyway += phase("as "+dies.address+" is killed", dies.kill)
	anyway += phase("as "+dies.address+" comes back", func() {
		dies.start()
		dies.await()
		whole()
	})
	// What may be lost is what was under way as it began to hang, one of each writer,
	// about as many reads for which another node counts on it, and what this machine
	// loses anyway.
	lost := phase("as "+hangs.address+" hangs", hangs.freeze)
	require.LessOrEqual(t, lost, int64(2*len(writers))+anyway, "as a node hangs")
	phase("as "+hangs.address+" goes on", func() {
		hangs.thaw()
		whole()
	})
	phase("as "+last.address+" is killed", last.kill)
	s.awaitConserved("fifo")
	s.stop()
}

// tally counts answers.
type tally struct {
	acknowledged, unknown, refused, read, unread atomic.Int64
	longest                                      atomic.Int64 // ns
}

func (l *tally) String() string {
	return fmt.Sprintf("writes: %d acknowledged, %d of unknown outcome, %d without effect; reads: %d answered, %d not; the longest took %v",
		l.acknowledged.Load(), l.unknown.Load(), l.refused.Load(), l.read.Load(), l.unread.Load(), time.Duration(l.longest.Load()).Round(time.Millisecond))
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
	for acknowledged := 0; ; {
		if acknowledged >= turns {
			if stop == nil {
				return nil
			}
			select {
			case <-stop:
				return nil
			default:
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
	if a.status == http.StatusNotFound && w.least == 0 {
		return nil
	}
	n, err := strconv.Atoi(a.body)
	if a.status != http.StatusOK || err != nil {
		return fmt.Errorf("GET %s, %d of which was acknowledged or seen: %d %q", w.path, w.least, a.status, a.body)
	}
	if n < w.least || n > w.least && !w.maybe[n] {
		return fmt.Errorf("GET %s is %d; acknowledged or seen was %d, of unknown outcome are %v", w.path, n, w.least, w.maybe)
	}
	w.least = n
	return nil
}
