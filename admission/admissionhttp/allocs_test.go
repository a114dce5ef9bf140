//go:build !race

// The race detector allocates.

package admissionhttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
)

// A request that need not wait costs two allocations more than without: of its writer, and of
// the copy of the request that has its context. net/http offers no other way to set that.
func TestHandler_Allocs(t *testing.T) {
	c, err := admission.New(admission.Options{Concurrency: 1})
	require.NoError(t, err)
	h := admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), 2.0)
}
