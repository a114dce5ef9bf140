package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/strategies"
)

// The verdict is right in every state that a service can be in.
func TestJudge(t *testing.T) {
	t.Parallel()
	// Eight workers that do 2,000 a second, of which 3,000 come.
	overload := situation{
		Strategy: "fifo", Workers: 8, Busy: 8, Depth: 256, Capacity: 256, Arrivals: 2920, Ran: 2000,
		Late: 2000, Shed: 920, Reasons: map[string]float64{"full": 920}, SLO: 0.1, Wait: 0.128, Latency: 0.132,
	}
	calm := situation{Strategy: "fifo", Workers: 8, Busy: 2, Capacity: 256, Arrivals: 500, Ran: 500, Good: 500, SLO: 0.1, Latency: 0.004}
	with := func(s situation, change func(*situation)) situation { change(&s); return s }
	refusing := with(overload, func(s *situation) {
		s.Strategy, s.Good, s.Late, s.Reasons = recommended, 2000, 0, map[string]float64{"late": 920}
	})
	for name, tt := range map[string]struct {
		situation situation
		want      verdict
	}{
		"nothing": {
			situation{Strategy: "fifo", Workers: 8, Capacity: 256, SLO: 0.1},
			verdict{levelOff, "Nothing arrives.", "", ""},
		},
		"calm": {calm, verdict{levelGood, "Everybody is served in time.", "", ""}},
		"an overload that has just ended": {
			with(refusing, func(s *situation) { s.Busy, s.Depth, s.Fallen = 0, 0, true }),
			verdict{levelOff, "The load has just ended, or fallen: it is too early to judge.", "", ""},
		},
		"all was well until the load ended": {with(calm, func(s *situation) { s.Busy, s.Fallen = 0, true }), verdict{levelGood, "Everybody is served in time.", "", ""}},
		"a learned number grows in an overload": {
			with(refusing, func(s *situation) { s.Learned, s.Workers, s.Busy, s.Depth = true, 8, 7, 38 }),
			verdict{levelLate, "46% more arrives than 8 workers can do. auto turns 32% away and serves the others in time.", "It is right to: those would have been late. To serve all takes more machines: how many may run at once is learned.", ""},
		},
		"a condition that does not hold is no error": {
			with(calm, func(s *situation) { s.Good, s.Unmet = 375, 125 }),
			verdict{levelGood, "Everybody is served in time.", "25% of the answers are 412: the condition of the request (If-Match, If-None-Match) did not hold.", ""},
		},
		"a first in first out queue that is full makes everybody late": {
			overload,
			verdict{levelBad, "46% more arrives than 8 workers can do; fifo makes everybody late: they wait 128 ms (median). The objective is 100 ms.", "Switch to auto; or let fewer wait: SPILLWAY_QUEUE_CAPACITY of about 190, which is what is done within the objective.", "auto"},
		},
		"some are late": {
			with(overload, func(s *situation) { s.Strategy, s.Good, s.Late, s.Wait = "hybrid", 1000, 1000, 0.01 }),
			verdict{levelBad, "46% more arrives than 8 workers can do; of what hybrid serves, 50% is late.", "Switch to auto.", "auto"},
		},
		"what holds is left alone, whatever it is called": {
			with(overload, func(s *situation) { s.Strategy, s.Good, s.Late = "<b>lifo</b>", 2000, 0 }),
			verdict{levelLate, "46% more arrives than 8 workers can do. <b>lifo</b> turns 32% away and serves the others in time.", "It holds. To serve all takes more workers, if the store can do more at once, or more machines.", ""},
		},
		"the recommended one makes people late": {
			with(overload, func(s *situation) { s.Strategy = recommended }),
			verdict{levelBad, "46% more arrives than 8 workers can do; auto makes everybody late: they wait 128 ms (median). The objective is 100 ms.", "If this stays, raise the objective (SPILLWAY_SLO), or make the store faster.", ""},
		},
		"no bound": {
			with(overload, func(s *situation) {
				s.Strategy, s.Capacity, s.Shed, s.Reasons, s.Depth, s.Growth = "unbounded", strategies.Unbounded, 0, nil, 5000, 920
			}),
			verdict{levelBad, "46% more arrives than 8 workers can do. unbounded lets them pile up: 5000 wait, 920 more every second.", "Switch to auto.", "auto"},
		},
		"no queue": {
			situation{Strategy: "sync", Arrivals: 2000, Ran: 2000, Good: 200, Late: 1800, SLO: 0.1, Latency: 0.5},
			verdict{levelBad, "sync has no queue, so all that arrives is in the store at once. 90% of the answers are late.", "Switch to auto.", "auto"},
		},
		"no queue, and no need of one": {
			situation{Strategy: "sync", Arrivals: 2000, Ran: 2000, Good: 2000, SLO: 0.1, Latency: 0.01},
			verdict{levelGood, "Everybody is served in time.", "", ""},
		},
		"the work alone takes too long": {
			with(overload, func(s *situation) { s.Wait, s.Latency = 0.1, 0.4 }),
			verdict{levelBad, "46% more arrives than 8 workers can do, and the work itself takes 300 ms, longer than the objective of 100 ms.", "No strategy helps: then one request for each worker waits. Raise the objective above that (SPILLWAY_SLO of 600 ms), or make the store faster.", ""},
		},
		"one worker": {
			with(overload, func(s *situation) { s.Workers, s.Busy, s.Good, s.Late = 1, 1, 2000, 0 }),
			verdict{levelLate, "46% more arrives than 1 worker can do. fifo turns 32% away and serves the others in time.", "It holds. To serve all takes more workers, if the store can do more at once, or more machines.", ""},
		},
		"a learned number": {
			with(overload, func(s *situation) { s.Learned, s.Good, s.Late = true, 2000, 0 }),
			verdict{levelLate, "46% more arrives than 8 workers can do. fifo turns 32% away and serves the others in time.", "It holds. To serve all takes more machines: how many may run at once is learned.", ""},
		},
		"far more": {
			with(overload, func(s *situation) { s.Arrivals, s.Shed = 5000, 3000 }),
			verdict{levelBad, "2.5 times as much arrives as 8 workers can do; fifo makes everybody late: they wait 128 ms (median). The objective is 100 ms.", "Switch to auto; or let fewer wait: SPILLWAY_QUEUE_CAPACITY of about 190, which is what is done within the objective.", "auto"},
		},
		"all stand still": {
			with(overload, func(s *situation) { s.Ran, s.Late, s.Shed, s.Wait, s.Latency = 0, 0, 2920, 0, 0 }),
			verdict{levelBad, "Nothing gets done: all 8 workers are busy, and none has finished anything of late.", "The store does not answer. See it below, and the log.", ""},
		},
		"most of what runs hangs": {
			with(overload, func(s *situation) { s.Learned, s.Busy, s.Stuck = true, 8, 5 }),
			verdict{levelBad, "5 of the 8 requests that are worked on do not end.", "The store does not answer. See it below, and the log.", ""},
		},
		"a pause": {
			with(overload, func(s *situation) { s.Learned, s.Paused, s.Ran, s.Late, s.Failed = true, true, 1, 0, 1 }),
			verdict{levelBad, "Nothing is begun but one request now and then: the latest all timed out.", "The store does not answer. See it below, and the log.", ""},
		},
		"all hangs, and few come": {
			with(calm, func(s *situation) {
				s.Learned, s.Busy, s.Stuck, s.Depth, s.Arrivals, s.Ran, s.Good = true, 12, 8, 1, 1, 1, 0
			}),
			verdict{levelBad, "8 of the 12 requests that are worked on do not end.", "The store does not answer. See it below, and the log.", ""},
		},
		"some hang beside others that do not": {
			with(calm, func(s *situation) { s.Learned, s.Busy, s.Stuck, s.Depth = true, 8, 5, 1 }),
			verdict{levelGood, "All 8 workers are busy, and everybody is served in time: requests wait no time (median).", "", ""},
		},
		"busy, and in time": {
			with(calm, func(s *situation) { s.Busy, s.Depth, s.Wait = 8, 5, 0.0021 }),
			verdict{levelGood, "All 8 workers are busy, and everybody is served in time: requests wait 2.1 ms (median).", "", ""},
		},
		"a slow store": {
			with(calm, func(s *situation) { s.Good, s.Late, s.Latency = 400, 100, 0.15 }),
			verdict{levelLate, "20% of the answers are late: the work itself takes 150 ms (median), longer than the objective of 100 ms.", "No strategy helps: then one request for each worker waits. Raise the objective above that (SPILLWAY_SLO of 300 ms), or make the store faster.", ""},
		},
		"a store that is slow at times": {
			with(calm, func(s *situation) { s.Good, s.Late, s.Latency = 400, 100, 0.05 }),
			verdict{levelLate, "20% of the answers are late, and the queue is not the cause: the work itself takes 50 ms (median). The objective is 100 ms.", "See the store below. No other strategy makes the work faster.", ""},
		},
		"what the connections run waits in the store": {
			with(overload, func(s *situation) {
				s.Strategy, s.Arrivals, s.Shed, s.Reasons, s.Wait, s.Latency = "caller-runs", 2000, 0, nil, 0.05, 0.25
			}),
			verdict{levelBad, "100% of the answers are late: the store has more to do at once than it can, and takes 200 ms (median). The objective is 100 ms.", "Switch to auto.", "auto"},
		},
		"a queue that nothing is turned away from": {
			with(calm, func(s *situation) { s.Busy, s.Depth, s.Good, s.Late, s.Wait, s.Latency = 8, 100, 300, 200, 0.09, 0.095 }),
			verdict{levelLate, "40% of the answers are late: requests wait 90 ms (median). The objective is 100 ms.", "More workers help if the store can do more at once; or switch to auto; or let fewer wait: SPILLWAY_QUEUE_CAPACITY of about 47, which is what is done within the objective.", "auto"},
		},
		"only observed": {
			with(calm, func(s *situation) { s.Observe, s.WouldShed = true, 100 }),
			verdict{levelGood, "Everybody is served in time.", "Observe mode turns nothing away; the mode enforce would turn away up to 20%.", ""},
		},
		"observed, and late": {
			with(calm, func(s *situation) {
				s.Strategy, s.Observe, s.WouldShed, s.Busy, s.Depth, s.Good, s.Late, s.Wait, s.Latency = recommended, true, 250, 8, 100, 300, 200, 0.09, 0.095
			}),
			verdict{levelLate, "40% of the answers are late: requests wait 90 ms (median). The objective is 100 ms.", "More workers help if the store can do more at once. Observe mode turns nothing away; the mode enforce would turn away up to 50%.", ""},
		},
		"bursts": {
			with(calm, func(s *situation) { s.Arrivals, s.Shed, s.Reasons = 550, 50, map[string]float64{"full": 50} }),
			verdict{levelLate, "Bursts fill the queue: 9% are turned away, though the workers can do the average rate.", "A larger SPILLWAY_QUEUE_CAPACITY takes longer bursts; or switch to auto.", "auto"},
		},
		"impatient clients": {
			with(calm, func(s *situation) {
				s.Arrivals, s.Shed, s.Reasons = 550, 50, map[string]float64{"expired": 30, "abandoned": 20}
			}),
			verdict{levelLate, "9% are given up before their turn: their deadlines pass, or their clients hang up.", "The workers are not the limit. The clients' deadlines may be too short.", ""},
		},
		"few connections that wait for longer than the objective": {
			with(calm, func(s *situation) {
				s.Strategy, s.Observe, s.WouldShed, s.Busy = "auto", true, 50, 8
				s.Arrivals, s.Shed, s.Reasons, s.Left, s.Patience = 550, 50, map[string]float64{"abandoned": 50}, 50, 10
			}),
			verdict{levelBad, "More wait than 8 workers can answer within the objective of 100 ms: 9% leave before their turn, after 10 s (median).", "More workers help if the store can do more at once. Observe mode turns nothing away; the mode enforce would turn away up to 9%.", ""},
		},
		// Too few workers, though the store can do more.
		"more workers would help": {
			with(overload, func(s *situation) { s.Usual = 0.004 }),
			verdict{
				levelBad, "46% more arrives than 8 workers can do; fifo makes everybody late: they wait 128 ms (median). The objective is 100 ms.",
				"Raise SPILLWAY_WORKERS, as the store takes no longer now than when it is idle; or switch to auto; or let fewer wait: SPILLWAY_QUEUE_CAPACITY of about 190, which is what is done within the objective.", "auto",
			},
		},
		"more workers would help to serve all": {
			with(overload, func(s *situation) {
				s.Strategy, s.Good, s.Late, s.Usual, s.Wait, s.Latency = "lifo", 2000, 0, 0.004, 0.001, 0.005
			}),
			verdict{levelLate, "46% more arrives than 8 workers can do. lifo turns 32% away and serves the others in time.", "It holds. To serve all, raise SPILLWAY_WORKERS, as the store takes no longer now than when it is idle.", ""},
		},
		"a store that takes longer the more it has to do": {
			with(calm, func(s *situation) {
				s.Strategy, s.Busy, s.Good, s.Late, s.Wait, s.Latency, s.Usual = recommended, 8, 300, 200, 0.09, 0.12, 0.01
			}),
			verdict{levelLate, "40% of the answers are late: requests wait 90 ms (median). The objective is 100 ms.", "More workers do not help: the store takes 30 ms, and 10 ms when it is idle.", ""},
		},
		"a store that may be as fast as ever, as far as that is known": {
			with(calm, func(s *situation) {
				s.Strategy, s.Busy, s.Good, s.Late, s.Wait, s.Latency, s.Usual = recommended, 8, 300, 200, 0.09, 0.109, 0.01
			}),
			verdict{levelLate, "40% of the answers are late: requests wait 90 ms (median). The objective is 100 ms.", "More workers help if the store can do more at once.", ""},
		},
		"no CPU is left": {
			with(overload, func(s *situation) { s.Strategy, s.Good, s.Late, s.Usual, s.CPU = "lifo", 2000, 0, 0.004, 0.95 }),
			verdict{levelLate, "46% more arrives than 8 workers can do. lifo turns 32% away and serves the others in time.", "It holds. To serve all takes more CPUs, or more machines.", ""},
		},

		// A capacity is named only where it is what helps.
		"two queues": {
			with(overload, func(s *situation) { s.Split = true }),
			verdict{levelBad, "46% more arrives than 8 workers can do; fifo makes everybody late: they wait 128 ms (median). The objective is 100 ms.", "Switch to auto.", "auto"},
		},
		"a queue that is short enough": {
			with(overload, func(s *situation) { s.Capacity = 200 }),
			verdict{levelBad, "46% more arrives than 8 workers can do; fifo makes everybody late: they wait 128 ms (median). The objective is 100 ms.", "Switch to auto.", "auto"},
		},

		// Clients that leave before the objective.
		"clients that leave while they wait": {
			with(overload, func(s *situation) {
				s.Strategy, s.SLO, s.Good, s.Late, s.Failed, s.Cut, s.Left, s.Patience = recommended, 0.2, 2000, 0, 300, 300, 800, 0.15
				s.Reasons = map[string]float64{"abandoned": 500, "late": 420}
			}),
			verdict{levelBad, "25% of the clients leave after 150 ms (median), before the objective of 200 ms.", "What is done for them is in vain. Set the objective below their patience: SPILLWAY_SLO of about 120 ms.", ""},
		},
		"they leave a queue in order": {
			with(overload, func(s *situation) {
				s.SLO, s.Good, s.Late, s.Failed, s.Cut, s.Left, s.Patience = 0.2, 2000, 0, 300, 300, 800, 0.15
			}),
			verdict{levelBad, "25% of the clients leave after 150 ms (median), before the objective of 200 ms.", "What is done for them is in vain. Set the objective below their patience: SPILLWAY_SLO of about 120 ms, and switch to auto.", "auto"},
		},
		"they leave, and no objective holds": {
			with(overload, func(s *situation) {
				s.Strategy, s.SLO, s.Good, s.Late, s.Failed, s.Cut, s.Left, s.Patience = recommended, 0, 2000, 0, 300, 300, 800, 0.15
			}),
			verdict{levelBad, "25% of the clients leave before they have their answer, after 150 ms (median).", "What is done for them is in vain. Set the objective below their patience: SPILLWAY_SLO of about 120 ms.", ""},
		},
		"they wait less long than the work takes": {
			with(calm, func(s *situation) {
				s.SLO, s.Good, s.Failed, s.Cut, s.Left, s.Patience, s.Latency = 1, 400, 100, 100, 100, 0.2, 0.3
			}),
			verdict{levelBad, "20% of the clients leave after 200 ms (median), before the objective of 1.0 s.", "The work itself takes longer than they wait: 300 ms (median). Make the store faster.", ""},
		},
		"they wait less long than the work takes among too much of it": {
			with(calm, func(s *situation) {
				s.Usual, s.SLO, s.Good, s.Failed, s.Cut, s.Left, s.Patience, s.Latency = 0.05, 1, 400, 100, 100, 100, 0.2, 0.3
			}),
			verdict{levelBad, "20% of the clients leave after 200 ms (median), before the objective of 1.0 s.", "What is done for them is in vain. Set the objective below their patience: SPILLWAY_SLO of about 160 ms, and switch to auto.", "auto"},
		},
		"they wait less long than the work takes alone": {
			with(calm, func(s *situation) {
				s.Usual, s.SLO, s.Good, s.Failed, s.Cut, s.Left, s.Patience, s.Latency = 0.25, 1, 400, 100, 100, 100, 0.2, 0.3
			}),
			verdict{levelBad, "20% of the clients leave after 200 ms (median), before the objective of 1.0 s.", "The work itself takes longer than they wait: 250 ms when nothing waits (usually). Make the store faster.", ""},
		},
		"the work took longer than they wait once": {
			with(overload, func(s *situation) {
				s.Strategy, s.Usual, s.SLO, s.Good, s.Late, s.Failed, s.Cut, s.Left, s.Patience = recommended, 0.3, 0.2, 2000, 0, 300, 300, 800, 0.15
			}),
			verdict{levelBad, "25% of the clients leave after 150 ms (median), before the objective of 200 ms.", "What is done for them is in vain. Set the objective below their patience: SPILLWAY_SLO of about 120 ms.", ""},
		},
		"none stays to see what the work takes": {
			with(calm, func(s *situation) {
				s.Usual, s.SLO, s.Good, s.Failed, s.Cut, s.Left, s.Patience, s.Wait, s.Latency = 0.3, 1, 0, 500, 500, 500, 0.2, 0.01, 0
			}),
			verdict{levelBad, "100% of the clients leave after 200 ms (median), before the objective of 1.0 s.", "The work itself takes longer than they wait: 300 ms when nothing waits (usually). Make the store faster.", ""},
		},
		"they leave, as they are late": {
			with(overload, func(s *situation) { s.Failed, s.Cut, s.Left, s.Patience = 300, 300, 300, 1 }),
			verdict{
				levelBad, "46% more arrives than 8 workers can do; fifo makes everybody late: they wait 128 ms (median). The objective is 100 ms.",
				"Switch to auto; or let fewer wait: SPILLWAY_QUEUE_CAPACITY of about 190, which is what is done within the objective.", "auto",
			},
		},
		"they leave for reasons of their own": {
			with(calm, func(s *situation) { s.Good, s.Failed, s.Cut, s.Left, s.Patience = 400, 100, 100, 100, 0.02 }),
			verdict{levelLate, "20% of the clients leave before they have their answer, after 20 ms (median).", "See the slowest requests, if they do not mean to.", ""},
		},

		// In an overload the refusals are right, unless those that were served to see say otherwise.
		"refused as late": {
			with(refusing, func(s *situation) { s.Wrong = 0.1 }),
			verdict{levelLate, "46% more arrives than 8 workers can do. auto turns 32% away and serves the others in time.", "It is right to: those would have been late. To serve all takes more workers, if the store can do more at once, or more machines.", ""},
		},
		"refused as late with a learned number": {
			with(refusing, func(s *situation) { s.Learned = true }),
			verdict{levelLate, "46% more arrives than 8 workers can do. auto turns 32% away and serves the others in time.", "It is right to: those would have been late. To serve all takes more machines: how many may run at once is learned.", ""},
		},
		"refused wrongly": {
			with(refusing, func(s *situation) { s.Wrong = 0.8 }),
			verdict{levelLate, "auto turns 32% away as late, and about 80% of these would have been in time.", "It takes the store for slower than it is. Raise the objective (SPILLWAY_SLO), or set the mode to observe for a while.", ""},
		},
		"bursts that would be late": {
			with(calm, func(s *situation) {
				s.Strategy, s.Arrivals, s.Shed, s.Reasons = recommended, 550, 50, map[string]float64{"late": 50}
			}),
			verdict{levelLate, "Bursts come: 9% are refused, as they would be late, though the workers can do the average rate.", "A longer objective (SPILLWAY_SLO) takes longer bursts.", ""},
		},
		"nobody is late": {
			with(overload, func(s *situation) {
				s.Strategy, s.SLO, s.Good, s.Late, s.Shed, s.Reasons, s.Depth, s.Growth = recommended, 0, 2000, 0, 0, nil, 3000, 920
			}),
			verdict{levelBad, "46% more arrives than 8 workers can do, and with no objective nobody is late: 3000 wait, 920 more every second.", "An objective (SPILLWAY_SLO) has those refused that would be later.", ""},
		},

		// The first seconds say nothing, but for what is plain.
		"just switched": {
			with(overload, func(s *situation) { s.Settling, s.Switched = true, true }),
			verdict{levelOff, "The strategy or the objective has just been changed: it is too early to judge.", "", ""},
		},
		"just started": {
			with(overload, func(s *situation) { s.Settling = true }),
			verdict{levelOff, "The service has just started: it is too early to judge.", "", ""},
		},
		"just started, and well": {with(calm, func(s *situation) { s.Settling = true }), verdict{levelGood, "Everybody is served in time.", "", ""}},
		"just started, and failing": {
			with(calm, func(s *situation) { s.Failed, s.Settling = 500, true }),
			verdict{levelBad, "50% of the answers are errors.", "The codes below say which: a 4xx is the client's fault, a 5xx the service's.", ""},
		},
		"errors": {
			with(calm, func(s *situation) { s.Failed = 500 }),
			verdict{levelBad, "50% of the answers are errors.", "The codes below say which: a 4xx is the client's fault, a 5xx the service's.", ""},
		},
		"no memory for bodies": {
			with(calm, func(s *situation) { s.Shed, s.Roomless = 50, 50 }),
			verdict{levelBad, "9% are turned away: the memory for their bodies is used up.", "Raise SPILLWAY_MAX_BODY_BYTES, or let fewer clients send large values at once.", ""},
		},
		"draining": {
			with(overload, func(s *situation) { s.NotReady = "draining" }),
			verdict{levelBad, "The service is not ready: draining.", "Load balancers send it nothing now.", ""},
		},
		"the store cannot write": {
			with(calm, func(s *situation) { s.NotReady, s.ReadOnly = "no space", "no space" }),
			verdict{levelBad, "Writes fail, since the store cannot write: no space.", "Reads go on. Writes go on by themselves once the cause is gone.", ""},
		},
	} {
		require.Equal(t, tt.want, judge(&tt.situation), name)
	}
}

