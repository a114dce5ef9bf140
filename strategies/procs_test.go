package strategies_test

import (
	"runtime"
	"testing"
)

// withProcs lets so many goroutines run at once until the test is over, which
// must not be parallel.
func withProcs(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}
