package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func printed(t *testing.T, args ...string) string {
	t.Helper()
	in := input(args...)
	in.Env = []string{"SPILLWAY_CONFIG=absent.yaml"} // which matters to neither
	inv, err := Parse(in)
	require.NoError(t, err)
	require.Equal(t, Print, inv.Command)
	return inv.Text
}

// The page has every flag and every command of --help, and nothing that man(7) takes for
// something else.
func TestManual(t *testing.T) {
	t.Parallel()
	page := printed(t, "man")
	require.True(t, strings.HasPrefix(page, `.TH SPILLWAY 1 "" "spillway 1.2.3"`))
	said := strings.ReplaceAll(page, `\-`, "-")
	for _, help := range []string{printed(t, "--help"), printed(t, "proxy", "--help"), printed(t, "copy", "--help")} {
		for _, flag := range regexp.MustCompile(`(?m)^  (--[a-z-]+)=`).FindAllStringSubmatch(help, -1) {
			require.Contains(t, said, flag[1]+"=")
		}
		for _, variable := range regexp.MustCompile(`SPILLWAY_\w+`).FindAllString(help, -1) {
			require.Contains(t, said, variable)
		}
	}
	require.Contains(t, page, ".TP\n\\fBconfig check FILE\\fR\n")
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, ".") {
			require.Regexp(t, `^\.(TH|SH|SS|TP|PP|RS|RE|B)\b`, line)
		}
		require.NotRegexp(t, `\\[^-fe&]`, line)
	}
}

// Bash completes commands, flags, choices and files as its users expect.
func TestCompletion_Bash(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "some.yaml"), nil, 0o600))
	script := filepath.Join(dir, "completion")
	require.NoError(t, os.WriteFile(script, []byte(printed(t, "completion", "bash")), 0o600))
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
		run := exec.CommandContext(t.Context(), shell, "--noprofile", "--norc", "-c",
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

// The others offer the same.
func TestCompletion_Others(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"zsh", "fish"} {
		text := printed(t, "completion", shell)
		for _, name := range []string{"healthcheck", "proxy-routes", "adaptive-lifo"} {
			require.Contains(t, text, name, shell)
		}
		if _, err := exec.LookPath(shell); err == nil {
			file := filepath.Join(t.TempDir(), "completion")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			out, err := exec.CommandContext(t.Context(), shell, "-n", file).CombinedOutput()
			require.NoError(t, err, "%s: %s", shell, out)
		}
	}
	_, err := Parse(input("completion", "tcsh"))
	requireLine(t, err, `bad value "tcsh" for SHELL: want one of bash, zsh, fish`)
}
