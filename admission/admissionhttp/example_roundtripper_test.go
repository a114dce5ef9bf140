package admissionhttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/spillway-go/spillway/admission/admissionhttp"
)

// Any client has the manners that a service under load needs: it comes again when the
// service says, within a budget, and holds itself back when it is refused often.
func ExampleRoundTripper() {
	turns := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if turns++; turns == 1 {
			w.Header().Set("Retry-After", "0")
			http.Error(w, "the queue is full", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "hello")
	}))
	defer service.Close()

	client := &http.Client{Transport: &admissionhttp.RoundTripper{}}
	resp, err := client.Get(service.URL)
	if errors.Is(err, admissionhttp.ErrThrottled) {
		fmt.Println("the service is overloaded, and was not asked")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "after", turns, "attempts")
	// Output: 200 OK after 2 attempts
}

// An order may have been taken although its answer was lost. With a key, by which the
// service knows it again, it is sent again all the same.
func ExampleRoundTripper_idempotencyKey() {
	orders := map[string]bool{}
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if !orders[key] {
			orders[key] = true
			panic(http.ErrAbortHandler)
		}
	}))
	defer service.Close()

	req, err := http.NewRequest(http.MethodPost, service.URL, strings.NewReader("a book"))
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
	resp, err := (&http.Client{Transport: &admissionhttp.RoundTripper{}}).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "for", len(orders), "order")
	// Output: 200 OK for 1 order
}
