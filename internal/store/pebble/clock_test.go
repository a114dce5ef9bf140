package pebble

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const tenYears = 10 * 365 * 24 * time.Hour

// jumps are what happens to wall clocks.
var jumps = []time.Duration{time.Second, -time.Second, 24 * time.Hour, -24 * time.Hour, tenYears, -tenYears}

// Nobody looks for a day, in which the wall clock was set.
func TestClock_LooksSeldom(t *testing.T) {
	t.Parallel()
	w := newWall()
	c := clock{now: w.now}
	began := c.read()
	w.move(24 * time.Hour)
	w.jump(tenYears)
	require.Equal(t, began+24*3600*1000+clockStep.Milliseconds()/clockPart, c.read())
	w.at.Store(1 << 62) // beyond what can be told
	w.move(time.Hour)
	require.Equal(t, began+25*3600*1000+2*clockStep.Milliseconds()/clockPart, c.read())
}

func TestClock_Tells(t *testing.T) {
	t.Parallel()
	w, r := newWall(), newRecorder(t)
	c := clock{now: w.now}
	log := slog.New(r)
	second := func() { w.move(time.Second); c.watch(log) }
	c.read()
	w.jump(30 * time.Second)
	second()
	require.Zero(t, r.count(""))
	w.jump(time.Hour)
	second()
	second()
	require.Equal(t, 1, r.count("the wall clock was set"), "once")
	w.jump(-time.Hour)
	second()
	w.jump(-time.Hour)
	second()
	require.Equal(t, 2, r.count("the wall clock was set"))
}

// A wall clock that is wrong for a second, by however much, neither ends a value early nor
// keeps one, also after a restart: those written before it, meanwhile, and afterwards.
func TestStore_ExpiresInABadSecond(t *testing.T) {
	t.Parallel()
	for _, jump := range jumps {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, restart=%t", jump, restart), func(t *testing.T) {
				t.Parallel()
				w := newWall()
				o := Options{Dir: t.TempDir(), now: w.now, SweepInterval: time.Hour}
				s := openOnly(t, o)
				keys := []string{"before", "meanwhile", "after"}
				pass := func(seconds int) {
					for range seconds { // each of which somebody looks
						w.move(time.Second)
						s.clock.read()
					}
				}
				require.NoError(t, apply(s, putFor("before", "v", 100), putFor("before, long", "v", 1000)))
				w.jump(jump)
				pass(1)
				require.Equal(t, "v", get(t, s, "before"))
				require.NoError(t, apply(s, putFor("meanwhile", "v", 100), putFor("meanwhile, long", "v", 1000)))
				w.jump(-jump)
				require.NoError(t, apply(s, putFor("after", "v", 100), putFor("after, long", "v", 1000)))
				if restart {
					require.NoError(t, s.Close())
					s = openOnly(t, o)
				}
				pass(98)
				for _, k := range keys {
					require.Equal(t, "v", get(t, s, k), "%s, it has a second left", k)
					_, m, err := s.Get(nil, []byte(k+", long"))
					require.NoError(t, err)
					require.InDelta(t, 901, m.TTL, 2)
				}
				pass(3)
				for _, k := range keys {
					require.Equal(t, "absent", get(t, s, k), "%s, its time was over a second ago", k)
				}
				require.NoError(t, s.Close())
			})
		}
	}
}

// A clock that is set for good is followed by a tenth of the time that passes. A time to
// live that ends within the jump ends when it has passed, by no more than a tenth early or
// late.
func TestStore_ExpiresWithinAJump(t *testing.T) {
	t.Parallel()
	for _, jump := range jumps {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			w := newWall()
			s := open(t, Options{Dir: t.TempDir(), now: w.now, SweepInterval: time.Hour})
			require.NoError(t, apply(s, putFor("a", "v", 1000)))
			w.jump(jump)
			for range 909 {
				w.move(time.Second)
				require.Equal(t, "v", get(t, s, "a"))
			}
			for range 204 {
				w.move(time.Second)
				s.clock.read()
			}
			require.Equal(t, "absent", get(t, s, "a"))
			w.jump(-jump)
			require.Equal(t, "absent", get(t, s, "a"), "what is gone stays so")
		})
	}
}

// A start takes the wall clock as it is. So a value outlives a restart by the wall clock:
// one that was set back has more of it left, and one that was set forward has less.
func TestStore_ExpiresAcrossRestarts(t *testing.T) {
	t.Parallel()
	for _, jump := range jumps {
		for _, ttl := range []uint32{10, 1000, 2 * 24 * 3600, 630_720_000} {
			w := newWall()
			o := Options{Dir: t.TempDir(), now: w.now, SweepInterval: time.Hour}
			s := openOnly(t, o)
			require.NoError(t, apply(s, putFor("a", "v", ttl)))
			require.NoError(t, s.Close())
			w.jump(jump)
			s = openOnly(t, o)
			left := int64(ttl) - int64(jump/time.Second)
			if left <= 0 {
				require.Equal(t, "absent", get(t, s, "a"), "%v, %d", jump, ttl)
			} else {
				_, m, err := s.Get(nil, []byte("a"))
				require.NoError(t, err)
				require.EqualValues(t, left, m.TTL, "%v, %d", jump, ttl)
			}
			// A value that is written by a wrong clock lives as long as it should, while
			// the process lives.
			require.NoError(t, apply(s, putFor("b", "v", 100)))
			w.jump(-jump)
			for range 89 {
				w.move(time.Second)
				s.clock.read()
			}
			require.Equal(t, "v", get(t, s, "b"))
			for range 24 {
				w.move(time.Second)
				s.clock.read()
			}
			require.Equal(t, "absent", get(t, s, "b"))
			require.NoError(t, s.Close())
		}
	}
}
