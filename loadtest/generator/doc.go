// Package generator sends load to the service and measures what comes back, in a
// way that a server which stalls cannot flatter.
//
// # Open loop
//
// Most load generators are closed loops: a connection sends its next request
// when the last one is answered. When the server stands still for a second, so
// do they. Of the thousands of requests that users would have made in that
// second, each connection makes one, and so a handful of bad latencies drown in
// thousands of good ones: the second hardly shows in the 99th percentile. Gil
// Tene named this coordinated omission: the server decides when it is measured,
// and it is not measured when it is slow.
//
// Users do not know of each other, and do not wait for each other's answers. So
// here requests are scheduled beforehand, from the rate alone, and latency counts
// from the scheduled time, as in Tene's wrk2. A request that finds no free
// connection, or a generator that is late, waits on the clock of that request. A
// stall of one second in a run of ten is then in every tenth request, as users
// would have met it:
//
//	scheduled   |   |   |   |   |   |   |   |
//	server      ok  ok  [ stands still  ] ok  ok
//	closed loop 1   1   17..............  1   1    one bad latency
//	open loop   1   1   17  13  9   5     1   1    four
//
// A [result.Result] has both: Latency counts from the schedule, UncorrectedLatency from
// the moment of sending. Where they differ, the server could not keep up, or the
// connections were too few. A request that is given up counts with its timeout,
// because a user would have waited as long. Latencies are kept in HdrHistograms
// of three digits, so that far percentiles are exact in bounded memory.
//
// A generator can be late by its own fault too. Lateness says by how much, and
// the summary warns when it is enough to matter.
//
// With a rate of 0 the load is a closed loop nevertheless: it finds how much a
// server can do, and is no measure of latency.
//
// # Parts
//
// [workload.Options] say what to send; [Run] sends it. A [workload.Stream] turns
// options into requests, from the seed alone: nothing in it reads a clock. A loop sends each
// request when its time has come, on a connection that is free, and follows the answers. What
// it counted in [result.Tally] becomes a [result.Result]. Every loop walks through the whole
// stream and sends its share, so that what is sent does not depend on how many loops there
// are.
//
// Loops send over a transport, of which there are two. One has sockets over Linux's epoll, on
// the loop's own thread, for HTTP/1.1 in the clear. The other has a goroutine a connection
// over net/http, for TLS, HTTP/2 and every system.
package generator
