package config

import (
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

// Each shell is offered commands, settings and choices.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range shells {
		text := printed(t, "completion", shell)
		for _, name := range []string{"healthcheck", "proxy-routes", "adaptive-lifo"} {
			require.Contains(t, text, name, shell)
		}
	}
	_, err := Parse(input("completion", "tcsh"))
	requireLine(t, err, `bad value "tcsh" for SHELL: want one of bash, zsh, fish`)
}
