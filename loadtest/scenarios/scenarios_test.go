package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/strategies"
)

func TestOpen_EveryScenarioIsWhole(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"big-store", "durability", "every-strategy", "few-connections", "fleet", "fleet-storm", "impatient", "overload", "passive-wait", "pool-or-not", "queue-length", "rejection-policy",
		"retry-storm", "slow-work", "streams", "workers",
	}, Names())
	for _, name := range Names() {
		s, err := Open(name)
		require.NoError(t, err)
		require.Equal(t, name, s.Name)
		require.NotNil(t, s.Short, name)
		// With fewer than four against four no difference can be told from noise, of
		// which a simulation of a million requests has next to none.
		least := 9
		if slices.ContainsFunc(s.Combinations, func(c scenario.Combination) bool { return c.Fleet() }) {
			least = 1
		}
		require.GreaterOrEqual(t, s.Repetitions, least, name)
		require.GreaterOrEqual(t, s.Short.Repetitions, 4, name)
	}
}

func TestOpen_UnknownName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "x", "../scenario/parse", "pool-or-not.yaml"} {
		_, err := Open(name)
		require.ErrorContains(t, err, "the names are big-store, durability, ", name)
	}
}

func TestOpen_TheStudyComparesEveryStrategy(t *testing.T) {
	t.Parallel()
	s, err := Open("every-strategy")
	require.NoError(t, err)
	for _, name := range strategies.Names() {
		require.True(t, slices.ContainsFunc(s.Short.Combinations, func(c scenario.Combination) bool { return c.Strategy == name }), name)
	}
}

// Where more is asked than can be done, and work takes its time, the store does no
// more at once than the workers: otherwise it would take any load that a strategy
// does not hold back.
func TestOpen_NoStoreTakesAnyLoad(t *testing.T) {
	t.Parallel()
	past := 0
	for _, name := range Names() {
		s, err := Open(name)
		require.NoError(t, err)
		for _, c := range slices.Concat(s.Combinations, s.Short.Combinations) {
			if c.StoreDelay == "" || c.Rate == "max" || c.Fleet() { // a fleet's workers hold all back
				continue
			}
			require.Positive(t, c.StoreParallel, "%s: %+v", name, c)
			if c.Workers > 0 { // sync has none
				require.Equal(t, c.Workers, c.StoreParallel, "%s: %+v", name, c)
			}
			past++
		}
	}
	require.Positive(t, past)
}

// overload holds every way of being past capacity.
func TestOpen_OverloadIsWhole(t *testing.T) {
	t.Parallel()
	s, err := Open("overload")
	require.NoError(t, err)
	has := func(of func(c scenario.Combination) bool) bool { return slices.ContainsFunc(s.Combinations, of) }
	plain := func(rate string) bool {
		return has(func(c scenario.Combination) bool {
			return c == scenario.Combination{
				Strategy: "lifo", Workers: 8, Capacity: 256, StoreDelay: "exp:4ms", StoreParallel: 8, Sync: "never",
				Connections: 4000, Mix: "get=100", Rate: rate,
			}
		})
	}
	for _, rate := range []string{"0.5x", "0.9x", "1.1x", "2x", "4x", "10x"} {
		require.True(t, plain(rate), rate)
	}
	for name, of := range map[string]func(c scenario.Combination) bool{
		"a spike":          func(c scenario.Combination) bool { return strings.HasSuffix(c.Profile, ",5s") && c.Retries == "" },
		"a retry storm":    func(c scenario.Combination) bool { return c.Retries != "" && c.Profile != "" },
		"a greedy client":  func(c scenario.Combination) bool { return c.Clients != "" },
		"three priorities": func(c scenario.Combination) bool { return strings.Count(c.Priority, "=") == 3 },
		"ranges":           func(c scenario.Combination) bool { return strings.Contains(c.Mix, "scan") },
	} {
		require.True(t, has(of), name)
	}
	// The retries are those of the scenario that is about them.
	storm, err := Open("retry-storm")
	require.NoError(t, err)
	for _, c := range storm.Combinations {
		require.True(t, has(func(o scenario.Combination) bool {
			return o.Retries == c.Retries && o.Rate == c.Rate && o.Profile == c.Profile
		}), c)
	}
}

