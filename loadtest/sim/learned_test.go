//go:build !race

package sim_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

// Each row is a failure of limits that learn, as their users have told it.
func TestLearned_HasNoneOfTheKnownFailures(t *testing.T) {
	t.Parallel()
	exp := sim.Exponential(4 * time.Millisecond)
	for name, tt := range map[string]struct {
		resource sim.Resource
		load     float64
		share    float64 // of the best fixed number's goodput
	}{
		"envoy#8337: looking for the least time leaves 1": {
			sim.Resource{Work: exp, Hands: 16}, 2, 0.9,
		},
		"envoy#11579, Netflix#165: what is normal creeps up": {
			sim.Resource{Work: exp, Hands: 16, Change: sim.Change{Kind: sim.Drifting, Factor: 2}}, 2, 0.85,
		},
		"envoy#8557: health checks, or whatever costs nothing, are measured": {
			sim.Resource{Work: exp, Hands: 16, Aside: 0.3}, 2, 0.85,
		},
		"envoy#46532: one setting for the probe and the floor": {
			sim.Resource{Work: exp, Hands: 2}, 2, 0.85,
		},
		"Netflix#137: blind to time-outs that are always the same": {
			sim.Resource{Work: exp, Cores: 16, Timeout: 60 * time.Millisecond}, 2, 0.85,
		},
		"a long incident ruins what was learnt": {
			sim.Resource{Work: exp, Hands: 16, Change: sim.Change{Kind: sim.Cold, Factor: 6}}, 2, 0.85,
		},
		"aegis#18, #50: quotas of CPU are not what CPUs say": {
			sim.Resource{Work: exp, Cores: 3}, 2, 0.85,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := sim.Unknown{Resource: tt.resource, Load: tt.load, Seed: 1}
			n, _ := tt.resource.Best()
			u.Limiter = sim.Fixed(n)
			fixed := u.Run()
			law := judge.NewLearned()
			u.Limiter = law
			learned := u.Run()
			require.GreaterOrEqual(t, learned.Goodput, tt.share*fixed.Goodput,
				"of %.0f a second, %.0f with %d, mean limit %.1f; now %d: %s", fixed.Rate, fixed.Goodput, n, learned.Limit, law.Limit(), law.Why())
		})
	}
}

// What refuses whatever is more than it can do at once, and soon, gets about as many as
// that: the worst are 0.6 of what is good with as many, and most more than 0.7.
func TestLearned_FindsHowManyAreNotRefused(t *testing.T) {
	t.Parallel()
	for _, hands := range []int{4, 8, 16, 64} {
		for _, load := range []float64{2, 5} {
			for _, refusal := range []time.Duration{100 * time.Microsecond, time.Millisecond} {
				u := sim.Unknown{
					Resource: sim.Resource{Work: sim.Constant(20 * time.Millisecond), Hands: hands, Refusal: refusal},
					Load:     load, Limiter: sim.Fixed(hands), Seed: 1,
				}
				fixed := u.Run()
				law := judge.NewLearned()
				u.Limiter = law
				learned := u.Run()
				require.GreaterOrEqual(t, learned.Goodput, 0.6*fixed.Goodput,
					"%v at %vx: of %.0f with as many, mean limit %.1f; now %d: %s", u.Resource, load, fixed.Goodput, learned.Limit, law.Limit(), law.Why())
			}
		}
	}
}

// Below what the resource can do, it is as if there were no limit.
func TestLearned_BelowCapacity(t *testing.T) {
	t.Parallel()
	exp := sim.Exponential(4 * time.Millisecond)
	for _, r := range []sim.Resource{{Work: exp, Hands: 16}, {Work: exp, Cores: 16}, {Work: exp, Crosstalk: 1. / 400}} {
		u := sim.Unknown{Resource: r, Load: 0.5, Limiter: sim.Fixed(1 << 20), Seed: 1}
		free := u.Run()
		u.Limiter = judge.NewLearned()
		learned := u.Run()
		require.LessOrEqual(t, learned.Latency, free.Latency*105/100, r)
	}
}

