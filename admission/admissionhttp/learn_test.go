package admissionhttp_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
	"github.com/spillway-go/spillway/admission/internal/adaptertest"
)

// A concurrency that is learned goes by the headers of an answer, while its place is kept
// until the end.
func TestHandler_LearnsFromHeaders(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{MinConcurrency: 2, MaxConcurrency: 2})
	end := make(chan struct{})
	s, _ := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/overloaded" {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			w.WriteHeader(http.StatusNotFound)
		}
		_ = http.NewResponseController(w).Flush()
		<-end
	})))
	var answers []*http.Response
	for i, path := range []string{"/absent", "/overloaded"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
		require.NoError(t, err)
		answer, err := s.Client().Do(r)
		require.NoError(t, err)
		answers = append(answers, answer)
		stats := c.Stats()
		require.EqualValues(t, i, stats.Learned.Dropped, "what merely says no is served")
		require.Equal(t, i+1, stats.InUse)
	}
	close(end)
	for _, answer := range answers {
		_, err := io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
	}
	require.Eventually(t, func() bool { return c.Stats().InUse == 0 }, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, c.Stats().Learned.Dropped)
}

// What its client gives up before it is answered, and what panics, tells nothing.
func TestHandler_LearnsFromWhatIsNotAnswered(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{MinConcurrency: 2, MaxConcurrency: 2})
	begun := make(chan struct{})
	s, _ := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic(http.ErrAbortHandler)
		}
		close(begun)
		<-r.Context().Done()
	})))
	get := func(ctx context.Context, path string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, http.NoBody)
		require.NoError(t, err)
		answer, err := s.Client().Do(r)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	require.Error(t, get(t.Context(), "/panic"))
	require.Zero(t, c.Stats().Learned.Dropped)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	require.Error(t, get(ctx, "/slow"))
	adaptertest.InUse(t, c, 0)
	require.Zero(t, c.Stats().Learned.Dropped)
}
