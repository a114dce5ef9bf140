//go:build race || invariants

package dispatch

import (
	"fmt"
	"sync/atomic"
)

// asserting has the invariants of the package comment checked.
const asserting = true

// assert panics if an invariant does not hold. What it costs to find out stands behind asserting.
func assert(holds bool, format string, args ...any) {
	if !holds {
		panic(fmt.Errorf("dispatch: broken invariant: "+format, args...))
	}
}

// counts asserts that a counter is not below 0.
func counts(n int64, what string) { assert(n >= 0, "%d %s", n, what) }

// phase is whose a task is: its submitter's, false, or the dispatcher's.
type phase struct{ ours atomic.Bool }

func (p *phase) becomes(ours bool) {
	assert(p.ours.CompareAndSwap(!ours, ours), "a task changes hands to where it is already; ours: %t", ours)
}
