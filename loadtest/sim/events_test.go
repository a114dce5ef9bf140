//go:build !race

package sim

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is planned when, events come in the order of their times, and those of
// the same time in the order in which they were planned.
func TestAgenda_Order(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		var (
			random = newRandom(seed)
			a      agenda
			dumb   []event
			now    int64
		)
		for range 2000 {
			if random.IntN(3) > 0 || len(dumb) == 0 {
				what, at := kind(random.IntN(4)), now+random.Int64N(20)
				if what == gaveUp && random.IntN(10) > 0 {
					at = now + 15 // as patience mostly is
				}
				dumb = append(dumb, event{at: at, seq: a.seq, value: happening{kind: what}})
				a.plan(at, what, nil)
				continue
			}
			slices.SortFunc(dumb, func(x, y event) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.seq, y.seq)) })
			require.Equal(t, dumb[0], *a.peek(), "seed %d", seed)
			require.Equal(t, dumb[0], a.next(), "seed %d", seed)
			now, dumb = dumb[0].at, dumb[1:]
		}
		for range dumb {
			a.next()
		}
		require.Nil(t, a.peek(), "seed %d", seed)
	}
}
