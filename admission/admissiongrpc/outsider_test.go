package admissiongrpc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A module beside a clone, by the words of docs/library.md alone, has a service for each
// adapter: it builds, serves, and turns away.
func TestOutsider_ByTheDocs(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	beside := t.TempDir()
	outside := filepath.Join(beside, "service")
	require.NoError(t, os.Mkdir(outside, 0o700))
	require.NoError(t, os.Symlink(root, filepath.Join(beside, "spillway")))
	program, err := os.ReadFile("testdata/outsider/main.go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(outside, "main.go"), program, 0o600))
	page, err := os.ReadFile(filepath.Join(root, "docs", "library.md"))
	require.NoError(t, err)
	commands := regexp.MustCompile("(?s)```sh\n(go mod edit .*?)```").FindSubmatch(page)
	require.NotNil(t, commands, "docs/library.md has no commands for a module beside the clone")

	run := func(env []string, name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = outside, append(os.Environ(), env...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, "%s %v: %s", name, args, &stderr)
		return strings.TrimSpace(string(out))
	}
	// Most of what the module needs is in the cache of whoever could build this test.
	env := []string{
		"GOPROXY=file://" + filepath.ToSlash(filepath.Join(run(nil, "go", "env", "GOMODCACHE"), "cache", "download")) + "," + run(nil, "go", "env", "GOPROXY"),
		"GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local",
	}
	run(env, "go", "mod", "init", "example.com/service")
	run(env, "sh", "-ec", string(commands[1]))
	answers := strings.Split(run(env, "go", "run", "."), "\n")
	require.ElementsMatch(t, []string{
		"net/http 503 full", "fasthttp 503 full", "gRPC ResourceExhausted",
		"net/http 200 ", "fasthttp 200 ", "gRPC OK",
	}, answers)
}
