//go:build race

package httpfront

// assert panics if what must hold does not. Tests run with the race detector, and check it.
func assert(holds bool, what string) {
	if !holds {
		panic("httpfront: " + what)
	}
}
