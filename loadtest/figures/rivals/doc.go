// Command rivals measures the proxy beside what else people put before a service: nothing, Envoy, HAProxy, nginx and
// Caddy, before the same upstreams, under the same loads. It takes make build.
//
//	make rivals
//	make rivals RIVALS_UPSTREAMS='gunicorn go' RIVALS_LOADS='2x-64 5x-2000' RIVALS= RIVALS_FLAGS='-rounds 3'
//
// An empty list means all. The tables are in tables.go. Each combination of an upstream, a load, a rival and a round is
// a cell, and a file in the folder of the results. What is there is not measured again: the same command resumes, another
// adds to the report, which is of all that is there.
//
// The rules:
//
//   - Each has the settings of its documentation, linked in tables.go and in the report, and no others but those that
//     keep it from being the limit (its own connections, its backlog).
//   - Who must be told a number is told the best: how many requests the upstream does at once, but one more before gunicorn,
//     twice as many before PHP, and 16 where that steps from 8 to 32 and 4, with which HAProxy and Spillway did more; where
//     only a number bounds its queue, half of what can be served within the objective, so that who waits is answered in
//     time. Envoy's admission control acts on failures: its route's time-out is the objective, or else it never acts. In
//     Envoy's chain adaptive concurrency comes first, so that its refusals do not count as the upstream's failures.
//   - Spillway is told nothing (learned), the objective (objective), that and the number (told), or the number and half of the
//     objective (half), as HAProxy's time-out of its queue is the objective and half of it; or the number and how many may
//     wait, in order of arrival (fifo), as nginx is.
//     Its fair is told the objective; its priority, whose queue only a number bounds, the workers and that number.
//   - Whose queue orders by classes is told them, where they are in the load: HAProxy and Spillway.
//   - Capacity is how many the upstream does at once by the time that each takes, whatever the machine; before a model
//     server's simulator, the highest rate of open arrivals of which 95% were in time.
//   - Arrivals are Poisson, of the same seed for all of a round. Latency counts from the scheduled time, the wait for one of
//     the connections included. Clients give up after ten times the objective.
//   - A cell starts the upstream, and, once it does as many requests at once as it should, the rival. Then it sends the load
//     (cold), and once more, a second of it unmeasured (warm). Cells of a load follow each other, rival by rival.
//   - Good are answers within the objective that come while the load is measured: what waits at its end is served without
//     a load, and with it a long queue would seem to do more than the capacity. Failed are all requests that were not
//     served: refused, broken off, given up.
//   - The time to protect is from the onset of the load, the spike or the last step on, until good answers over a second
//     are 0.9 of what arrived or of the capacity, whichever is less.
//   - CPU a request is the rival's own, per answer, refusals included; memory the sum of its processes' largest resident
//     sizes.
//   - Less than 2% is the same, as in loadtest compare. A row is behind if one of Spillway's has less than 0.98 of the good
//     answers of the best of others who is told the number; or, of those that are not told it, of the best who is not; where
//     classes are in the load, of that class too; or if below the capacity Spillway fails a request and another none.
//   - What others on the machine took of it meanwhile is in the report; a disturbed cell stays, and another round is added.
//   - No cell is left out: with several rounds a figure is their median, and the JSON has the least and the most. The report
//     names what is not installed, what failed to start and what was not run. Once Spillway is changed, all is run again in
//     another folder: the report says so if its cells are of several builds.
package main
