//go:build lint

package importrules

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

const module = "github.com/spillway-go/spillway"

// config is what .golangci.yml says of imports.
type config struct {
	Linters struct {
		Settings struct {
			Depguard struct {
				Rules map[string]struct {
					Files []string
					Deny  []struct{ Pkg, Desc string }
				}
			}
		}
	}
}

// Each import rule of .golangci.yml fires: a module is made in which every one of them is
// broken, once for each package that it denies, and golangci-lint has to say so. It is
// make lint that names the linter.
func TestImportRules_EachFires(t *testing.T) {
	t.Parallel()
	linter := os.Getenv("GOLANGCI_LINT")
	require.NotEmpty(t, linter, "GOLANGCI_LINT does not say where golangci-lint is")
	text, err := os.ReadFile("../../.golangci.yml")
	require.NoError(t, err)
	var c config
	require.NoError(t, yaml.Unmarshal(text, &c))
	require.NotEmpty(t, c.Linters.Settings.Depguard.Rules)

	m := planted{t: t, dir: t.TempDir(), others: map[string]bool{}}
	m.write(".golangci.yml", string(text))
	want := map[string]string{} // by file
	for name, rule := range c.Linters.Settings.Depguard.Rules {
		dir, deep := strings.CutSuffix(strings.TrimPrefix(rule.Files[0], "**/"), "/**.go")
		dirs := []string{strings.TrimSuffix(dir, "/*.go")}
		if deep {
			dirs = append(dirs, dir+"/deep/down")
		}
		for i, deny := range rule.Deny {
			for _, dir := range dirs {
				file := fmt.Sprintf("%s/planted_%s_%d.go", dir, name, i)
				m.write(file, fmt.Sprintf("package planted\n\nimport _ %q\n", m.provide(deny.Pkg)))
				want[file] = deny.Desc
			}
		}
	}
	m.write("strategies/planted_clock.go", "package planted\n\nimport \"time\"\n\nvar _ = time.Now\n")
	want["strategies/planted_clock.go"] = "disciplines read no clock: the time is an argument"
	m.writeGoMod()

	got := m.lint(linter)
	for file, desc := range want {
		require.Contains(t, got[file], desc, "%s breaks a rule, and nobody says so", file)
	}
}

// planted is a module for the linter to look at.
type planted struct {
	t      *testing.T
	dir    string
	others map[string]bool // the modules that are imported
}

func (m *planted) write(name, text string) {
	path := filepath.Join(m.dir, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(m.t, os.WriteFile(path, []byte(text), 0o600))
}

// provide makes an empty package that the rule denies, and returns its path.
func (m *planted) provide(pkg string) string {
	path, exact := strings.CutSuffix(pkg, "$")
	if !strings.Contains(path, ".") {
		return path // of the standard library
	}
	path = strings.TrimSuffix(path, "/")
	if !exact {
		path += "/denied" // it imports nothing, so there is no circle
	}
	if inside, ok := strings.CutPrefix(path, module+"/"); ok {
		m.write(inside+"/denied.go", "package planted\n")
		return path
	}
	m.others[path] = true
	m.write("others/"+path+"/denied.go", "package denied\n")
	m.write("others/"+path+"/go.mod", "module "+path+"\n")
	return path
}

func (m *planted) writeGoMod() {
	text := "module " + module + "\n\ngo 1.26.0\n"
	for other := range m.others {
		text += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => ./others/%s\n", other, other, other)
	}
	m.write("go.mod", text)
}

// lint returns what the linter says, by file.
func (m *planted) lint(linter string) map[string]string {
	cmd := exec.CommandContext(m.t.Context(), linter, "run", "--enable-only", "depguard,forbidigo", "--allow-parallel-runners",
		"--max-same-issues", "0", "--max-issues-per-linter", "0", "--uniq-by-line=false",
		"--output.json.path", "stdout", "--show-stats=false", "./...")
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOLANGCI_LINT_CACHE="+m.t.TempDir())
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(m.t, err, &exit)
		require.Equal(m.t, 1, exit.ExitCode(), "%s", exit.Stderr)
	}
	var report struct {
		Issues []struct {
			Text string
			Pos  struct{ Filename string }
		}
	}
	require.NoError(m.t, json.Unmarshal(out, &report), "%s", out)
	said := map[string]string{}
	for _, issue := range report.Issues {
		said[filepath.ToSlash(issue.Pos.Filename)] += issue.Text + "\n"
	}
	return said
}
