//go:build !race

package dispatch

// tasksPerStrategy is how many tasks the property test submits to each.
const tasksPerStrategy = 1_000_000
