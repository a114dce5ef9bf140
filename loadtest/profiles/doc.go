// Package profiles says which part of the service spent what a profile holds:
// CPU time, allocated bytes, time in which others waited for a lock, time in
// which a goroutine could not go on.
//
// # How cost is attributed
//
// A profile is a set of stacks, each with a value. A stack is walked from the
// leaf, the function that ran, towards the root of its goroutine, and the first
// function that the table in rules.go names decides to which part the whole
// value goes. So every sample belongs to exactly one part, and the parts add up
// to the total.
//
// Functions of general use are not named, and so count for whoever called them:
// comparing bytes, system calls, and what Go's runtime does for a caller, which
// is to allocate, to copy, to enter a system call and to wake another goroutine.
// A wake-up by the dispatcher is therefore queueing and hand-over, one by the
// log of the store is the log's. What the runtime does on its own account is
// named: collecting garbage, also where an allocation is made to assist or to
// sweep, and choosing what runs next, which includes looking for work, polling
// the network and putting threads to sleep. A goroutine that blocks switches to
// the scheduler's own stack, so that the profile cannot tell for whom that was.
//
// A stack in which nothing is named is judged by its root: background work of
// Pebble, or of the runtime. What is left after that is [Other]; so are metrics,
// the admin plane and the taking of profiles themselves.
//
// # Waiting that costs nothing
//
// Most of a block profile is goroutines that have nothing to do: workers without
// a task, connections whose task a worker has (which is counted where the worker
// is), the log's writer without anything to write, loops that wait for their
// next round. That goes to [Parked]: it is part of the total, and not of
// [Attribution.Cost]. Waiting for a lock, for the log to be synced, for room in
// a bounded hand-over or for the end of a write stall is cost, of whoever is
// waited for or waits, as the table says.
package profiles
