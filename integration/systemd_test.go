//go:build integration

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The unit is one that systemd takes as it is, and that gives the service no
// more than it needs.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	binary, err := plain()
	require.NoError(t, err)
	content, err := os.ReadFile("../deploy/spillway.service")
	require.NoError(t, err)
	unit := filepath.Join(t.TempDir(), "spillway.service")
	installed := strings.Replace(string(content), "/usr/local/bin/spillway", binary, 1)
	require.NotEqual(t, string(content), installed)
	require.NoError(t, os.WriteFile(unit, []byte(installed), 0o600))

	out, err := exec.Command("systemd-analyze", "verify", unit).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "spillway", "what systemd ignores, it only warns about")
	// From 0 (best) to 100; a unit without any of it has 96.
	out, err = exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold=20", unit).CombinedOutput()
	require.NoError(t, err, string(out))
}
