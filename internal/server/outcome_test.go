package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/served"
)

// What is good: 2xx, 304, and that there is no value, for whoever asks for one.
func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		method string
		status int
		shed   bool
		want   served.Outcome
	}{
		{"GET", 200, false, served.OK}, {"HEAD", 200, false, served.OK}, {"PUT", 201, false, served.OK}, {"DELETE", 202, false, served.OK},
		{"GET", 304, false, served.OK}, {"HEAD", 304, false, served.OK}, {"GET", 404, false, served.OK}, {"HEAD", 404, false, served.OK},
		{"PUT", 404, false, served.Error}, {"DELETE", 404, false, served.Error}, {"POST", 405, false, served.Error}, {"PUT", 412, false, served.Error},
		{"BREW", 418, false, served.Error}, {"", 408, false, served.Error}, {"GET", 0, false, served.Error}, {"GET", statusCut, false, served.Error},
		{"PUT", 503, false, served.Error}, {"PUT", 503, true, served.Shed}, {"PUT", 504, true, served.Shed},
	} {
		require.Equal(t, tc.want, outcomeOf(tc.method, tc.status, tc.shed), tc)
	}
}
