//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One queue before all is the M/M/40 queue, and a random balancer has ten of M/M/4.
func TestReplicas_ErlangC(t *testing.T) {
	t.Parallel()
	for balance, servers := range map[string]int{"": 40, Random: 4} {
		u := tenReplicas(balance, 0.9)
		u.Length = 100 * time.Second
		r := u.Run()
		n := float64(servers)
		want := 0.01 + erlangC(servers, 0.9*n)*0.01/(n-0.9*n)
		require.InEpsilon(t, want, r.Mean.Seconds(), 0.05, balance)
		require.Equal(t, r.Offered, r.Succeeded)
		require.InEpsilon(t, 0.9*4000*100, r.Offered, 0.01)
	}
}
