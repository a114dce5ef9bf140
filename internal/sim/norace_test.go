//go:build !race

package sim

const (
	scale     = 1
	tolerance = 0.01
)
