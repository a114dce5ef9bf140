// Package observe watches a running service through its admin plane while load
// is sent: what it spends, how its queue stands, and its profiles.
//
// It shares the machine with the service, and its requests are work for the
// service, so it asks for little: six metrics by name, once a second, in a short
// window up to four times, of which one reading costs the service about a
// millisecond of CPU and some 2,500 allocations. Profiles are taken over the
// whole window at once, by the service itself, which allocates some 20,000
// objects and 15 MB in doing so, at both ends of the window.
//
// The CPU is left in the figures. The allocations would be most of those of a
// service that makes hardly any, and weigh the more the fewer requests there
// are: at 500 a second, 4 a request. So [Open] measures what a reading
// allocates, before the load, which is taken off; and while profiles are taken,
// allocations are counted between the second sample and the last that is well
// before the end, and extrapolated to the window. What stays are the few hundred
// objects a second of the CPU profile while it runs.
package observe
