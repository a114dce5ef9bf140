//go:build integration

package integration

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lines of docs/http.md that begin with a dollar sign do what the page says: the
// lines below each are in their output, in that order. A … stands for anything.
func TestDocs_HTTP(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/http.md")
	require.NoError(t, err)
	s := start(t, raced, "SPILLWAY_CORS_ORIGINS=https://app.example.com")
	planes := strings.NewReplacer("http://127.0.0.1:8080", s.dataURL(""), "http://127.0.0.1:6060", s.adminURL(""))
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for _, task := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(task, "\n")
			script := strings.ReplaceAll(planes.Replace(command), "curl ", "curl -sS --max-time 60 ")
			out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
			require.NoError(t, err, "%s\n%s", command, out)
			rest := strings.ReplaceAll(string(out), "\r\n", "\n")
			for line := range strings.Lines(want) {
				if line = strings.TrimRight(line, "\n"); line == "" {
					continue
				}
				pattern := strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*")
				at := regexp.MustCompile("(?m)^" + pattern + "$").FindStringIndex(rest)
				require.NotNil(t, at, "%s\nwants %q next, and has\n%s", command, line, out)
				rest = rest[at[1]:]
			}
			ran++
		}
	}
	require.Greater(t, ran, 30)
}
