package dispatch

import (
	"fmt"
	"sync/atomic"
)

// assert panics if an invariant of the package comment does not hold, where asserting is true: in builds with the race
// detector, or with the tag invariants. What it costs to find out stands behind asserting.
func assert(holds bool, format string, args ...any) {
	if asserting && !holds {
		panic(fmt.Errorf("dispatch: broken invariant: "+format, args...))
	}
}

// counts asserts that a counter is not below 0.
func counts(n int64, what string) { assert(n >= 0, "%d %s", n, what) }

// phase is whose a task is: its submitter's, false, or the dispatcher's.
type phase struct{ ours atomic.Bool }

func (p *phase) becomes(ours bool) {
	assert(!asserting || p.ours.CompareAndSwap(!ours, ours), "a task changes hands to where it is already; ours: %t", ours)
}