// fleet and fleet-storm are a hundred nodes and about a million requests a second,
// and have what their documentation tells of.
func TestOpen_FleetsAreWhole(t *testing.T) {
	t.Parallel()
	var all []scenario.Combination
	for _, name := range []string{"fleet", "fleet-storm"} {
		s, err := Open(name)
		require.NoError(t, err)
		for _, c := range s.Combinations {
			require.Equal(t, 100, c.Nodes)
			require.Equal(t, 8, c.Workers)
			require.Equal(t, "exp:700us", c.StoreDelay)
		}
		// What the simulation has to remember at most is bounded by the clients' patience.
		require.LessOrEqual(t, s.Timeout, 100*time.Millisecond)
		all = append(all, s.Combinations...)
	}
	for name, of := range map[string]func(c scenario.Combination) bool{
		"calm":               func(c scenario.Combination) bool { return c.Rate == "1000000" && c.SlowNode == 0 && c.Profile == "" },
		"a greedy client":    func(c scenario.Combination) bool { return strings.HasPrefix(c.Clients, "greedy=50,") },
		"a slow node":        func(c scenario.Combination) bool { return c.SlowNode == 0.1 },
		"a storm":            func(c scenario.Combination) bool { return c.Profile == "spike:3x,2s" && c.Retries == "4,5ms" },
		"one with a budget":  func(c scenario.Combination) bool { return c.Profile == "spike:3x,2s" && c.Retries == "4,5ms,0.1" },
		"retries in a calm":  func(c scenario.Combination) bool { return c.SlowNode == 0.1 && c.Retries == "2,1ms,0.1" },
		"one without either": func(c scenario.Combination) bool { return c.Profile == "spike:3x,2s" && c.Retries == "" },
	} {
		require.True(t, slices.ContainsFunc(all, of), name)
	}
	for _, balance := range sim.Balances {
		require.True(t, slices.ContainsFunc(all, func(c scenario.Combination) bool { return c.SlowNode > 0 && c.Balance == balance }), balance)
	}
}

// The study has 20 minutes on two CPUs, of which two are for what this does not
// know: reports, and a machine that is slower.
func TestOpen_TheStudyFitsItsTime(t *testing.T) {
	t.Parallel()
	const (
		budget = 18 * time.Minute
		// bytesPerSecond is how fast stores were seen to be filled.
		bytesPerSecond = 25_000_000
		// perRun is what starting and stopping the service takes beside a run.
		perRun = time.Second
		// perCapacity is how long it takes to measure a capacity.
		perCapacity = 15 * time.Second
	)
	// Those that are simulated rather than run are not part of the study.
	simulated := []string{"fleet", "fleet-storm", "impatient", "overload", "retry-storm", "streams"}
	var total time.Duration
	for _, name := range Names() {
		if slices.Contains(simulated, name) {
			continue
		}
		s, err := Open(name)
		require.NoError(t, err)
		short := s.Short
		runs := len(short.Combinations) * short.Repetitions
		estimate := time.Duration(runs) * (short.Warmup + short.Duration + perRun)
		fills, workloads := map[int64]bool{}, map[scenario.Combination]bool{}
		for _, c := range short.Combinations {
			fills[c.Fill] = true
			if c.Rate != "max" && strings.HasSuffix(c.Rate, "x") {
				workloads[scenario.Combination{Fill: c.Fill, Connections: c.Connections, Mix: c.Mix, StoreDelay: c.StoreDelay}] = true
			}
		}
		for bytes := range fills {
			estimate += time.Duration(max(bytes, 10_000_000)) * time.Second / bytesPerSecond
		}
		estimate += time.Duration(len(workloads)) * perCapacity
		t.Logf("%-17s %3d runs, %v", name, runs, estimate.Round(time.Second))
		total += estimate
	}
	t.Logf("in total %v", total.Round(time.Second))
	require.Less(t, total, budget)
}
