//go:build integration

package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"spillway/strategies"
)

// A process that is killed with SIGKILL in the midst of writes has kept each
// write that it acknowledged under SPILLWAY_SYNC=always. A write that was cut
// off is there or not, and nothing else.
func TestKill_KeepsAcknowledgedWrites(t *testing.T) {
	t.Parallel()
	const writers = 8
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)

	folder := filepath.Join(t.TempDir(), "data")
	names := strategies.Names()
	all := make([]*writer, writers)
	for i := range all {
		all[i] = newWriter(i, rng.Uint64())
	}
	acknowledged := 0
	cycles := longer(t, "SPILLWAY_TORTURE_CYCLES", 20)
	for cycle := range cycles {
		strategy := names[cycle%len(names)]
		pools := []string{"shared", "split"}[cycle/len(names)%2]
		binary := []build{plain, raced}[cycle%2]
		s := start(t, binary, "SPILLWAY_DATA_DIR="+folder,
			"SPILLWAY_STRATEGY="+strategy, "SPILLWAY_POOLS="+pools, "SPILLWAY_QUEUE_CAPACITY=4")
		require.NoError(t, concurrently(writers, func(i int) error { return all[i].verify(s) }),
			"cycle %d, before %s, %s", cycle, strategy, pools)

		// The kill comes at a number of acknowledgements, not at a time, and from
		// whoever receives that one, while the other writers are on their way.
		last := rng.Int64N(600)
		var acks atomic.Int64
		written := func() {
			if acks.Add(1) == last {
				_ = s.cmd.Process.Kill()
			}
		}
		if last == 0 {
			_ = s.cmd.Process.Kill()
		}
		if cycle%3 == 2 {
			go func() { // ends when the service does
				for i := cycle; s.trySwitch(names[i%len(names)]) == nil; i++ {
				}
			}()
		}
		require.NoError(t, concurrently(writers, func(i int) error { return all[i].write(s, written) }))
		s.kill()
		acknowledged += int(acks.Load())
	}
	s := start(t, raced, "SPILLWAY_DATA_DIR="+folder)
	require.NoError(t, concurrently(writers, func(i int) error { return all[i].verify(s) }), "at the end")
	s.stop()
	t.Logf("%d acknowledged writes over %d kills", acknowledged, cycles)
}

// Under interval what was acknowledged before the last fsync began is kept.
func TestKill_IntervalKeepsWhatIsSynced(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	env := []string{"SPILLWAY_DATA_DIR=" + folder, "SPILLWAY_SYNC=interval:20ms"}
	s := start(t, plain, env...)
	syncs := func() float64 { return s.metrics().sum("spillway_store_wal_fsync_duration_seconds_count") }
	for i := range 20 {
		require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity(fmt.Sprint("k", i))), "v").status)
	}
	// One fsync may be on its way already. Each needs something to sync.
	for range 2 {
		before := syncs()
		s.request(http.MethodPut, s.dataURL(entity("more")), "v")
		s.eventually("an fsync", func() bool { return syncs() > before })
	}
	s.kill()
	s = start(t, plain, env...)
	for i := range 20 {
		require.Equal(t, "v", s.request(http.MethodGet, s.dataURL(entity(fmt.Sprint("k", i))), "").body)
	}
	s.stop()
}

// writer writes keys of its own, one request at a time, so that it knows what
// they must hold.
type writer struct {
	name string
	rng  *rand.Rand
	n    int
	// held is what a key may hold: one value, or two if the last write to it was
	// cut off. The empty string stands for an absent key.
	held map[string][]string
}

func newWriter(i int, seed uint64) *writer {
	return &writer{
		name: fmt.Sprintf("writer%d", i),
		rng:  rand.New(rand.NewPCG(seed, 1)),
		held: make(map[string][]string),
	}
}

// write writes until the service is gone.
func (w *writer) write(s *service, acknowledged func()) error {
	c, err := dial(s.data)
	if err != nil {
		return nil
	}
	defer c.close()
	for {
		key := fmt.Sprintf("%s-%d", w.name, w.rng.IntN(24))
		before := w.held[key]
		if len(before) == 0 {
			before = []string{""}
		}
		method, value, done := http.MethodDelete, "", http.StatusAccepted
		if w.rng.IntN(4) > 0 {
			w.n++
			unique := fmt.Sprintf("%s-%d.", w.name, w.n)
			value = strings.Repeat(unique, 1+w.rng.IntN(200))
			method, done = http.MethodPut, http.StatusCreated
		}
		a, err := c.do(method, entity(key), value)
		switch {
		case err != nil:
			w.held[key] = append([]string{value}, before...)
			return nil
		case a.status == done:
			w.held[key] = []string{value}
			acknowledged()
		case a.status == http.StatusServiceUnavailable && a.shed() != "":
			// It has had no effect.
		default:
			return fmt.Errorf("%s of %s: status %d: %s", method, key, a.status, a.body)
		}
	}
}

// verify reads all keys of the writer.
func (w *writer) verify(s *service) error {
	c, err := dial(s.data)
	if err != nil {
		return err
	}
	defer c.close()
	for key, may := range w.held {
		var a answer
		for {
			if a, err = c.do(http.MethodGet, entity(key), ""); err != nil {
				return fmt.Errorf("read of %s: %w", key, err)
			}
			if a.shed() == "" {
				break
			}
		}
		var holds string
		switch a.status {
		case http.StatusOK:
			holds = a.body
		case http.StatusNotFound:
		default:
			return fmt.Errorf("read of %s: status %d: %s", key, a.status, a.body)
		}
		i := 0
		for i < len(may) && may[i] != holds {
			i++
		}
		if i == len(may) {
			return fmt.Errorf("%s holds %s, may hold only %s", key, brief(holds), brief(may...))
		}
		w.held[key] = []string{holds}
	}
	return nil
}

// brief describes values by their unique part and their length.
func brief(values ...string) string {
	var all []string
	for _, v := range values {
		unique, _, _ := strings.Cut(v, ".")
		all = append(all, fmt.Sprintf("%q (%d bytes)", unique, len(v)))
	}
	return strings.Join(all, " or ")
}
