// Package strategies holds the queue disciplines that may stand between the
// goroutines that receive requests and the workers that serve them, one file
// each, behind one small interface.
//
// A [Discipline] is passive: it decides which tasks wait, which is next and
// which has to go, and returns at once. It never blocks, starts no goroutine
// and reads no clock. Waiting for work, waking workers, deadlines and draining
// are the business of package dispatch, so that the same code runs in the
// service, in benchmarks and in a simulator's virtual time.
//
// # Your own strategy
//
// A strategy is a type with four methods, registered by name: see the example of
// [Register]. Import it in package custom, and both binaries have it. Package strategytest
// checks the rules that every discipline has to keep, and says which one is broken.
package strategies