// flaky is a law that is told of some requests that they were dropped.
type flaky struct {
	judge.Learned
	drops func(sim.Ended) bool
}

func (f flaky) Ended(e sim.Ended) {
	e.Dropped = e.Dropped || f.drops(e)
	f.Learned.Ended(e)
}

// A resource that can do twice as much, of which twice as much is asked, is not taken for one that
// has too much to do: nothing waits for long until the limit has followed.
func TestLearned_MoreIsAskedAndCanBeDone(t *testing.T) {
	t.Parallel()
	work := sim.Exponential(4 * time.Millisecond)
	for name, r := range map[string]sim.Resource{
		"hands": {Work: work, Hands: 64},
		"cores": {Work: work, Cores: 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.Change = sim.Change{Kind: sim.Wider, Factor: 2}
			var times []float64 // the latency, over that without a limit; one start in seven ends below what is asked later
			for seed := range uint64(long(48)) {
				u := sim.Unknown{Resource: r, Load: 0.8, Seed: seed, Limiter: sim.Fixed(1 << 20)}
				free := u.Run()
				u.Limiter = judge.NewLearned()
				learned := u.Run()
				times = append(times, float64(learned.Latency)/float64(free.Latency))
			}
			require.LessOrEqual(t, mean(times), 1.05, times)
			slices.Sort(times)
			require.LessOrEqual(t, times[len(times)*2/3], 1.05, times)
			require.LessOrEqual(t, slices.Max(times), 1.6, times)
		})
	}
}

// What times out and is worked on all the same may be so much that nothing waits any more, or
// that all times out. The limit falls soon, and far. The mean of some runs tells, as some may
// never recover once too much is under way.
func TestLearned_OrphansDoNotPileUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		work      sim.Distribution
		cores     int
		crosstalk float64
		timeout   time.Duration
		share     float64 // of what three at once do
	}{
		{sim.Bimodal{Cheap: 1_237 * time.Microsecond, Expensive: 41 * time.Millisecond, Share: 0.14}, 2, 0, 85 * time.Millisecond, 0.72},
		{sim.Exponential(1500 * time.Millisecond), 1, 0.0184, 19 * time.Second, 0.7}, // 0.77 in the mean of 200 runs
	} {
		u := sim.Unknown{
			Resource: sim.Resource{Work: tt.work, Cores: tt.cores, Crosstalk: tt.crosstalk, Timeout: tt.timeout, Orphans: true},
			Load:     1.2,
		}
		require.GreaterOrEqual(t, meanShare(u, 3, long(40)), tt.share, "%v", u.Resource)
	}
}

// More at once seem better where what timed out is worked on all the same, as they take more from
// that than fewer do; and those that take longer than a slot are worked on beyond it. The law is taken in
// by neither.
func TestLearned_FindsOutOfOrphans(t *testing.T) {
	t.Parallel()
	u := sim.Unknown{
		Resource: sim.Resource{
			Work:  sim.Bimodal{Cheap: 7_680 * time.Microsecond, Expensive: 366 * time.Millisecond, Share: 0.115},
			Cores: 35, Crosstalk: 1e-5, Timeout: 626 * time.Millisecond, Orphans: true,
		},
		Load: 1.2,
	}
	shares := shares(u, 35, 24)
	require.Greater(t, shares[len(shares)/2], 0.85) // by chance one in six is taken in all the same
	require.Greater(t, mean(shares), 0.75)
}

// Where what timed out is worked on, and slows down all else, even one at once may never be in time
// again once enough is inside. A pause ends that.
func TestLearned_RecoversFromACollapse(t *testing.T) {
	t.Parallel()
	for _, crosstalk := range []float64{0.02, 0.05} {
		for _, load := range []float64{0.8, 2} {
			u := sim.Unknown{
				Resource: sim.Resource{
					Work: sim.Exponential(40 * time.Millisecond), Cores: 1, Crosstalk: crosstalk,
					Timeout: 500 * time.Millisecond, Orphans: true,
				},
				Load: load,
			}
			require.Greater(t, meanShare(u, 1, long(48)), 0.9, "%v at %vx", u.Resource, load) // 0.08 to 0.83 without
		}
	}
}

