package lab

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/workload"
)

func TestService_TellsWhatItUses(t *testing.T) {
	t.Parallel()
	s, err := startService(t.Context(), fakeBinary(t, serves), t.TempDir(), nil)
	require.NoError(t, err)
	mallocs, err := s.metric(t.Context(), mallocsMetric)
	require.NoError(t, err)
	require.InDelta(t, 12345, mallocs, 0)
	_, err = s.metric(t.Context(), "beauty")
	require.ErrorContains(t, err, "there is no beauty")

	// Time that has been used is never given back, and what has started has used
	// some. Of its own clock the system tells the same.
	before, err := s.cpu()
	require.NoError(t, err)
	require.Positive(t, before)
	require.NoError(t, ask(s.admin+"/environment"))
	after, err := s.cpu()
	require.NoError(t, err)
	require.Greater(t, after, before)

	require.NoError(t, s.stop(stopPatience))
	_, err = s.cpu()
	require.ErrorContains(t, err, "died")
}

// TestIdlers_NoticeThatOneIsClosed: otherwise there would be fewer than are told.
func TestIdlers_NoticeThatOneIsClosed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	var all idlers
	defer func() { all.close() }()
	for range 3 {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		all = append(all, conn)
	}
	require.NoError(t, all.ask(server.URL))
	require.NoError(t, all.ask(server.URL))
	require.NoError(t, all[1].Close())
	require.ErrorContains(t, all.ask(server.URL), "connection 2 of 3")
}

func TestPairLoad_Count(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		load PairLoad
		want uint64
	}{
		{PairLoad{Connections: 64}, 30_000},
		// A quarter over one connection.
		{PairLoad{Connections: 1}, 7501},
		// Several times as many as the connections.
		{PairLoad{Connections: 10_000}, 40_000},
		// No more bytes of values than 16 KiB for each of the requests.
		{PairLoad{Connections: 64, ValueSize: 10 << 10}, 30_000},
		{PairLoad{Connections: 64, ValueSize: 160 << 10}, 3001},
		{PairLoad{Connections: 1, ValueSize: 100, Op: workload.Scan, ScanLimit: 16 << 10}, 76},
	} {
		require.Equal(t, row.want, row.load.count(30_000), "%+v", row.load)
	}
}

func TestTally_CostsAreByWhatWasServed(t *testing.T) {
	t.Parallel()
	sum := tally{requests: 400, served: 100, cpu: 2 * time.Millisecond, mallocs: 50, seconds: 0.5, misses: 25}
	got := sum.figures(PairLoad{}, 0)
	for metric, want := range map[string]float64{
		"served_rps": 200, "server_cpu_served_us": 20, "server_allocs": 0.5, "non2xx_percent": 75, BlocksRead: 0.25, MegabytesPerSecond: 0.02,
	} {
		require.InDelta(t, want, got[metric], 1e-9, metric)
	}
	// Nothing is not a number to divide by.
	sum = tally{requests: 400, cpu: 2 * time.Millisecond}
	got = sum.figures(PairLoad{}, 0)
	require.Zero(t, got["served_rps"])
	require.InDelta(t, 2000, got["server_cpu_served_us"], 1e-9)
	require.Nil(t, new(tally).figures(PairLoad{}, 0))
}
