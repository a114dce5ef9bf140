package main

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
	"github.com/spillway-go/spillway/strategies"
)

// figure is what a simulation came to: the share of requests with a 200, the mean latency of all answers, and
// that of the client with the longest, in seconds.
type figure struct{ success, mean, client float64 }

// published is a simulation of palantir/dialogue (simulation/…/SimulationTest.java) with several servers, and the
// figures of its report.md: of its concurrency limiters with round robin, of these with one node until an error,
// and of round robin without limiters. Requests come evenly, wait as long as it takes, and are of clients and
// endpoints at random. There each client has a balancer of its own, and sends again what was answered with 429,
// 503 or, if it was a GET, 500. Here one queue is before the servers, and nothing is sent again.
//
// Of its simulations with several servers one is left out, in which servers limit the mean rate of a minute.
type published struct {
	name       string
	rate       float64       // requests a second
	send, stop time.Duration // until then
	clients    int
	endpoints  int
	servers    []sim.Replica
	theirs     [3]figure
}

// phase is how a server answers requests that come until a time, or to the end.
type phase struct {
	until  time.Duration
	took   time.Duration
	linear int // if not 0, it takes twice as long with so many inside, and 5 times with more
	code   int // 200 by default
	breaks int // the endpoint, from 1 on, that has the code; all by default
	full   int // if not 0, it answers with the code only with more than so many inside
}

// server is one with phases.
func server(phases ...phase) sim.Replica {
	at := func(began time.Duration) phase {
		for _, p := range phases {
			if began < p.until {
				return p
			}
		}
		return phases[len(phases)-1]
	}
	return sim.Replica{
		Took: func(began time.Duration, inside int, _ time.Duration) time.Duration {
			switch p := at(began); {
			case p.linear == 0:
				return p.took
			case inside > p.linear:
				return 5 * p.took
			default:
				return p.took + p.took*time.Duration(inside)/time.Duration(p.linear)
			}
		},
		Code: func(began time.Duration, inside, route int) int {
			p := at(began)
			if p.breaks != 0 && p.breaks != route+1 || inside <= p.full {
				return http.StatusOK
			}
			return cmp.Or(p.code, http.StatusOK)
		},
	}
}

// later returns a server that is added then.
func later(from time.Duration, r sim.Replica) sim.Replica {
	r.From = from
	return r
}

const (
	ms = time.Millisecond
	s  = time.Second
)

