package wire

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/admission"
)

// StatusOutcome returns what an answer with that status is to a concurrency that is
// learned.
func StatusOutcome(status int) admission.Outcome {
	const clientClosedRequest = 499 // of some proxies
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return admission.Dropped
	case http.StatusRequestTimeout, http.StatusTooManyRequests, clientClosedRequest:
		return admission.Ignored // it is the client's fault, or its own limit
	}
	if status >= http.StatusInternalServerError {
		return admission.Failed
	}
	return admission.Good
}

// moment is by how much a client that hangs up at its deadline may seem to do so before it.
// The server hears of both at about the same time, in any order.
const moment = 10 * time.Millisecond

// Outcome returns that of a request that has ended as how says, unless its context had
// ended by then. If that was at its deadline, it was too late, even if nobody has ended the
// context yet. Otherwise its client has left, and nobody knows what would have become of it.
func Outcome(ctx context.Context, how admission.Outcome) admission.Outcome {
	if how == admission.Ignored {
		return how
	}
	left := time.Duration(math.MaxInt64)
	if d, ok := ctx.Deadline(); ok {
		left = time.Until(d)
	}
	switch ended := ctx.Err() != nil; {
	case left <= 0, ended && left < moment:
		return admission.Dropped
	case ended:
		return admission.Ignored
	default:
		return how
	}
}