// Every strategy is spoken of by its name under overload, and all but the
// recommended one are advised to give way to it where they make people late.
func TestJudge_EveryStrategy(t *testing.T) {
	t.Parallel()
	for _, name := range strategies.Names() {
		spec, err := strategies.Lookup(name)
		require.NoError(t, err)
		s := situation{Strategy: name, Workers: 8, Busy: 8, Depth: 256, Capacity: 256, Arrivals: 3000, Ran: 2000, Late: 2000, Shed: 1000, SLO: 0.1, Wait: 0.2, Latency: 0.2}
		if spec.Inline {
			s = situation{Strategy: name, Arrivals: 3000, Ran: 3000, Late: 3000, SLO: 0.1, Latency: 0.2}
		}
		v := judge(&s)
		require.Equal(t, levelBad, v.Level, name)
		require.Contains(t, v.Text, name)
		require.Equal(t, name != recommended, v.Switch == recommended, name)
	}
	_, err := strategies.Lookup(recommended)
	require.NoError(t, err)
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{
		0: "no time", -1: "no time", 0.0000011: "1.1 µs", 0.00095: "950 µs", 0.0021: "2.1 ms", 0.0042: "4.2 ms", 0.0999: "100 ms", 0.128: "128 ms", 1: "1.0 s", 12.3: "12 s", 125: "125 s",
	} {
		require.Equal(t, want, span(seconds))
	}
}

