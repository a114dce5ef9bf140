package admissionhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
)

// Every request waits its turn, or gets 503 with Retry-After.
func ExampleHandler() {
	ctl, err := admission.New(admission.Options{Concurrency: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	srv := httptest.NewServer(admissionhttp.Handler(ctl, mux)) // or http.Server{Handler: …}
	defer srv.Close()

	resp, err := http.Get(srv.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
	// Output: 200 hello <nil>
}

// Who asks, how important it is and what it costs comes from a function of the request.
func ExampleOptions() {
	ctl, _ := admission.New(admission.Options{Concurrency: 16, Strategy: "fair"})
	h := admissionhttp.Options{
		Request: func(r *http.Request) admission.Request {
			user, _, _ := r.BasicAuth() // which somebody has checked before
			request := admission.Request{Client: user}
			if r.URL.Path == "/report" {
				request.Cost = 8
			}
			return request
		},
		Exempt:          func(r *http.Request) bool { return admissionhttp.HealthCheck(r) || r.URL.Path == "/metrics" },
		TooManyRequests: true, // 429 instead of 503
	}.Handler(ctl, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "places in use: ", ctl.Stats().InUse)
	}))
	for _, path := range []string{"/", "/report", "/metrics", "/healthz"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, w.Body)
	}
	// Output:
	// / places in use: 1
	// /report places in use: 8
	// /metrics places in use: 0
	// /healthz places in use: 0
}

// A long poll gives its place back while it waits for news.
func ExampleRelease() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1})
	news := make(chan string, 1)
	h := admissionhttp.Handler(ctl, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admissionhttp.Release(w)
		fmt.Println("places in use:", ctl.Stats().InUse)
		select {
		case text := <-news:
			_, _ = io.WriteString(w, text)
		case <-r.Context().Done():
		}
	}))
	news <- "it rains"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Body)
	// Output:
	// places in use: 0
	// it rains
}

// A server that stops serves what waits, for so long, before it shuts down.
func Example_shutdown() {
	ctl, _ := admission.New(admission.Options{Concurrency: 16})
	srv := &http.Server{Handler: admissionhttp.Handler(ctl, nil), ReadHeaderTimeout: time.Second}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(ctl.Drain(ctx))    // what comes is turned away: draining
	fmt.Println(srv.Shutdown(ctx)) // what is being answered is answered
	// Output:
	// <nil>
	// <nil>
}

// Health checks are let through unmeasured, unless Exempt says otherwise, as here.
func ExampleHealthCheck() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1})
	metrics := func(r *http.Request) bool { return r.URL.Path == "/metrics" }
	h := admissionhttp.Options{Exempt: metrics}.Handler(ctl, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "places in use: ", ctl.Stats().InUse)
	}))
	for _, path := range []string{"/healthz", "/metrics"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, w.Body)
	}
	// Output:
	// /healthz places in use: 1
	// /metrics places in use: 0
}

// A small body is read before its request waits, so that a client that hangs up is given up. The
// handler reads it as ever.
func ExampleOptions_bufferBody() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1})
	h := admissionhttp.Options{BufferBody: 1 << 20}.Handler(ctl, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("a question")))
	fmt.Println(w.Body)
	// Output: a question
}
