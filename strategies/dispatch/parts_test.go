package dispatch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The parts of the package, by what they may not know: the workers and the places each other, and what both stand on
// neither.
var parts = []struct {
	files   []string // none: all others
	unknown []string
}{
	{[]string{"dispatcher.go", "gate.go", "idle.go", "turn.go", "workers.go"}, []string{"Places", "places", "gathering"}},
	{[]string{"gather.go", "places.go", "resource.go"}, []string{"Dispatcher", "workers", "worker", "idleStack", "gate"}},
	{nil, []string{"Dispatcher", "workers", "worker", "idleStack", "gate", "Places", "places", "gathering"}},
}

func TestParts_KnowNothingOfEachOther(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		for _, p := range parts {
			if p.files != nil && !slices.Contains(p.files, e.Name()) {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && slices.Contains(p.unknown, id.Name) {
					t.Errorf("%s uses %s", e.Name(), id.Name)
				}
				return true
			})
			break
		}
	}
}