// A learned number that is only observed holds nobody back: more work than it says is no
// overload of so many workers.
func TestVerdict_LearnedAndObserved(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mode    string
		workers int
		depth   int
		lately  period
		want    verdict
	}{
		"enforced": {
			"enforce", 4, 200, period{arrivals: 1000, ran: 800, good: 800, latency: metrics.Distribution{-34: 1}},
			verdict{levelLate, "25% more arrives than 4 workers can do. auto turns less than 1% away and serves the others in time.",
				"It holds. To serve all takes more machines: how many may run at once is learned.", ""},
		},
		"in time": {
			"observe", 10_000, 0, period{arrivals: 1000, ran: 1000, good: 800, latency: metrics.Distribution{-34: 1}},
			verdict{levelGood, "Everybody is served in time.", "", ""},
		},
		"late": {
			"observe", 10_000, 0, period{arrivals: 1000, ran: 1000, good: 600, late: 200, wouldShed: 200, latency: metrics.Distribution{-15: 1}},
			verdict{levelLate, "25% of the answers are late: the work itself takes 261 ms (median), 250 at once now. The objective is 100 ms.", "Observe mode turns nothing away; the mode enforce would turn away up to 25%.", ""},
		},
		"idle":                       {"observe", 10_000, 0, period{}, verdict{levelOff, "Nothing arrives.", "", ""}},
		"a strategy without workers": {"observe", 0, 0, period{arrivals: 1000, ran: 1000, good: 800, latency: metrics.Distribution{-34: 1}}, verdict{levelGood, "Everybody is served in time.", "", ""}},
	} {
		f := frame{
			Strategy: "auto", Mode: tt.mode, Workers: tt.workers, Depth: tt.depth, Busy: 250, Learned: &learned{Min: 1, Max: 10_000}, Capacity: new(int),
			SLO: 0.1,
		}
		tt.lately.seconds = settling.Seconds()
		require.Equal(t, tt.want, judge(situationOf(&f, &tt.lately, &moment{}, 0, false)), name)
	}
}

