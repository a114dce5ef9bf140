package wire

import (
	"net/http"

	"github.com/spillway-go/spillway/admission"
)

// StatusOutcome returns what an answer with that status tells a concurrency that is
// learned.
func StatusOutcome(status int) admission.Outcome {
	const clientClosedRequest = 499 // of some proxies
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return admission.Dropped
	case http.StatusRequestTimeout, http.StatusTooManyRequests, clientClosedRequest:
		return admission.Unmeasured // it is the client's fault, or its own limit
	default:
		return admission.Good
	}
}
