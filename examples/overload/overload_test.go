package overload

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Each variant serves what the resource can do, and loses nothing that it has let in.
func TestVariants(t *testing.T) {
	t.Parallel()
	for name, before := range Variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := before(resource())
			var all sync.WaitGroup
			for range places {
				all.Go(func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
					if w.Code != http.StatusOK || w.Body.String() != "done\n" {
						t.Errorf("%d %q", w.Code, w.Body)
					}
				})
			}
			all.Wait()
		})
	}
	if err := run([]string{"nonsense", "0"}); err == nil {
		t.Error("no error for a variant that is not there")
	}
}
