//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/generator"
	loadresult "github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
	"github.com/spillway-go/spillway/strategies"
)

// soakDuration returns how long the soak test lasts.
func soakDuration(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("SPILLWAY_TORTURE_SOAK")
	if s == "" {
		return 4 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		t.Fatalf("SPILLWAY_TORTURE_SOAK is %q, want a duration above 0", s)
	}
	return d
}

// What the service takes of memory, goroutines and file descriptors does not grow
// with time, under a steady load of 80% of what it can do, while strategies are
// switched, metrics and profiles are fetched, and connections come and go, some
// of them by reset.
func TestSoak_TakesNoMoreWithTime(t *testing.T) {
	t.Parallel()
	duration := soakDuration(t)
	s := start(t, plain, "SPILLWAY_SYNC=interval:100ms")
	load := workload.Options{
		URL: "http://" + s.data, Connections: 64, Keys: 20_000, ScanLimit: 20,
		Mix:     workload.Mix{Put: 45, Get: 45, Delete: 5, Scan: 5},
		Timeout: patience,
	}
	seed := seedOr(t, rand.Uint64())
	t.Logf("run again with SPILLWAY_TORTURE_SEED=%d", seed)
	load.Seed = seed
	var k soak
	for try, good := 0, false; !good; try++ { // the machine may become much slower than when it was measured
		require.Less(t, try, 5, "most of the load has never been served, or hardly a sample was taken")
		closed := load
		closed.Duration = max(time.Second, duration/60)
		r, err := generator.Run(t.Context(), closed)
		require.NoError(t, err)
		require.Empty(t, r.Partial)

		k = soak{s: s, rng: rand.New(rand.NewPCG(seed, 0)), samples: make(map[string][]float64)}
		steady := load
		steady.Rate, steady.Duration = 0.8*r.CompletedRPS, duration
		good = k.run(t, steady) && len(k.samples["go_goroutines"]) >= 4
	}

	// What is filled once, such as caches and memtables, is not all filled within
	// seconds.
	memory := float64(1 << 20)
	if duration < 5*time.Minute {
		memory = 8 << 20
	}
	for metric, slack := range map[string]float64{
		"process_resident_memory_bytes": 16 * memory,
		"go_memstats_heap_inuse_bytes":  8 * memory,
		"go_goroutines":                 20,
		"process_open_fds":              20,
	} {
		samples := k.samples[metric]
		n := len(samples)
		require.GreaterOrEqual(t, n, 4, metric)
		before, after := median(samples[n/4:n/2]), median(samples[n*3/4:])
		t.Logf("%s: %.0f in the second quarter, %.0f in the last one, median of %d samples each", metric, before, after, n/4)
		require.LessOrEqual(t, after, 1.1*before+slack, metric)
	}
	s.awaitConserved(strategies.Names()...)
	s.stop()
}

// soak is what happens beside the load.
type soak struct {
	s       *service
	rng     *rand.Rand // of the one that switches
	samples map[string][]float64
	done    map[string]int
}

// run sends the load, and does what happens beside it. It reports whether most of the
// load has been served.
func (k *soak) run(t *testing.T, load workload.Options) bool {
	t.Helper()
	stop := k.accompany(t.Context(), max(20*time.Millisecond, load.Duration/200))
	r, err := generator.Run(t.Context(), load)
	require.NoError(t, errors.Join(err, stop()))
	require.Empty(t, r.Partial)
	for _, kind := range []loadresult.ErrorKind{loadresult.ErrorReset, loadresult.ErrorProtocol, loadresult.ErrorConnect} {
		require.Zero(t, r.Errors[kind], kind)
	}
	t.Logf("%d requests at %.0f a second, answered with %v; with them %v", r.Requests, load.Rate, r.Status, k.done)
	served := r.Status["404"]
	for status, n := range r.Status {
		if status[0] == '2' {
			served += n
		}
	}
	return 2*served > r.Requests
}

// accompany does what happens beside the load until the returned function is
// called, which returns what went wrong.
func (k *soak) accompany(ctx context.Context, step time.Duration) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	tasks := []struct {
		name  string
		every time.Duration
		do    func(n int) error
	}{
		{"samples", step, k.sample},
		{"switches", step, k.switchOver},
		{"profiles", 2 * step, k.profile},
		{"connections", min(step, 20*time.Millisecond), k.visit},
	}
	errs := make([]error, len(tasks))
	counts := make([]int, len(tasks))
	var running sync.WaitGroup
	for i, task := range tasks {
		running.Go(func() {
			tick := time.NewTicker(task.every)
			defer tick.Stop()
			for errs[i] == nil {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					if err := task.do(counts[i]); err != nil {
						errs[i] = fmt.Errorf("%s: %w", task.name, err)
					}
					counts[i]++
				}
			}
		})
	}
	return func() error {
		cancel()
		running.Wait()
		k.done = make(map[string]int)
		for i, task := range tasks {
			k.done[task.name] = counts[i]
		}
		return errors.Join(errs...)
	}
}

func (k *soak) sample(int) error {
	m, err := k.s.tryMetrics()
	for _, metric := range []string{"process_resident_memory_bytes", "go_memstats_heap_inuse_bytes", "go_goroutines", "process_open_fds"} {
		k.samples[metric] = append(k.samples[metric], m[metric])
	}
	return err
}

func (k *soak) switchOver(int) error {
	names := strategies.Names()
	return k.s.trySwitch(names[k.rng.IntN(len(names))])
}

func (k *soak) profile(n int) error {
	paths := []string{"heap", "goroutine", "mutex", "block", "allocs", "profile?seconds=1"}
	a, err := k.s.try(http.MethodGet, k.s.adminURL("/debug/pprof/"+paths[n%len(paths)]), "")
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", a.status, a.body)
	}
	return err
}

// visit opens a connection, uses it, and leaves in one of several ways.
func (k *soak) visit(n int) error {
	c, err := dial(k.s.data)
	if err != nil {
		return err
	}
	defer c.close()
	if n%4 == 0 {
		return nil // without a word
	}
	for range 3 {
		if _, err := c.do(http.MethodGet, entity("visit"), ""); err != nil {
			return err
		}
	}
	if n%4 == 1 {
		return c.send(http.MethodPut, entity("visit"), "left before the answer")
	}
	if n%4 == 2 {
		return c.reset()
	}
	return nil
}
