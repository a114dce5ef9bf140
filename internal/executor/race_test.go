//go:build race

package executor

// raceEnabled: under the race detector sync.Pool forgets at random.
const raceEnabled = true
