package lab

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
)

func TestGroups_AreNamedByWhatDiffers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		combinations []scenario.Combination
		labels       []string
		workloads    []string
		loads        []string
	}{
		{
			"strategies and rates",
			[]scenario.Combination{
				{Strategy: "lifo", Workers: 4, Capacity: 64, Connections: 64, Mix: "get=1", Rate: "0.9x"},
				{Strategy: "sync", Connections: 64, Mix: "get=1", Rate: "20000"},
			},
			[]string{"lifo, 4 workers, 64 waiting, 0.9x", "sync, 20000/s"},
			[]string{"get=1, 64 connections, 0.9x", "get=1, 64 connections, 20000/s"},
			[]string{"get=1, 64 connections", "get=1, 64 connections"},
		},
		{
			"one combination",
			[]scenario.Combination{{Strategy: "fifo", Rate: "max"}},
			[]string{"fifo"}, []string{"closed loop"}, []string{"default load"},
		},
		{
			"rates alone",
			[]scenario.Combination{{Strategy: "fifo", Rate: "100"}, {Strategy: "fifo", Rate: "200"}},
			[]string{"fifo, 100/s", "fifo, 200/s"},
			[]string{"100/s", "200/s"}, []string{"default load", "default load"},
		},
		{
			"retries, and none",
			[]scenario.Combination{{Strategy: "fifo", Rate: "2x"}, {Strategy: "fifo", Rate: "2x", Retries: "4,10ms"}},
			[]string{"fifo", "retries 4,10ms"},
			[]string{"2x", "retries 4,10ms, 2x"}, []string{"default load", "retries 4,10ms"},
		},
		{
			"balancers of fleets",
			[]scenario.Combination{
				{Strategy: "fifo", Nodes: 2, Balance: "random", Rate: "2x"},
				{Strategy: "fifo", Nodes: 2, SlowNode: 0.1, Balance: "power-of-two", Rate: "2x"},
			},
			[]string{"random", "power-of-two, one of speed 0.1"},
			[]string{"2 nodes, 2x", "2 nodes, one of speed 0.1, 2x"}, []string{"2 nodes", "2 nodes, one of speed 0.1"},
		},
		{
			"sizes of stores, durability, and all else",
			[]scenario.Combination{
				{Strategy: "fifo", Sync: "always", StoreDelay: "4ms", StoreParallel: 8, Fill: 100e6, Distribution: "zipf", ValueSize: "1KB", Rate: "max"},
				{Strategy: "fifo", Sync: "never", Fill: 1.5e9, Rate: "max"},
				{Strategy: "fifo", Sync: "never", Keys: 1000, Rate: "max"},
			},
			[]string{"sync always, 4ms of work, 8 at once, store of 100 MB, zipf, values of 1KB", "sync never, store of 1.5 GB", "sync never, 1000 keys"},
			[]string{"4ms of work, 8 at once, store of 100 MB, zipf, values of 1KB, closed loop", "store of 1.5 GB, closed loop", "1000 keys, closed loop"},
			[]string{"4ms of work, 8 at once, store of 100 MB, zipf, values of 1KB", "store of 1.5 GB", "1000 keys"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var labels, workloads, loads []string
			for _, g := range groupsOf(&scenario.Scenario{Combinations: tt.combinations}) {
				labels = append(labels, g.Label)
				workloads, loads = append(workloads, g.Workload), append(loads, g.Load)
			}
			require.Equal(t, tt.labels, labels)
			require.Equal(t, tt.workloads, workloads)
			require.Equal(t, tt.loads, loads)
		})
	}
}

func TestOrder_IsBalanced(t *testing.T) {
	t.Parallel()
	const n, repetitions = 7, 6
	order := orderOf(n, repetitions, 3)
	require.Equal(t, order, orderOf(n, repetitions, 3))
	require.NotEqual(t, order, orderOf(n, repetitions, 4))
	places := make([]int, n)
	for _, o := range order {
		require.Len(t, o, n)
		for place, group := range o {
			places[group] += place
		}
	}
	for _, sum := range places {
		require.Equal(t, repetitions*(n-1)/2, sum, "all combinations have the same mean place")
	}
}

func TestLoad_FillsWhatItReads(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		c      scenario.Combination
		keys   uint64
		filled filling
	}{
		{"defaults", scenario.Combination{}, 100_000, filling{100_000, workload.Sizes{Min: 100, Max: 100}}},
		{"fewer keys", scenario.Combination{Keys: 10}, 10, filling{10, workload.Sizes{Min: 100, Max: 100}}},
		{"a size alone", scenario.Combination{Fill: 1e6, ValueSize: "1000"}, 1000, filling{1000, workload.Sizes{Min: 1000, Max: 1000}}},
		{"sizes", scenario.Combination{Fill: 1e6, ValueSize: "500-1500"}, 1000, filling{1000, workload.Sizes{Min: 500, Max: 1500}}},
		{"many keys", scenario.Combination{Fill: 10e9, ValueSize: "500-1500"}, 1e7, filling{1e7, workload.Sizes{Min: 500, Max: 1500}}},
		{"a large store of which little is used", scenario.Combination{Fill: 1e6, Keys: 10}, 10, filling{10_000, workload.Sizes{Min: 100, Max: 100}}},
		{"more keys than bytes", scenario.Combination{Fill: 1000, Keys: 50}, 50, filling{50, workload.Sizes{Min: 100, Max: 100}}},
	}
	for _, tt := range tests {
		o, f, err := loadOf(&tt.c)
		require.NoError(t, err, tt.name)
		require.Equal(t, tt.keys, o.Keys, tt.name)
		require.Equal(t, tt.filled, f, tt.name)
	}
	_, _, err := loadOf(&scenario.Combination{ValueSize: "large"})
	require.ErrorContains(t, err, "value_size: ")
	_, _, err = loadOf(&scenario.Combination{Fill: 1 << 62, ValueSize: "1"})
	require.ErrorContains(t, err, "fill: ")
}

