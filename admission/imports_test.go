package admission_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the library pulls in is the standard library alone, and itself.
func TestImports(t *testing.T) {
	t.Parallel()
	out := run(t, ".", nil, "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
		modulePath+"/admission", modulePath+"/strategies", modulePath+"/strategies/dispatch")
	require.ElementsMatch(t, []string{
		modulePath + "/admission", modulePath + "/strategies", modulePath + "/strategies/concurrency", modulePath + "/strategies/dispatch",
		modulePath + "/strategies/health",
	}, strings.Fields(out))
}

// An adapter brings what it adapts, and nothing else of the project or of others. What an
// adapter's own dependency imports is its own affair.
func TestAdapters_ImportWhatTheyAdaptAlone(t *testing.T) {
	t.Parallel()
	for adapter, allowed := range map[string][]string{
		"internal/instruments": nil,
		"internal/wire":        nil,
		"internal/restraint":   nil,
		"admissionhttp":        nil,
		"admissionfasthttp":    {"github.com/valyala/fasthttp"},
		"admissionprom":        {"github.com/prometheus/client_golang/prometheus"},
		"admissionotel":        {"go.opentelemetry.io/otel"},
		"admissiongrpc":        {"google.golang.org/grpc", "google.golang.org/genproto/googleapis/rpc/errdetails"},
	} {
		for imported := range strings.FieldsSeq(run(t, adapter, nil, "go", "list", "-f", `{{join .Imports "\n"}}`, ".")) {
			first, _, _ := strings.Cut(imported, "/")
			ok := !strings.Contains(first, ".") // the standard library
			for _, a := range append(allowed, modulePath+"/admission", modulePath+"/strategies") {
				ok = ok || imported == a || strings.HasPrefix(imported, a+"/")
			}
			require.True(t, ok, "%s imports %s", adapter, imported)
		}
	}
}
