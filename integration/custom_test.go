//go:build integration

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file in strategies/custom is all it takes to have a strategy of one's own in both
// binaries.
func TestCustomStrategy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, overlay := filepath.Join(dir, "mine.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(source, []byte(`package custom

import "github.com/spillway-go/spillway/strategies"

func init() {
	fifo, err := strategies.Lookup("fifo")
	if err != nil {
		panic(err)
	}
	if err := strategies.Register(strategies.Spec{Name: "mine", Summary: "as fifo", New: fifo.New}); err != nil {
		panic(err)
	}
}
`), 0o600))
	target, err := filepath.Abs("../strategies/custom/mine.go")
	require.NoError(t, err)
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{target: source}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))

	service, err := compile("spillway", "spillway-custom", "-overlay="+overlay)
	require.NoError(t, err)
	help, err := exec.Command(service, "--strategy", "nonsense").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(help), ", mine, ", "the choices")

	lab, err := compile("loadtest", "loadtest-custom", "-overlay="+overlay)
	require.NoError(t, err)
	out, err := exec.Command(lab, "simulate", "--strategies", "mine", "--rates", "1.5x", "--duration", "2s",
		"--out", filepath.Join(dir, "out")).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "mine")
}
