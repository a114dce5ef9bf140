package admissionhttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
	"github.com/spillway-go/spillway/admission/internal/adaptertest"
)

// broken is a writer that cannot flush, or fails to.
type broken struct {
	*httptest.ResponseRecorder
	err error
}

func (b broken) FlushError() error { return b.err }

// An attempt that sends nothing is no answer: the handler is still at work on that.
func TestHandler_NotYetAnAnswer(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, row := range []struct {
		name    string
		w       func(*httptest.ResponseRecorder) http.ResponseWriter
		attempt func(http.ResponseWriter) error
	}{
		{
			"a flush that the writer cannot do", func(w *httptest.ResponseRecorder) http.ResponseWriter { return struct{ http.ResponseWriter }{w} },
			func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
		},
		{
			"a flush that fails", func(w *httptest.ResponseRecorder) http.ResponseWriter { return broken{w, failed} },
			func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
		},
		{
			"a flush by who does not look whether it fails", func(w *httptest.ResponseRecorder) http.ResponseWriter { return broken{w, failed} },
			func(w http.ResponseWriter) error { w.(http.Flusher).Flush(); return failed },
		},
		{
			"a copy from what cannot be read", func(w *httptest.ResponseRecorder) http.ResponseWriter { return w },
			func(w http.ResponseWriter) error { _, err := io.Copy(w, iotest.ErrReader(failed)); return err },
		},
		{
			"a hijack of what cannot be", func(w *httptest.ResponseRecorder) http.ResponseWriter { return w },
			func(w http.ResponseWriter) error { _, _, err := http.NewResponseController(w).Hijack(); return err },
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := adaptertest.Open(t, admission.Options{MinConcurrency: 1, MaxConcurrency: 1})
			h := admissionhttp.Options{Hold: admissionhttp.HoldHeaders}.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				require.Error(t, row.attempt(w))
				require.Equal(t, 1, c.Stats().InUse)
				w.WriteHeader(http.StatusServiceUnavailable)
				require.Zero(t, c.Stats().InUse)
				require.EqualValues(t, 1, c.Stats().Learned.Dropped)
			}))
			w := httptest.NewRecorder()
			h.ServeHTTP(row.w(w), httptest.NewRequest(http.MethodGet, "/", nil))
			require.Equal(t, http.StatusServiceUnavailable, w.Code)
		})
	}
}

// What can be read is an answer, however much it is.
func TestHandler_Copies(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	for _, size := range []int{0, 1, 511, 512, 513, 100_000} {
		text := strings.Repeat("x", size)
		_, client := serve(t, c, admissionhttp.Options{Hold: admissionhttp.HoldHeaders}.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n, err := io.Copy(w, struct{ io.Reader }{strings.NewReader(text)})
			require.NoError(t, err)
			require.EqualValues(t, size, n)
			if size > 0 {
				require.Zero(t, c.Stats().InUse)
			}
		})))
		resp, err := client.Do(t.Context(), "/", nil)
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, text, string(b))
	}
}

// A writer can hand the connection over, and flush, if one that it unwraps to can. Then the
// places come back at an upgrade, whichever way the handler asks for it.
func TestHandler_HijacksThroughOthers(t *testing.T) {
	t.Parallel()
	for name, hijack := range map[string]func(http.ResponseWriter) error{
		"by a type assertion": func(w http.ResponseWriter) error {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
			return err
		},
		"by the controller": func(w http.ResponseWriter) error {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := adaptertest.Open(t, admission.Options{Concurrency: 1})
			h := admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, canFlush := w.(http.Flusher)
				require.True(t, canFlush)
				require.NoError(t, hijack(w))
				require.Zero(t, c.Stats().InUse)
			}))
			_, client := serve(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unwrapper{w}, r) }))
			require.Error(t, client.Call(t.Context(), "/").Err)
		})
	}
}

// A CONNECT that is accepted is an upgrade, also over HTTP/2 (RFC 8441). What its client sends
// is no body, which might be read.
func TestHandler_Connect(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	for _, row := range []struct{ status, inUse int }{{http.StatusOK, 0}, {http.StatusForbidden, 1}} {
		never, _ := io.Pipe()
		admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(row.status)
			require.Equal(t, row.inUse, c.Stats().InUse)
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodConnect, "/", never))
	}
}
