package result

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/observe"
	"github.com/spillway-go/spillway/loadtest/profiles"
)

// The rules of attribution know a Spillway over Pebble. What another server spends
// is shown by its profiles alone.
func TestResult_AttributesWhatTheRulesKnow(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../profiles/testdata/fifo-get.cpu.pb.gz")
	require.NoError(t, err)
	for _, pebble := range []bool{true, false} {
		r := new(Result)
		r.Observed(&observe.Observation{Pebble: pebble, Profiles: map[profiles.Kind][]byte{profiles.CPU: content}})
		require.Empty(t, r.Unseen)
		require.Contains(t, r.Profiles, profiles.CPU)
		require.Equal(t, pebble, len(r.CPUByPart) > 0)
	}
}
