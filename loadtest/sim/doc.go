// Package sim is a discrete-event simulator that drives the queue disciplines of
// package strategies, the very code of the service, in virtual time: minutes of
// load take a moment, and the same seed on the same architecture gives the same bits.
//
//	err := sim.Run(ctx, sim.Config{
//		Strategy: "fifo", Workers: 8, Capacity: 256, Parallel: 8,
//		Requests: requests, Service: sim.Exponential(4 * time.Millisecond),
//		Duration: time.Minute, Seed: 1, Observe: func(r sim.Record) { … },
//	})
//
// # What is modelled
//
// The dispatcher: a task goes straight to an idle worker if nothing waits; else
// its discipline queues it, turns it away, displaces another, or lets the
// submitter run it. A worker that is free pops until it finds a task to run; what
// the discipline gives up and what has expired is shed on the way. Waiting tasks
// are given up at their deadline, or when their client goes, if the discipline
// can. Learned limits get the completions just as from the dispatcher.
//
// The store behind the workers: how long it takes for a request, and how many it
// does at once. What a strategy does not hold back waits there, first come first
// served: the connections of sync and caller-runs, and workers beyond its servers.
//
// Clients: when they give up with or without announcing a deadline, whether they try
// again, how important they are; a limited number of connections, and closed
// loops; and a fleet of services behind a load balancer. When requests arrive, of
// which class and from whom, is given.
//
// The load goes on past the measured window until every request of the window has
// ended, as that of loadtest run does. So the last requests meet the same load as
// all others, and percentiles do not depend on how long the window is.
//
// # What is not
//
// Time passes in service and while clients wait, nowhere else: parsing, queues,
// hand-over and the network take none. Work is waiting, not computing: a worker
// is never slowed by others. A load past the CPUs is modelled by as many workers,
// and servers of the store, as the work has CPUs. Writes are not taken together into
// one commit, reads do not wait for one, ranges are one piece, pools are not split,
// and nothing drains or is switched. A client's going is noticed at once, as over
// plain TCP.
//
// # Randomness
//
// A simulation draws from generators of its own, one for each quantity, all
// from Config.Seed. So another strategy meets the same requests, with the same
// work. A discipline that draws random numbers itself, or is concurrent by nature,
// is as deterministic as its code is when called by one goroutine: mpmc is,
// sharded, which draws, is not.
package sim
