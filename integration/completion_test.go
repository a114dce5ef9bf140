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

// Every shell reads its script.
func TestCompletion_Syntax(t *testing.T) {
	t.Parallel()
	binary, err := plain()
	require.NoError(t, err)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		printed, err := exec.CommandContext(t.Context(), binary, "completion", shell).Output()
		require.NoError(t, err)
		script := filepath.Join(t.TempDir(), "completion")
		require.NoError(t, os.WriteFile(script, printed, 0o600))
		out, err := exec.CommandContext(t.Context(), shell, "-n", script).CombinedOutput()
		require.NoError(t, err, "%s: %s", shell, out)
		require.Empty(t, string(out), shell)
	}
}

// Bash completes commands, flags, choices and files as its users expect.
func TestCompletion_Bash(t *testing.T) {
	t.Parallel()
	binary, err := plain()
	require.NoError(t, err)
	printed, err := exec.CommandContext(t.Context(), binary, "completion", "bash").Output()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "some.yaml"), nil, 0o600))
	script := filepath.Join(dir, "completion")
	require.NoError(t, os.WriteFile(script, printed, 0o600))
	for words, want := range map[string][]string{
		"heal":               {"healthcheck"},
		"co":                 {"config", "completion", "copy"},
		"--strategy = fi":    {"fifo"},
		"--strategy =":       {"adaptive-lifo", "auto", "unbounded"},
		"--strategy l":       {"lifo"},
		"proxy --proxy-hold": {"--proxy-hold="},
		"proxy --upst":       {"--upstream="},
		"--vers":             {"--version"},
		"config ":            {"check"},
		"config check so":    {"some.yaml"},
		"--config = so":      {"some.yaml"},
		"completion ":        {"bash", "zsh", "fish"},
		"--mode = o":         {"observe"},
	} {
		run := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-c",
			`source "$1"; shift; COMP_WORDS=(spillway "$@"); COMP_CWORD=$#; _spillway; printf '%s\n' "${COMPREPLY[@]}"`,
			"bash", script)
		run.Args = append(run.Args, strings.Split(words, " ")...)
		run.Dir = dir
		out, err := run.CombinedOutput()
		require.NoError(t, err, "%s: %s", words, out)
		got := strings.Fields(string(out))
		require.Subset(t, got, want, words)
		if len(want) == 1 {
			require.Equal(t, want, got, words)
		}
	}
}
