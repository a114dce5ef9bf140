//go:build race

package server

// raceEnabled says that the race detector is on, which allocates.
const raceEnabled = true
