// Package admissionhttp puts the queues of package admission in front of net/http's handlers.
//
//	srv := &http.Server{Handler: admissionhttp.Handler(ctl, mux)}
//
// Its [RoundTripper] is for the client's side: it retries what was refused, and throttles itself.
//
//	client := &http.Client{Transport: &admissionhttp.RoundTripper{}}
package admissionhttp
