package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
)

// An answer that merely says no was served; one that came of overload was not, and what is
// the client's fault tells nothing.
func TestStatusOutcome(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]admission.Outcome{
		200: admission.Good, 101: admission.Good, 304: admission.Good, 400: admission.Good, 404: admission.Good, 500: admission.Good,
		408: admission.Unmeasured, 429: admission.Unmeasured, 499: admission.Unmeasured,
		502: admission.Dropped, 503: admission.Dropped, 504: admission.Dropped,
	} {
		require.Equal(t, want, StatusOutcome(status), status)
	}
}
