// Package served describes requests that were answered, for the access log and traces. It has
// no part in how they are answered.
package served

import (
	"bytes"

	"github.com/spillway-go/spillway/internal/slowest"
)

// Outcome is what became of a request, for those who count.
type Outcome uint8

const (
	// OK is a good answer: of the service, or of the upstream.
	OK Outcome = iota
	// Shed is that the queueing layer turned it away.
	Shed
	// Error is any other answer, also one by which a front refused a request.
	Error
	// Outcomes is how many there are.
	Outcomes
)

func (o Outcome) String() string { return [Outcomes]string{"ok", "shed", "error"}[o] }

// Request is a request that was answered. Whoever gets it must not keep it, or anything
// that it refers to.
type Request struct {
	slowest.Request
	Outcome Outcome
	// Path is that of the target, as it was sent: see PathOf.
	Path []byte
	// Operation is what the work was: one of the store, or upstream; empty if there was none.
	Operation string
	// Client is whom the request counted for, hashed where it may be a secret.
	Client string
	// Priority is from 0, the most important, to 7.
	Priority uint8
	// TraceID is that of the trace which the request is part of: 32 hexadecimal digits, or
	// empty.
	TraceID string
}

// PathOf returns the path of a target, without its query and its parameters, and cut off if it
// is long.
func PathOf(target []byte) []byte {
	if end := bytes.IndexAny(target, "?;#"); end >= 0 {
		target = target[:end]
	}
	return target[:min(len(target), longestPath)]
}

const longestPath = 256

// Tracer begins the spans of requests.
type Tracer interface {
	// Start begins that of a request which came at that time, on the clock of requests, with
	// these headers, nil for none.
	Start(traceparent, tracestate []byte, arrived int64) Span
}

// Span is the part of a trace that is a request. One goroutine at a time may use it.
type Span interface {
	// Lines appends the header lines, each with its end, by which the next server goes on
	// with the trace.
	Lines(dst []byte) []byte
	// End ends it, and sets r.TraceID.
	End(r *Request)
}

// TraceID returns the identifier of the trace in a traceparent (W3C Trace Context), empty if it
// is malformed.
func TraceID(traceparent []byte) string {
	const id, length = 32, len("00-") + 32 + len("-") + 16 + len("-00")
	if len(traceparent) < length || traceparent[2] != '-' || traceparent[3+id] != '-' {
		return ""
	}
	digits := traceparent[3 : 3+id]
	if len(bytes.Trim(digits, "0")) == 0 || len(bytes.Trim(digits, "0123456789abcdef")) > 0 {
		return ""
	}
	return string(digits)
}
