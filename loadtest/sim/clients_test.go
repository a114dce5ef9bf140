//go:build !race

package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
)

// watched is a number that counts what it is told of.
type watched struct {
	sim.Fixed
	ended, dropped *int
}

func (w watched) Ended(e sim.Ended) {
	*w.ended++
	if e.Dropped {
		*w.dropped++
	}
}

func TestClients(t *testing.T) {
	t.Parallel()
	run := func(c sim.Clients) (r sim.UnknownResult, ended, dropped int) {
		u := sim.Unknown{
			Resource: sim.Resource{Work: sim.Exponential(time.Millisecond), Hands: 8}, Load: 0.5, Seed: 1,
			Limiter: watched{8, &ended, &dropped}, Clients: c, Length: 10_000,
		}
		return u.Run(), ended, dropped
	}
	patient, all, dropped := run(sim.Clients{})
	require.Zero(t, dropped)
	require.InDelta(t, 0.5, patient.Goodput/patient.Rate, 0.03)

	// Of those that leave the limiter is not told, of deadlines that were told and that left
	// enough time it is.
	left, ended, dropped := run(sim.Clients{Impatient: 1, Patience: time.Millisecond})
	require.InDelta(t, 0.5, left.Goodput/patient.Goodput, 0.05)
	require.InDelta(t, 0.5, float64(ended)/float64(all), 0.05)
	require.Zero(t, dropped)
	_, ended, dropped = run(sim.Clients{Impatient: 1, Patience: time.Millisecond, Deadline: true})
	require.Positive(t, dropped)
	require.Less(t, ended, all)

	failed, _, dropped := run(sim.Clients{Errors: 0.1})
	require.InDelta(t, 0.1, float64(dropped)/float64(all), 0.02)
	require.InDelta(t, 0.9, failed.Goodput/patient.Goodput, 0.02)

	// Over two connections two run, whatever the load.
	few, _, _ := run(sim.Clients{Connections: 2})
	require.InDelta(t, 0.25, few.Goodput/few.Rate, 0.03)
}

// What shares a resource gets what it is given.
func TestUnknown_Beside(t *testing.T) {
	t.Parallel()
	u := sim.Unknown{
		Resource: sim.Resource{Work: sim.Exponential(time.Millisecond), Hands: 8}, Load: 2, Seed: 1,
		Limiter: sim.Fixed(2), Beside: []sim.Beside{{Limiter: sim.Fixed(6), Weight: 3}}, Length: 20_000,
	}
	r := u.Run()
	require.InDelta(t, 0.25, r.Each[0]/r.Rate, 0.02)
	require.InDelta(t, 0.75, r.Each[1]/r.Rate, 0.02)
	u.Beside[0].From = time.Hour // after the end
	r = u.Run()
	require.Zero(t, r.Each[1])
	require.InDelta(t, 0.25, r.Each[0]/r.Rate, 0.02)
}
