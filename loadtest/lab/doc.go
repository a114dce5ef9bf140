// Package lab runs the service under load again and again, to learn which
// settings serve that load best, and how sure one can be of it.
//
// [Compare] starts the service once for every run, with settings of its own, on
// a fresh clone of a filled store. What it guards against is the machine, which
// is never the same from one minute to the next:
//
//   - All combinations are run once before any of them is run again, so that a
//     slow minute, a warm processor or a neighbour hits all of them alike.
//   - Their order within a repetition is drawn from the seed, and the next
//     repetition runs them in the reverse order, so that none gains by its position.
//   - Within a repetition all of them are sent the same requests.
//   - A figure is a median with its spread. Combinations are compared within
//     each repetition, and a difference counts only if it is significant at the
//     family-wise level of 5% over all of the report ([Comparison.Verdicts]).
//
// A comparison is on disk after every run and marked partial until its last, so
// that it can be interrupted at any time.
//
// [Saturate] searches for the highest rate that a service sustains.
//
// Both are clients: they know the service by its binary, its environment
// variables and its two planes.
package lab