// long returns so many runs, or half as many in the short form.
func long(runs int) int {
	if testing.Short() {
		return runs / 2
	}
	return runs
}

// shares returns what part of a fixed number's goodput the law has, in each of so many runs, the least first.
func shares(u sim.Unknown, fixed sim.Fixed, runs int) (shares []float64) {
	for u.Seed = range uint64(runs) {
		u.Limiter = fixed
		of := u.Run().Goodput
		u.Limiter = judge.NewLearned()
		shares = append(shares, u.Run().Goodput/of)
	}
	slices.Sort(shares)
	return shares
}

func mean(x []float64) (mean float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	return mean
}

func meanShare(u sim.Unknown, fixed sim.Fixed, runs int) float64 { return mean(shares(u, fixed, runs)) }

// Once its start has ended, the number is known soon: what drains after the start tells nothing of how many ran.
func TestLearned_SoonAfterAStart(t *testing.T) {
	t.Parallel()
	const (
		takes = 50 * time.Millisecond
		runs  = 40
	)
	for _, work := range []sim.Distribution{sim.Constant(takes), sim.LogNormal{Average: takes, CV: 0.2}} {
		for _, load := range []float64{2, 5} {
			good := func(times time.Duration) (sum float64) { // so many service times' worth
				for seed := range uint64(runs) {
					u := sim.Unknown{
						Resource: sim.Resource{Work: work, Hands: 8}, Limiter: judge.NewLearned(), Seed: seed, Objective: 5 * takes,
						Phases: []sim.Phase{{For: times * takes, Wide: 1, Load: load}},
					}
					done := u.Run()
					sum += done.Goodput / done.Rate * float64(times) / runs
				}
				return sum
			}
			require.Greater(t, (good(120)-good(60))/60, 0.98, "%v at %vx", work, load) // 0.965 to 0.97 otherwise
		}
	}
}

// From the first request on, where requests take long: what comes before the limit has grown
// waits, though all of it could run. Of what comes later all is good.
func TestLearned_StartsSoon(t *testing.T) {
	t.Parallel()
	for _, work := range []sim.Distribution{sim.Constant(2 * time.Second), sim.Exponential(2 * time.Second)} {
		for _, load := range []float64{0.4, 0.9} {
			for seed := range uint64(8) {
				u := sim.Unknown{
					Resource: sim.Resource{Work: work, Hands: 24}, Load: load, Seed: 1 + seed, Warmup: 1, Length: 24 * 40, Objective: 10 * time.Second,
				}
				good := func(limiter sim.Limiter) (n float64) { // in the last twenty of forty service times
					u.Limiter = limiter
					u.Watch = func(e sim.Ended, latency time.Duration) {
						if e.Now >= 41e9 && latency < 10*time.Second {
							n++
						}
					}
					u.Run()
					return n
				}
				require.Greater(t, good(judge.NewLearned()), 0.9*good(sim.Fixed(24)), "%v at %vx, seed %d", work, load, u.Seed)
			}
		}
	}
}

// When the limit rises many begin at once, and those of them that are short end first. They do
// not make blocks so short that the limit rises on before the others end.
func TestLearned_ShortOnesEndFirst(t *testing.T) {
	t.Parallel()
	u := sim.Unknown{
		// 334 cores, and seven of ten requests need none of them. There are half as many later.
		Resource: sim.RandomResource(5438), Load: 2, Limiter: sim.Fixed(379), Seed: 5438,
	}
	fixed := u.Run()
	law := judge.NewLearned()
	u.Limiter = law
	learned := u.Run()
	require.GreaterOrEqual(t, learned.Goodput, 0.9*fixed.Goodput, "mean limit %.1f; now %d: %s", learned.Limit, law.Limit(), law.Why())
	require.Greater(t, meanShare(u, 379, long(8)), 0.8)
}

