//go:build !race

package strategytest

import "testing"

// The rules find by themselves what the race detector would find first.
func TestRules_CatchRaces(t *testing.T) {
	for _, f := range faults {
		if f.races {
			t.Run(f.rule+"/"+f.name, f.isCaught)
		}
	}
}
