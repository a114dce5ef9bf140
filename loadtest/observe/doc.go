// Package observe learns through the admin plane of a running service what it spends while
// load is sent: its CPU time, and its profiles.
//
// It shares the machine with the service, and its requests are work for the service, so it
// asks for little: three metrics by name at both ends of a window, each of which costs the
// service about a millisecond of CPU. Profiles are taken over the whole window at once, by the
// service itself.
package observe
