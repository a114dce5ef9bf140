//go:build integration

package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The programs read what was rendered for them.
func TestTables_ConfigurationsAreValid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		needs string
		check []string
	}{
		{"haproxy", []string{"-c", "-q", "-f"}},
		{"nginx", []string{"-t", "-q", "-c"}},
		{"caddy", []string{"adapt", "--adapter", "caddyfile", "--config"}},
		{"envoy", []string{"--mode", "validate", "--log-level", "off", "--use-dynamic-base-id", "-c"}},
	} {
		t.Run(tt.needs, func(t *testing.T) {
			t.Parallel()
			require.True(t, installed(tt.needs), "make deps installs %s", tt.needs)
			for _, r := range rivals {
				if r.needs != tt.needs {
					continue
				}
				dir := t.TempDir()
				_, err := render(r.file, r.command, r.setting(upstreams[0], "20001", "20002", dir))
				require.NoError(t, err)
				check := exec.CommandContext(t.Context(), tt.needs, append(tt.check, filepath.Join(dir, r.file))...)
				said, err := check.CombinedOutput()
				require.NoError(t, err, "%s: %s", r.name, said)
			}
		})
	}
}
