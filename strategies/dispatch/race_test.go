//go:build race

package dispatch

// tasksPerStrategy is how many tasks the property test submits to each. Under
// the race detector each takes ten times as long.
const tasksPerStrategy = 100_000
