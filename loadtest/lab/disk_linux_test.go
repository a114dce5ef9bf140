package lab

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two comparisons in one folder would spoil each other's results: the later one is told so,
// and leaves what is there alone, also with Restart.
func TestCompare_RefusesAFolderInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := &standIn{t: t}
	o := g.options(dir, t)
	_, err := Compare(t.Context(), question(), o)
	require.NoError(t, err)
	before, err := os.ReadFile(filepath.Join(dir, comparisonFile))
	require.NoError(t, err)

	release, err := lock(dir)
	require.NoError(t, err)
	o.Restart = true
	_, err = Compare(t.Context(), question(), o)
	require.EqualError(t, err, dir+" is in use by another comparison: wait for its end, or choose another folder with --out")
	after, err := os.ReadFile(filepath.Join(dir, comparisonFile))
	require.NoError(t, err)
	require.Equal(t, before, after)

	release()
	_, err = Compare(t.Context(), question(), o)
	require.NoError(t, err)
}
