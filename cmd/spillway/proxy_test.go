package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/config"
)

// What is shown of the proxy's configuration, and offered by its help, is what its code
// reads of it.
func TestProxy_ShowsWhatItReads(t *testing.T) {
	t.Parallel()
	settings := map[string]string{} // names of variables, by their fields
	for _, of := range []any{config.Config{}, config.Forward{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			settings[f.Name] = "SPILLWAY_" + strings.ToUpper(strings.ReplaceAll(f.Tag.Get("name"), "-", "_"))
		}
	}
	read := map[string]bool{}
	for _, name := range []string{"proxy.go", "reload.go", "records.go", "log.go"} { // c is its Config, and f its Forward
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := s.X.(*ast.Ident); ok && (of.Name == "c" || of.Name == "f") && settings[s.Sel.Name] != "" {
					read[settings[s.Sel.Name]] = true
				}
			}
			return true
		})
	}
	shown := map[string]bool{}
	for name := range (&config.Invocation{Command: config.Proxy}).Redacted() {
		shown[name] = true
	}
	require.Equal(t, read, shown)
}
