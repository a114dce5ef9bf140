package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun_RefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	for variable, value := range map[string]string{
		"SPILLWAY_SYNC": "interval:10ms", "SPILLWAY_CACHE_BYTES": "much", "SPILLWAY_LISTEN": "127.0.0.1:none", "SPILLWAY_PEER": "nginx",
	} {
		set := map[string]string{"SPILLWAY_DATA_DIR": t.TempDir(), "SPILLWAY_LISTEN": "127.0.0.1:0", variable: value}
		require.ErrorContains(t, run(t.Context(), func(name string) string { return set[name] }), value[len(value)-4:], variable)
	}
}