var allPublished = []published{
	{"simplest_possible_case", 11, 20 * time.Minute, time.Hour, 10, 1, []sim.Replica{
		server(phase{took: 600 * ms}), server(phase{took: 800 * ms}), server(phase{took: 1000 * ms}),
	}, [3]figure{{1, 0.786, 0.795}, {1, 0.834, 0.978}, {1, 0.786, 0.795}}},
	{"slowdown_and_error_thresholds", 500, 20 * s, 10 * time.Minute, 10, 1, []sim.Replica{
		server(phase{took: 600 * ms, linear: 30, code: 500, full: 40}),
		server(phase{took: 800 * ms, linear: 30, code: 500, full: 40}),
		server(phase{took: 1000 * ms, linear: 30, code: 500, full: 40}),
	}, [3]figure{{1, 178.7, 266.5}, {1, 155.9, 201.2}, {0.036, 21.55, 21.85}}},
	{"slow_503s_then_revert", 200, 15 * s, 10 * time.Minute, 10, 1, []sim.Replica{
		server(phase{took: 60 * ms, linear: 60}),
		server(phase{until: 3 * s, took: 60 * ms, linear: 60}, phase{until: 10 * s, took: s, linear: 60, code: 503}, phase{took: 60 * ms, linear: 60}),
	}, [3]figure{{1, 0.089, 0.094}, {1, 0.135, 0.264}, {1, 0.089, 0.094}}},
	{"fast_503s_then_revert", 500, 90 * s, 10 * time.Minute, 10, 1, []sim.Replica{
		server(phase{took: 120 * ms}),
		server(phase{until: 3 * s, took: 120 * ms}, phase{until: time.Minute, took: 10, code: 503}, phase{took: 120 * ms}),
	}, [3]figure{{1, 0.120, 0.120}, {1, 0.120, 0.120}, {1, 0.120, 0.120}}},
	{"fast_400s_then_revert", 100, time.Minute, 10 * time.Minute, 10, 1, []sim.Replica{
		server(phase{took: 120 * ms}),
		server(phase{until: 3 * s, took: 120 * ms}, phase{until: 30 * s, took: 20 * ms, code: 400}, phase{took: 120 * ms}),
	}, [3]figure{{0.936, 0.114, 0.114}, {0.822, 0.102, 0.120}, {0.936, 0.114, 0.114}}},
	{"short_outage_on_one_node", 20, 80 * s, 3 * time.Minute, 1, 1, []sim.Replica{
		server(phase{took: 2 * s}),
		server(phase{until: 30 * s, took: 2 * s}, phase{until: 50 * s, took: 10, code: 500}, phase{took: 2 * s}),
	}, [3]figure{{0.994, 4.351, 4.351}, {0.998, 18.25, 18.25}, {0.996, 1.992, 1.992}}},
	{"drastic_slowdown", 200, 20 * s, 10 * time.Minute, 10, 1, []sim.Replica{
		server(phase{took: 60 * ms, linear: 60}),
		server(phase{until: 3 * s, took: 60 * ms, linear: 60}, phase{until: 10 * s, took: 10 * s, linear: 60}, phase{took: 60 * ms, linear: 60}),
	}, [3]figure{{1, 0.252, 0.294}, {1, 3.121, 8.122}, {1, 0.252, 0.294}}},
	{"all_nodes_500", 100, 20 * s, 10 * time.Minute, 10, 1, []sim.Replica{
		server(phase{until: 10 * s, took: 600 * ms, code: 500}, phase{took: 600 * ms}),
		server(phase{until: 10 * s, took: 600 * ms, code: 500}, phase{took: 600 * ms}),
	}, [3]figure{{0.741, 3.347, 4.082}, {0.739, 4.246, 5.127}, {0.5, 0.6, 0.6}}},
	{"black_hole", 200, 10 * s, 30 * s, 10, 1, []sim.Replica{
		server(phase{took: 600 * ms}),
		server(phase{until: 3 * s, took: 600 * ms}, phase{took: 24 * time.Hour}),
	}, [3]figure{{0.915, 0.600, 0.600}, {0.592, 0.601, 0.603}, {0.914, 0.6, 0.6}}},
	{"one_endpoint_dies_on_each_server", 250, 10 * s, 10 * time.Minute, 10, 2, []sim.Replica{
		server(phase{until: 3 * s, took: 600 * ms}, phase{took: 600 * ms, code: 500, breaks: 1}),
		server(phase{until: 3 * s, took: 600 * ms}, phase{took: 600 * ms, code: 500, breaks: 2}),
	}, [3]figure{{0.662, 2.028, 2.686}, {0.660, 2.095, 3.099}, {0.651, 0.6, 0.6}}},
	{"live_reloading", 250, 10 * s, 10 * time.Minute, 10, 1, []sim.Replica{
		server(phase{took: 600 * ms, linear: 60}),
		server(phase{took: 600 * ms, linear: 60, code: 500}),
		later(5*s, server(phase{took: 600 * ms, linear: 60})),
	}, [3]figure{{0.929, 5.351, 6.020}, {0.943, 7.192, 8.096}, {0.869, 2.802, 2.868}}},
	{"one_big_spike", 30_000, s / 30, 10 * s, 1, 1, []sim.Replica{
		server(phase{took: 150 * ms, code: 429, full: 100}), server(phase{took: 150 * ms, code: 429, full: 100}),
	}, [3]figure{{1, 1.580, 1.580}, {1, 2.668, 2.668}, {0.999, 1.221, 1.221}}},
}

// run does it with one queue.
func (p published) run(seed uint64) figure {
	out := sim.Replicas{
		Of: p.servers, Work: sim.Constant(1), Strategy: "auto", Capacity: 100_000, Objective: strategies.NoObjective,
		Limiter: func(int) sim.Limiter { return judge.NewLearned() },
		Rate:    p.rate, Regular: true, Clients: p.clients, Routes: p.endpoints, Length: p.send, After: p.stop - p.send, Seed: seed,
	}.Run()
	return figure{float64(out.Succeeded) / float64(out.Offered), out.Mean.Seconds(), out.Client.Seconds()}
}

func printPublished(from, to uint64) {
	fmt.Printf("success, mean and longest mean of a client in seconds\n%-34s%-25s%-25s%-25s%s\n",
		"", "one queue", "limiters, round robin", "limiters, pin until error", "round robin")
	for _, p := range allPublished {
		var success, mean, client []float64
		for seed := from; seed <= to; seed++ {
			f := p.run(seed)
			success, mean, client = append(success, f.success), append(mean, f.mean), append(client, f.client)
		}
		fmt.Printf("%-34s", p.name)
		for _, f := range append([]figure{{middle(success), middle(mean), middle(client)}}, p.theirs[:]...) {
			fmt.Printf("%5.1f%% %7.3f %8.3f  ", 100*f.success, f.mean, f.client)
		}
		fmt.Println()
	}
}
