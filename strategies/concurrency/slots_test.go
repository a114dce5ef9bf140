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
