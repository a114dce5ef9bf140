//go:build race

package sim

// Under the race detector everything takes ten times as long, so the samples are
// a tenth, and theory is met less closely.
const (
	scale     = 0.1
	tolerance = 0.05
)
