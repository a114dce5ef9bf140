package admission_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An adapter brings what it adapts, and nothing else of the project or of others. What an
// adapter's own dependency imports is its own affair.
func TestAdapters_ImportWhatTheyAdaptAlone(t *testing.T) {
	t.Parallel()
	const module = "github.com/spillway-go/spillway/"
	for adapter, allowed := range map[string][]string{
		"internal/wire":      nil,
		"internal/restraint": nil,
		"admissionhttp":      nil,
		"admissionfasthttp":  {"github.com/valyala/fasthttp"},
		"admissionprom":      {"github.com/prometheus/client_golang/prometheus"},
		"admissionotel":      {"go.opentelemetry.io/otel"},
		"admissiongrpc":      {"google.golang.org/grpc", "google.golang.org/genproto/googleapis/rpc/errdetails"},
	} {
		cmd := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".")
		cmd.Dir = adapter
		var wrong strings.Builder // which go list also tells of what it downloads
		cmd.Stderr = &wrong
		out, err := cmd.Output()
		require.NoError(t, err, wrong.String())
		for imported := range strings.FieldsSeq(string(out)) {
			first, _, _ := strings.Cut(imported, "/")
			ok := !strings.Contains(first, ".") // the standard library
			for _, a := range append(allowed, module+"admission", module+"strategies") {
				ok = ok || imported == a || strings.HasPrefix(imported, a+"/")
			}
			require.True(t, ok, "%s imports %s", adapter, imported)
		}
	}
}
