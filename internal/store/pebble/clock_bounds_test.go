//go:build !race

package pebble

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever becomes of the wall clock, and however often somebody looks: the clock never
// runs backwards, and no faster or slower than by a tenth. It is wrong by no more than a
// tenth of the time for which the wall clock was, and follows one that stays where it was
// set, until it has it.
func TestClock_Bounds(t *testing.T) {
	t.Parallel()
	for _, jump := range jumps {
		for _, lasts := range []time.Duration{time.Second, time.Minute, 24 * time.Hour} {
			for _, look := range []time.Duration{time.Millisecond, time.Second} {
				if lasts/look > 1e6 {
					continue
				}
				t.Run(fmt.Sprintf("%v for %v, a look each %v", jump, lasts, look), func(t *testing.T) {
					t.Parallel()
					w := newWall()
					c := clock{now: w.now}
					began := w.at.Load()
					require.Equal(t, began, c.read())
					last, passed := began, time.Duration(0)
					pass := func(d time.Duration) {
						for end := passed + d; passed < end; passed += look {
							w.move(look)
							now := c.read()
							took, most := time.Duration(now-last)*time.Millisecond, look/clockPart+time.Millisecond
							require.GreaterOrEqual(t, now, last)
							require.InDelta(t, float64(look), float64(took), float64(most))
							last = now
						}
					}
					// wrong is how far the clock is from the time that has passed.
					wrong := func() time.Duration { return time.Duration(last-began)*time.Millisecond - passed }
					near := 2 * time.Millisecond
					pass(10 * time.Second)
					w.jump(jump)
					pass(lasts)
					require.InDelta(t, float64(max(-lasts/clockPart, min(jump, lasts/clockPart))), float64(wrong()), float64(near))
					w.jump(-jump)
					pass(min(jump.Abs(), lasts/clockPart)*clockPart + 2*look)
					require.InDelta(t, 0, float64(wrong()), float64(near), "it is corrected in no more time than it was wrong for")
				})
			}
		}
	}
}
