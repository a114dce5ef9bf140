package concurrency

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// How many ran with a request is counted from when its slot opened.
func TestSlots_HowManyRan(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit int
		ended []Sample
		next  int // the ends after which the next slot begins, or none
		ran   float64
	}{
		"the limit has fallen from 8 to 4": {
			limit: 4, ran: 4,
			ended: []Sample{
				{Now: 1, Began: -9, Running: 8}, {Now: 2, Began: -9, Running: 7}, {Now: 3, Began: -9, Running: 6},
				{Now: 4, Began: -9, Running: 5}, {Now: 5, Began: -9, Running: 4}, {Now: 15, Began: 5, Running: 4},
			},
		},
		"the same, and it ends in the next slot": {
			limit: 4, next: 6, ran: 4,
			ended: []Sample{
				{Now: 1, Began: -9, Running: 8}, {Now: 2, Began: -9, Running: 7}, {Now: 3, Began: -9, Running: 6},
				{Now: 4, Began: -9, Running: 5}, {Now: 5, Began: -9, Running: 4}, {Now: 9, Began: -9, Running: 4}, {Now: 15, Began: 7, Running: 4},
			},
		},
		"it began before the slot opened": {
			limit: 4, ran: 4,
			ended: []Sample{{Now: 9, Began: -9, Running: 4}, {Now: 11, Began: 1, Running: 4}},
		},
		"it began and ended before": {
			limit: 4, ran: 5,
			ended: []Sample{{Now: 9, Began: 1, Running: 5}},
		},
		"no fewer run than before": {
			limit: 8, ran: 8,
			ended: []Sample{{Now: 5, Began: -9, Running: 8}, {Now: 10, Began: 0, Running: 8}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := slots{age: 1e9, running: 8}
			s.begin(tt.limit, 4)
			for i, r := range tt.ended {
				if i == tt.next && i > 0 {
					s.begin(tt.limit, 4)
				}
				s.ended(&r, float64(r.Now-r.Began), false)
			}
			b := &s.now
			if tt.next > 0 {
				b = &s.last
			}
			require.InDelta(t, 1, b.n, 0)
			require.InDelta(t, tt.ran, math.Exp(b.ran/b.sum), 1e-9)
		})
	}
}

// Of how many requests some were dropped: of those that have ended, unless most of the dropped were refused at once.
func TestSlots_Drops(t *testing.T) {
	t.Parallel()
	good, dropped, refused := Sample{Began: 1}, Sample{Began: 1, Dropped: true}, Sample{Began: 1, Dropped: true}
	for name, tt := range map[string]struct {
		ended   []Sample
		refused int // how many of the last were refused at once
		bad, n  float64
	}{
		"none":                                    {ended: []Sample{good, good}, n: 2},
		"dropped as late as the good":             {ended: []Sample{good, dropped, dropped}, bad: 2, n: 3},
		"half of them were refused at once":       {ended: []Sample{good, dropped, refused}, refused: 1, bad: 2, n: 3},
		"most were: what still runs counts too":   {ended: []Sample{good, refused, refused}, refused: 2, bad: 2, n: 8},
		"one that began before tells of no drops": {ended: []Sample{{Began: -9, Dropped: true}, good}, n: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := slots{age: 1e9}
			s.begin(8, 4) // none runs yet
			for i, r := range tt.ended {
				r.Now, r.Running = int64(10+i), 6 // 5 others run
				s.ended(&r, float64(r.Now-r.Began), i >= len(tt.ended)-tt.refused)
			}
			bad, n := s.drops()
			require.InDelta(t, tt.bad, bad, 0)
			require.InDelta(t, tt.n, n, 0)
		})
	}
}
