package wire

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
)

// An answer that merely says no was served; one that came of overload was not. What is the
// client's fault tells nothing, nor how soon something fails.
func TestStatusOutcome(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]admission.Outcome{
		200: admission.Good, 101: admission.Good, 304: admission.Good, 400: admission.Good, 404: admission.Good,
		408: admission.Ignored, 429: admission.Ignored, 499: admission.Ignored,
		500: admission.Failed, 501: admission.Failed, 507: admission.Failed,
		502: admission.Dropped, 503: admission.Dropped, 504: admission.Dropped,
	} {
		require.Equal(t, want, StatusOutcome(status), status)
	}
}

// A client that leaves tells nothing. One that leaves at its deadline has been kept waiting for
// too long, whichever of the two the server hears of first.
func TestOutcome(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		deadline time.Duration // 0 for none
		leaves   time.Duration // 0 for never
		after    time.Duration
		how      admission.Outcome
		want     admission.Outcome
	}{
		{"in time", time.Second, 0, time.Millisecond, admission.Good, admission.Good},
		{"refused in time", time.Second, 0, time.Millisecond, admission.Dropped, admission.Dropped},
		{"too late", time.Second, 0, time.Second, admission.Good, admission.Dropped},
		{"its client left", 0, time.Second, 2 * time.Second, admission.Good, admission.Ignored},
		{"its client left, and the answer says so", 0, time.Second, 2 * time.Second, admission.Dropped, admission.Ignored},
		{"its client left early", time.Minute, time.Second, 2 * time.Second, admission.Good, admission.Ignored},
		{"its client left at the deadline", time.Second, 999 * time.Millisecond, 999 * time.Millisecond, admission.Good, admission.Dropped},
		{"its client's own limit", time.Second, 0, 2 * time.Second, admission.Ignored, admission.Ignored},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if row.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
					defer cancel()
				}
				if row.leaves > 0 {
					time.AfterFunc(row.leaves, cancel)
				}
				time.Sleep(row.after)
				synctest.Wait()
				require.Equal(t, row.want, Outcome(ctx, row.how))
			})
		})
	}
}

// overdue is a context whose deadline has passed, and that nobody has ended: its timer is late.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now(), true }

func TestOutcome_Overdue(t *testing.T) {
	t.Parallel()
	require.Equal(t, admission.Dropped, Outcome(overdue{t.Context()}, admission.Good))
	require.Equal(t, admission.Ignored, Outcome(overdue{t.Context()}, admission.Ignored))
}
