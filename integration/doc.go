// Package integration tests the built service from outside: it starts the real
// binary, talks to it over sockets, sends it signals, and reads what it leaves
// behind. The tests have the build tag integration.
//
// They assert outcomes and orders of events, not durations. Where a request has
// to be busy or to wait, the store is made slow for good (SPILLWAY_STORE_DELAY
// of an hour) and the process is killed at the end, so that nothing depends on
// the speed of the machine.
//
// Variables that make the tests longer:
//
//	SPILLWAY_TORTURE_CYCLES          how often the service is killed under each mode of durability (20)
//	SPILLWAY_TORTURE_OPERATIONS      operations under each strategy whose history is checked (3000)
//	SPILLWAY_TORTURE_CONFIGURATIONS  random configurations that are compared with a map (24)
//	SPILLWAY_TORTURE_SOAK            length of the soak test (4s)
//	SPILLWAY_WRK_SECONDS             length of a run of wrk (1)
//
// SPILLWAY_PICTURES=../docs has TestFirstFiveMinutes make the pictures of the docs anew.
//
// SPILLWAY_TORTURE_SEED runs a random configuration again that has failed.
//
// A history that is not linearizable is drawn as a page, which is kept if go
// test is told to keep artifacts (-artifacts -outputdir=…).
package integration
