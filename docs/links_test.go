// Package docs checks the pages of this folder and of the repository's root.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	comment = regexp.MustCompile(`(?s)<!--.*?-->`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	named   = regexp.MustCompile(`docs/[a-z][A-Za-z0-9_/-]*\.(?:md|yaml|svg|png|sh)(?:#[a-z0-9-]+)?`)
)

// Every relative link of a page leads to a file that exists, and to a heading in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	root := repository(t)
	for name, text := range root.files(t, ".md") {
		for _, target := range links(text) {
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			if file == "" {
				file = name
			} else {
				file = path.Join(path.Dir(name), file)
			}
			root.requireTarget(t, name, file, anchor)
		}
	}
}

// Every page and picture that code, settings and dashboards name exists.
func TestNames(t *testing.T) {
	t.Parallel()
	root := repository(t)
	for _, suffix := range []string{".go", ".sh", ".js", ".json", ".yml", ".yaml", ".service", ".cfg", "Makefile", "Dockerfile"} {
		for name, text := range root.files(t, suffix) {
			for _, target := range named.FindAllString(text, -1) {
				file, anchor, _ := strings.Cut(target, "#")
				root.requireTarget(t, name, file, anchor)
			}
		}
	}
}

// What is longer is not read: cut a page before another is added.
func TestSize(t *testing.T) {
	t.Parallel()
	total, pages := 0, ""
	for name, text := range repository(t).files(t, ".md") {
		if strings.HasPrefix(name, "docs/") {
			total += len(text)
			pages += fmt.Sprintf("%6d %s\n", len(text), name)
		}
	}
	require.Less(t, total, 125_000, pages)
}

// Every strategy is explained to whoever has to choose one.
func TestStrategies(t *testing.T) {
	t.Parallel()
	pages := repository(t).files(t, ".md")
	for _, name := range strategies.Names() {
		for _, page := range []string{"README.md", "docs/strategies.md"} {
			require.True(t, strings.Contains(pages[page], "`"+name+"`"), "%s does not say when to take %s", page, name)
		}
	}
}

func TestSlugs(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"when-auto-gives-up", "run-it", "a-b--c", "run-it-1", "named"},
		slugs("# When `auto` gives up?\n\n## Run it\n```sh\n# no heading\n```\n### A, b & c\n## Run it\n## [Named](x.md)\n"))
	require.Equal(t, []string{"a.md", "b.png"}, links("[a](a.md) ![b](b.png)\n```sh\n[c](c.md)\n```\n<!-- [d](d.md) -->"))
}

type tree struct{ fs.FS }

func repository(t *testing.T) tree {
	t.Helper()
	_, err := os.Stat(filepath.Join("..", "go.mod"))
	require.NoError(t, err)
	return tree{os.DirFS("..")}
}

// files returns the text of each file whose name ends so, but for what is built or
// measured, and what tests read.
func (r tree) files(t *testing.T, suffix string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	require.NoError(t, fs.WalkDir(r, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch base := d.Name(); {
			case name == "bin", name == "reports", name == "data", base == "testdata", base == ".git":
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, suffix) && d.Type().IsRegular() {
			text, err := fs.ReadFile(r, name)
			found[name] = string(text)
			return err
		}
		return nil
	}))
	require.NotEmpty(t, found, suffix)
	return found
}

func (r tree) requireTarget(t *testing.T, from, file, anchor string) {
	t.Helper()
	_, err := fs.Stat(r, file)
	require.NoError(t, err, "%s links to it", from)
	if anchor == "" || path.Ext(file) != ".md" {
		return
	}
	text, err := fs.ReadFile(r, file)
	require.NoError(t, err)
	require.Contains(t, slugs(string(text)), anchor, "%s links to this heading of %s", from, file)
}

// links returns where a page's links and pictures lead.
func links(page string) []string {
	page = comment.ReplaceAllString(fence.ReplaceAllString(page, ""), "")
	var targets []string
	for _, m := range link.FindAllStringSubmatch(page, -1) {
		targets = append(targets, m[1])
	}
	return targets
}

// slugs returns the anchors that GitHub gives the headings of a page.
func slugs(page string) []string {
	var all []string
	seen := make(map[string]int)
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := link.ReplaceAllString(m[1], "]")
		slug := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		n := seen[slug]
		seen[slug]++
		if n > 0 {
			slug += "-" + strconv.Itoa(n)
		}
		all = append(all, slug)
	}
	return all
}
