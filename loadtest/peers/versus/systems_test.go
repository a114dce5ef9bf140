package versus

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/workload"
)

func TestSystems_SayWhatIsMissing(t *testing.T) {
	t.Parallel()
	q, err := Ask("systems", Setup{Has: func(program string) bool {
		return program != "etcd" && program != "redis-cli" && program != "redis-benchmark"
	}})
	require.NoError(t, err)
	var names []string
	for _, c := range q.Contestants {
		names = append(names, c.Name)
	}
	require.Equal(t, []string{"spillway", "spillway, synced each second", "spillway, always synced", "one-nio and RocksDB"}, names)
	for _, want := range []string{
		"*redis* is missing: apt-get install redis-tools.",
		"*webdis* is missing: apt-get install redis-tools.",
		"*etcd, its gateway* is missing: apt-get install etcd-server.",
	} {
		require.Contains(t, q.store, want)
	}
	require.NotContains(t, q.store, "one-nio")
}

func TestSystems_CanBeStarted(t *testing.T) {
	t.Parallel()
	for _, s := range systems("bin/java") {
		require.Contains(t, s.Command, "{port}")
		require.NotContains(t, strings.ReplaceAll(s.Command, "'{dir}", ""), " {dir}", "a folder's name may have spaces: %s", s.Command)
		require.NotContains(t, s.name, "'", "it is part of the folder's name")
		require.NotNil(t, s.Fill)
	}
}

func TestReadBenchmark(t *testing.T) {
	t.Parallel()
	const head = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n"
	r, err := readBenchmark([]byte(head+`"GET key:__rand_int__","50000.00","0.640","0.100","0.607","0.951","1.383","2.303"`+"\n"), 100_000)
	require.NoError(t, err)
	require.InDelta(t, 2, r.Seconds, 1e-9)
	require.Equal(t, int64(100_000), r.Served())
	require.InDelta(t, 1.383, r.Latency.P99, 1e-9)
	for _, said := range []string{"", head, head + "a\n", head + `"GET","x","0","0","0","0","0","0"` + "\n", `"` + head} {
		_, err := readBenchmark([]byte(said), 1)
		require.ErrorContains(t, err, "redis-benchmark said", "%q", said)
		require.NotContains(t, err.Error(), "%!", "%q", said)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	require.Equal(t, "/GET/key:000000000011.txt", webdisTargets(workload.Get, 12)[11].URL)
	put := webdisTargets(workload.Put, 12)[3]
	require.Equal(t, "PUT /SET/key:000000000003 100", put.Method+" "+put.URL+" "+map[bool]string{true: "100"}[len(put.Body) == 100])
	require.JSONEq(t, `{"key":"a2V5OjAwMDAwMDAwMDAwMA=="}`, string(etcdTargets(workload.Get, 1)[0].Body))
	require.Contains(t, string(etcdTargets(workload.Put, 1)[0].Body), `{"key":"a2V5OjAwMDAwMDAwMDAwMA==","value":"MDEyMzQ1`)
}
