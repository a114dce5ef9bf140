package admin

import (
	"context"
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/backup"
	"github.com/spillway-go/spillway/internal/openapi"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/strategies"
)

// Every path is in docs/openapi.yaml, and is answered as that says.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	d, err := openapi.Read()
	require.NoError(t, err)
	source, err := os.ReadFile("routes.go")
	require.NoError(t, err)
	var served []string
	for _, m := range regexp.MustCompile(`\{path: "([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		if path := strings.TrimSuffix(m[1], "{$}"); !strings.HasPrefix(path, "/debug/pprof/") || path == "/debug/pprof/" {
			served = append(served, path)
		}
	}
	slices.Sort(served)
	require.Equal(t, served, d.Paths(true))

	change := d.Operation(http.MethodPut, "/strategy")
	for _, name := range strategies.Names() {
		require.NoError(t, change.CheckBody(`{"strategy":"`+name+`"}`))
	}
	for _, body := range []string{`{}`, `{"strategy":""}`, `{"strategy":null,"capacity":9}`, `{"slo":null}`, `{"workers":0}`, `{"more":1}`} {
		require.Error(t, change.CheckBody(body), body)
	}

	unready, dir := false, "/somewhere/new"
	options := Options{
		Ready: func() error {
			if unready {
				return errors.New("starting")
			}
			return nil
		},
		Backup: func(_ context.Context, dir string) (backup.Result, error) {
			return backup.Result{Dir: dir, Files: 1}, nil
		},
	}
	p := open(t, options)
	options.Token = secure.NewToken("secret")
	closed := open(t, options)
	bodies := map[string]string{"PUT /strategy": `{"strategy":"lifo"}`, "POST /backup": `{"dir":"` + dir + `"}`}
	for _, path := range d.Paths(true) {
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"} {
			op := d.Operation(method, path)
			if method == http.MethodHead && op == nil {
				op = d.Operation(http.MethodGet, path) // as HTTP has it
			}
			if op == nil {
				a := p.do(method, path, "")
				require.Equal(t, http.StatusMethodNotAllowed, a.status, "%s %s", method, path)
				continue
			}
			if path == "/console/events" {
				continue // it does not end
			}
			check := func(a answer, status int) {
				t.Helper()
				require.Equal(t, status, a.status, "%s %s", method, path)
				require.NoError(t, op.Check(method, a.status, a.header, a.body), "%s %s", method, path)
			}
			check(p.do(method, path, bodies[method+" "+path]), http.StatusOK)
			if slices.Contains(op.Statuses(), http.StatusUnauthorized) {
				check(closed.do(method, path, ""), http.StatusUnauthorized)
			} else {
				check(closed.do(method, path, ""), http.StatusOK)
			}
			if slices.Contains(op.Statuses(), http.StatusForbidden) && (method == "PUT" || method == "POST") {
				check(p.do(method, path, "", "Sec-Fetch-Site", "cross-site"), http.StatusForbidden)
				check(p.do(method, path, "{"), http.StatusBadRequest)
			}
		}
	}
	unready = true
	a := p.do(http.MethodGet, "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NoError(t, d.Operation(http.MethodGet, "/readyz").Check(http.MethodGet, a.status, a.header, a.body))
}
