package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A closed loop that never lets the queue run empty keeps n requests in a store that slows with them: each takes as many times as
// long as the law says, whatever the distribution of the work.
func TestRun_ABatchSlowsItsRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n       int
		serial  float64
		service Distribution
		times   float64
	}{
		{1, 0.1, Constant(20 * time.Millisecond), 1},
		{8, 0, Exponential(20 * time.Millisecond), 1},
		{8, 0.1, Constant(20 * time.Millisecond), 1.7},
		{8, 0.1, Exponential(20 * time.Millisecond), 1.7},
		{64, 0.05, Bimodal{Cheap: 10 * time.Millisecond, Expensive: 110 * time.Millisecond, Share: 0.1}, 4.15},
	} {
		c := Config{
			Strategy: "fifo", Workers: tt.n, Serial: tt.serial, Service: tt.service, SLO: time.Hour,
			Connections: 2 * tt.n, Closed: true, Warmup: 10 * time.Second, Duration: 400 * time.Second, Seed: 1,
		}.asked(poisson(1))
		want := float64(tt.n) / tt.times / tt.service.Mean().Seconds()
		require.InEpsilon(t, want, c.ServiceRate(), 1e-9)
		r, err := Run(c)
		require.NoError(t, err)
		require.InEpsilon(t, want, float64(r.Good)/r.Seconds, 0.02)
	}
	_, err := Run(Config{Strategy: "fifo", Serial: -1, Service: Constant(time.Millisecond), Duration: time.Second}.asked(poisson(1)))
	require.ErrorContains(t, err, "serial: -1 is not a number from 0")
}
