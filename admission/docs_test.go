package admission_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lines of docs/library.md compile. Those of gRPC are another module's: its example
// has them.
func TestDocs_LibraryCompiles(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^(\w+(?:, \w+)*) :=`)
	var code strings.Builder
	code.WriteString(`package snippets

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionfasthttp"
	"github.com/spillway-go/spillway/admission/admissionhttp"
	"github.com/spillway-go/spillway/admission/admissionprom"
)

var (
	call     func(context.Context, string) error
	ctx      context.Context
	ctl      *admission.Controller
	err      error
	handler  fasthttp.RequestHandler
	mux      *http.ServeMux
	replicas []string
	req      *http.Request
	srv      *http.Server
	tenant   string
	_        = admissionhttp.Handler
	_        = admissionfasthttp.Handler
	_        = admissionprom.New
	_        = prometheus.MustRegister
)
`)
	blocks := blocks(t, "../docs/library.md", "go", "")
	require.GreaterOrEqual(t, len(blocks), 7)
	for i, b := range blocks {
		if strings.Contains(b, "grpc.") {
			continue
		}
		fmt.Fprintf(&code, "\nfunc block%d() {\n%s", i, b)
		for _, names := range declared.FindAllStringSubmatch(b, -1) {
			for name := range strings.SplitSeq(names[1], ", ") {
				fmt.Fprintf(&code, "_ = %s\n", name)
			}
		}
		code.WriteString("}\n")
	}
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "snippets.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, []byte(code.String()), 0o600))
	here, err := os.Getwd()
	require.NoError(t, err)
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "internal", "snippets", "snippets.go"): file}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replaced, 0o600))
	run(t, ".", nil, "go", "build", "-overlay", overlay, "./internal/snippets")
}
