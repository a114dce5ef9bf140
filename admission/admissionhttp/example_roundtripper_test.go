package admissionhttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

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