// Where requests wait inside, all take long behind one that is. That is not taken for a kind of
// requests, and many of them tell no more than the work that was done. If they did, six ran at
// once where one is best, and a quarter less was good.
func TestLearned_WaitingInside(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{5868, 5981, 6152} {
		u := sim.Unknown{Resource: sim.RandomResource(seed), Load: 2}
		var share float64
		const runs = 4
		for u.Seed = range uint64(runs) {
			u.Limiter = sim.Fixed(1)
			fixed := u.Run()
			u.Limiter = judge.NewLearned()
			share += u.Run().Goodput / fixed.Goodput / runs
		}
		require.GreaterOrEqual(t, share, 0.85, "%v", u.Resource)
	}
}

// What is dropped whatever the limit, as by a replica that is dead behind a balancer, does not
// pull the limit down: neither if it takes as long as other requests, nor if it fails at once.
// The mean of some runs tells, as the limit grows late in one or the other.
func TestLearned_DropsThatAreNotForTheLimit(t *testing.T) {
	t.Parallel()
	const mean = 4 * time.Millisecond
	runs := long(24)
	shares := []float64{0.2, 0.45, 0.6, 0.8}
	if testing.Short() {
		shares = []float64{0.2, 0.8}
	}
	for _, work := range []sim.Distribution{sim.Constant(mean), sim.Exponential(mean)} {
		for _, r := range []sim.Resource{{Work: work, Hands: 64}, {Work: work, Cores: 8}, {Work: work, Crosstalk: 1. / 400}} {
			for _, share := range shares {
				var good, goodSoon float64
				for seed := range uint64(runs) {
					random := rand.New(rand.NewPCG(seed, 3))
					late := flaky{judge.NewLearned(), func(sim.Ended) bool { return random.Float64() < share }}
					u := sim.Unknown{Resource: r, Load: 2, Seed: seed, Limiter: late, Length: 60_000}
					done := u.Run()
					good += done.Goodput / done.Rate / float64(runs)

					// Requests that need nothing of the resource stand for those that fail at once.
					soon := flaky{judge.NewLearned(), func(e sim.Ended) bool { return e.Now-e.Began == int64(mean/20) }}
					u.Resource.Aside, u.Limiter = share, soon
					done = u.Run()
					goodSoon += done.Goodput / done.Rate / float64(runs)
				}
				require.GreaterOrEqual(t, good, 0.75, "%v, %v dropped", r, share)
				require.GreaterOrEqual(t, goodSoon, 0.75, "%v, %v fail at once", r, share)
			}
		}
	}
}

// A resource that was never full is overloaded: the limit is near what ran before.
func TestLearned_OverloadAfterACalmTime(t *testing.T) {
	t.Parallel()
	const step = 2 * time.Second
	for _, w := range []sim.Distribution{sim.Constant(40 * time.Millisecond), sim.Exponential(40 * time.Millisecond)} {
		for _, r := range []sim.Resource{{Work: w, Hands: 50}, {Work: w, Cores: 50}, {Work: w, Hands: 500}} {
			law := judge.NewLearned()
			u := sim.Unknown{Resource: r, Seed: 1, Limiter: law}
			for load := 0.1; load < 0.8; load += 0.05 {
				u.Phases = append(u.Phases, sim.Phase{For: step, Wide: 1, Load: load})
			}
			begin := time.Second + time.Duration(len(u.Phases))*step
			u.Phases = append(u.Phases, sim.Phase{For: step, Wide: 1, Load: 2})
			done, before := 0, 0
			u.Watch = func(e sim.Ended, took time.Duration) {
				switch {
				case time.Duration(e.Now) < begin:
					before = law.Limit()
				case took < r.Objective():
					done++
				}
			}
			rate := u.Run().Rate
			require.GreaterOrEqual(t, float64(done), 0.8*rate*step.Seconds(), "%v, from %d; now %d: %s", r, before, law.Limit(), law.Why())
		}
	}
}