func TestRate_Parses(t *testing.T) {
	t.Parallel()
	type rate struct {
		value    float64
		relative bool
	}
	l := &comparing{s: &scenario.Scenario{Repetitions: 1}}
	for text, want := range map[string]rate{
		"max": {}, "": {}, "20000": {value: 20_000}, "0.9x": {value: 0.9, relative: true}, "1.5": {value: 1.5},
	} {
		var g grouping
		require.NoError(t, l.checkCombination(&g, &scenario.Combination{Rate: text}))
		require.Equal(t, want, rate{g.load.Rate, g.relative})
	}
	for _, text := range []string{"x", "-1", "0", "0x", "fast", "NaN", "Inf", "1e10", "1xx"} {
		require.ErrorContains(t, l.checkCombination(new(grouping), &scenario.Combination{Rate: text}), "rate: ", text)
	}
}

func TestReference_IsTheSameInEveryOrder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		all         []scenario.Combination
		want        scenario.Combination
		connections int
	}{
		{
			"the workers of what has a queue count, however few",
			[]scenario.Combination{{Strategy: "sync"}, {Strategy: "lifo", Workers: 1, Capacity: 64}, {Strategy: "service:plain"}},
			scenario.Combination{Strategy: "fifo", Workers: 1, Capacity: 64}, 64,
		},
		{
			"most workers, then the longest queue",
			[]scenario.Combination{
				{Strategy: "fifo", Workers: 8, Capacity: 64, Connections: 1000}, {Strategy: "fifo", Workers: 128, Capacity: 16, Connections: 1000},
				{Strategy: "fifo", Workers: 128, Capacity: 1, Connections: 1000}, {Strategy: "unbounded", Workers: 256, Connections: 1000},
			},
			scenario.Combination{Strategy: "fifo", Workers: 128, Capacity: 16, Connections: 1000}, 128,
		},
		{
			"the most durable, in one pool",
			[]scenario.Combination{
				{Strategy: "fifo", Sync: "never"}, {Strategy: "fifo", Sync: "always"},
				{Strategy: "fifo", Sync: "always"}, {Strategy: "fifo", Sync: "interval:10ms"},
			},
			scenario.Combination{Strategy: "fifo", Sync: "always"}, 64,
		},
		{
			"no more connections than the load has, nor than there is room for",
			[]scenario.Combination{{Strategy: "fifo", Workers: 2, Capacity: 1, Connections: 8}},
			scenario.Combination{Strategy: "fifo", Workers: 2, Capacity: 1, Connections: 8}, 3,
		},
		{
			"none has a queue",
			[]scenario.Combination{{Strategy: "sync"}, {Strategy: "service:plain"}},
			scenario.Combination{Strategy: "fifo"}, 64,
		},
	} {
		// Another load has nothing to do with it.
		all := append(tt.all, scenario.Combination{Strategy: "fifo", Workers: 4096, Mix: "get=1", Connections: tt.want.Connections})
		for range len(all) {
			all = append(all[1:], all[0])
			got := reference(all, &tt.all[0])
			require.Equal(t, tt.want, got, tt.name)
			require.Equal(t, tt.connections, probing(&got), tt.name)
		}
	}
}

func TestRoomOf_KnowsTheServicesDefaults(t *testing.T) {
	t.Parallel()
	service, err := config.Parse(config.Input{Machine: config.Machine{CPUs: runtime.NumCPU(), Memory: 1 << 30}})
	require.NoError(t, err)
	for strategy, capacity := range map[string]int{service.Config.Strategy: 4096, "fifo": 256} {
		room, bounded := roomOf(&scenario.Combination{Strategy: strategy})
		require.True(t, bounded)
		require.Equal(t, int(service.Config.Workers)+capacity, room, strategy)
	}
}

func TestSlug_IsAFileName(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"lifo, 64 waiting, 0.9x":      "lifo-64-waiting-0.9x",
		"../../etc/passwd":            "etc-passwd",
		"sync interval:10ms, 20000/s": "sync-interval-10ms-20000-s",
		"":                            "",
	} {
		require.Equal(t, want, slug(label))
	}
	require.LessOrEqual(t, len(slug(string(make([]byte, 500))+"abc")), 60)
}
