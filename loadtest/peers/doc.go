// Package peers is what a user would run instead of Spillway, for figures side
// by side: small servers of the same protocol, each with one thing less or one
// thing other than the service has.
//
//	bare     fasthttp that answers at once: what the protocol and the system
//	         calls cost by themselves
//	plain    a fasthttp handler straight on Pebble, without a queue
//	nethttp  the same on net/http
//
// They have the store's options, the garbage collector's settings and the
// artificial delay of the service. What they lack is what the service adds:
// metrics of requests, deadlines and priorities, bounds on memory and time,
// clients that are noticed to be gone, a disk that may fail, profiles of mutexes
// and of blocking.
//
// cmd/peer runs one of them; it is configured by the service's own environment
// variables, logs and answers on an admin plane as the service does, so that the
// same commands start both: make peers compares them. See docs/performance.md.
//
// The module is one of its own, so that what is compared with never becomes a
// dependency of the service. Its benchmark has other libraries' queues beside
// Spillway's:
//
//	cd loadtest/peers && go test -bench .
package peers