// A proxy has no store to speak of.
func TestVerdict_OfAProxy(t *testing.T) {
	t.Parallel()
	for _, s := range []situation{
		{Strategy: "fifo", Workers: 8, Busy: 8, Depth: 256, Capacity: 256, Arrivals: 3000, Shed: 100},
		{Strategy: "fifo", Workers: 8, Busy: 8, Arrivals: 3000, Ran: 3000, Late: 3000, SLO: 0.1, Latency: 0.2},
		{Strategy: "auto", Workers: 8, Busy: 4, Arrivals: 3000, Ran: 3000, Late: 3000, SLO: 0.1, Latency: 0.2},
		{Strategy: "sync", Arrivals: 3000, Ran: 3000, Late: 3000, SLO: 0.1, Latency: 0.2},
	} {
		require.Contains(t, judge(&s).Text+judge(&s).Advice, "store")
		s.Proxy = true
		v := judge(&s)
		require.NotContains(t, v.Text+v.Advice, "store")
		require.NotContains(t, v.Advice, "below")
	}
}

// A load has fallen when a second brings far less than those before, and nothing waits.
func TestFallen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		last, lately float64 // arrivals a second
		depth        int
		want         bool
	}{
		{0, 600, 0, true}, {61, 600, 0, true}, {200, 600, 0, false}, {600, 600, 0, false},
		{0, 600, 9, false}, // nothing arrives, and some wait
		{0, 2, 0, false},   // chance
		{0, 0, 0, false},
	} {
		require.Equal(t, tt.want, fallen(&period{seconds: 1, arrivals: tt.last}, &period{seconds: 10, arrivals: 10 * tt.lately}, tt.depth), "%+v", tt)
	}
}
