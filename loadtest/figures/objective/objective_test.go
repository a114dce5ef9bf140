//go:build !race

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func TestJudge(t *testing.T) {
	t.Parallel()
	crowd := cell{workers: 4, shape: "constant", mean: 4 * ms, connections: 1000, load: 2, objective: 10}
	pool := crowd
	pool.connections = 16
	calm := crowd
	calm.load = 0.5
	slow := crowd
	slow.mean = 2 * time.Second
	rows, err := judge([]cell{crowd, pool, calm, slow}, trial{seed: 1, services: 2000, lax: 1})
	require.NoError(t, err)
	require.Len(t, rows, 4)
	by := map[cell]row{}
	for _, r := range rows {
		by[r.cell] = r
	}
	for c, r := range by {
		require.GreaterOrEqual(t, r.ratio(service), 0.9, c)
		require.NotEqual(t, "auto", r.best[service].strategy)
	}
	require.Greater(t, by[crowd].auto.refused, 0.3)
	// The clocks are two: here all wait for a connection, and are in time once they have one.
	require.True(t, pool.fits())
	require.Zero(t, by[pool].auto.refused)
	require.Greater(t, by[pool].auto.good[service], 0.97)
	require.Less(t, by[pool].auto.good[schedule], 0.2)
	require.False(t, new(by[pool]).judged(schedule))
	require.Zero(t, by[calm].auto.refused)
	require.Greater(t, by[calm].auto.good[schedule], 0.9, "as a share of the load")
	// What is the same in proportion comes to the same.
	require.InDelta(t, by[crowd].auto.good[service], by[slow].auto.good[service], 0.01)
	// An objective that is too lax over few connections is no overload.
	tight := pool
	tight.objective = 3
	rows, err = judge([]cell{tight}, trial{seed: 1, services: 2000, lax: 3})
	require.NoError(t, err)
	require.Zero(t, rows[0].auto.refused)
	require.Less(t, rows[0].ratio(service), 0.5)
}

func TestReport(t *testing.T) {
	t.Parallel()
	in := func(load float64, connections int, auto, lifo, refused float64) row {
		r := row{
			cell: cell{workers: 1, shape: "constant", mean: 4 * ms, connections: connections, load: load, objective: 30},
			auto: found{good: [clocks]float64{auto, auto / 2}, refused: refused},
		}
		for clock := range r.best {
			r.best[clock] = best{"lifo", found{good: [clocks]float64{lifo, lifo / 2}, refused: 0.25}}
		}
		return r
	}
	var b strings.Builder
	require.NoError(t, report(&b, []row{
		in(0.5, 16, 1, 1, 0),
		in(0.9, 1000, 0.98, 1, 0.002),
		in(0.9, 1000, 0.92, 1, 0.01),
		in(2, 1000, 0.3, 0.39, 0.5),  // by the schedule there is nothing to be had
		in(2, 1000, 0.1, 0.19, 0.99), // there is not by any clock
	}, 1))
	require.Equal(t, `| goodput, of the best | from | cells | ≥ 0.97 | ≥ 0.9 |
|---|---|---|---|---|
| connections × work ≤ workers × objective | arrival | 1 | 100.0% | 100.0% |
| connections × work ≤ workers × objective | the schedule | 1 | 100.0% | 100.0% |
| more connections | arrival | 3 | 33.3% | 66.7% |
| more connections | the schedule | 2 | 50.0% | 100.0% |

| refused by `+"`auto`"+` | cells | some | over 0.5% | at most |
|---|---|---|---|---|
| 0.5 × | 1 | 0 | 0 | 0.00% |
| 0.9 ×, constant | 2 | 2 | 1 | 1.00% |
| 0.9 ×, exponential | 0 | 0 | 0 | 0.00% |
| 0.9 ×, a tenth long | 0 | 0 | 0 | 0.00% |
| connections × work ≤ workers × objective | 1 | 0 | 0 | 0.00% |

| the worst | of the best | `+"`auto`"+` | the best | from the schedule | refused |
|---|---|---|---|---|---|
| 1 workers, constant 4ms, 1000 connections, 2x, objective 120ms | 0.769 | 0.300 | 0.390 `+"`lifo`"+` | 0.150, 0.195 | 50.0%, 25.0% |
`, b.String())
}
