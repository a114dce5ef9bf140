package lab

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// Systems are started by commands, filled, and asked in their own ways; what they have
// started counts, and what they cannot be sent they are not.
func TestPair_Systems(t *testing.T) {
	t.Parallel()
	binary := fakeBinary(t, anything)
	var filled []Place
	fill := func(ctx context.Context, at Place, keys uint64) error {
		filled = append(filled, at)
		require.Equal(t, uint64(7), keys)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+at.Port, nil)
		if err != nil {
			return err
		}
		request.Close = true
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	o := PairOptions{
		Contestants: []Contestant{
			{Name: "http", Base: "http", System: &System{
				Command: "sleep 100 & exec " + binary + " {port}", Fill: fill,
				Targets: func(op workload.Op, keys uint64) []workload.Target {
					require.Equal(t, uint64(7), keys)
					return []workload.Target{{Method: map[workload.Op]string{workload.Get: "GET", workload.Put: "PUT"}[op], URL: "/x"}}
				},
			}},
			{Name: "own, protocol", Base: "http", System: &System{
				Command: "cd '{dir}' && exec " + binary + " {port}", Fill: fill,
				Send: func(_ context.Context, at Place, o *workload.Options) (*result.Result, error) {
					require.Equal(t, filled[1], at)
					require.Zero(t, o.Rate)
					return &result.Result{Seconds: 2, Status: map[string]int64{"200": int64(o.Count)}}, nil
				},
			}},
		},
		Loads: []PairLoad{
			{Op: workload.Get, Connections: 2},
			{Op: workload.Get, Connections: 2, Half: true},
			{Op: workload.Put, Connections: 2},
		},
		Dir: filepath.Join(t.TempDir(), "stores"), Keys: 7,
		Rounds: 1, Passes: 1, Requests: 400, Duration: 200 * time.Millisecond, Progress: func(string) {},
	}
	c, err := Pair(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, filled, 2)
	require.Equal(t, filepath.Join(o.Dir, "own, protocol"), filled[1].Dir)
	of := func(group int, metric string) float64 { return c.Groups[group].Metrics[metric].Median }
	for group := range c.Groups {
		if group == 3 {
			require.Empty(t, c.Groups[group].Metrics, "nothing can be paced that the generator does not send")
			continue
		}
		require.Positive(t, of(group, "served_rps"))
		require.Positive(t, of(group, ResidentBytes))
		require.Zero(t, of(group, "non2xx_percent"))
	}
	require.Equal(t, "http, GET, 2 connections, half the rate", c.Groups[2].Label)
	require.InDelta(t, 200, of(1, "served_rps"), 1e-9)
	require.NoDirExists(t, o.Dir)

	o.Contestants = []Contestant{{Name: "none", System: &System{Command: "exit 3 # {port}", Fill: fill}}}
	_, err = Pair(t.Context(), o)
	require.ErrorContains(t, err, "none: the service did not start (exit status 3)")
}
