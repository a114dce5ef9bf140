package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/admission/admissionhttp"
)

// The errors of this package match these, by errors.Is.
var (
	// ErrNotFound is returned when the key has no value.
	ErrNotFound = errors.New("the key has no value")
	// ErrCondition is returned when a condition does not hold. Nothing has changed.
	ErrCondition = errors.New("the condition does not hold")
	// ErrNotModified is returned by a Get whose caller has the present value.
	ErrNotModified = errors.New("the value has not changed")
	// ErrShed is returned when the service's queue has turned the request away. It has
	// had no effect.
	ErrShed = errors.New("the service has turned the request away")
	// ErrThrottled is returned for a request that was not sent, because the service has
	// turned away most of the recent ones.
	ErrThrottled = admissionhttp.ErrThrottled
)

// Error is an answer other than success.
type Error struct {
	// Status is the answer's status, such as 503.
	Status int
	// Detail explains it to people.
	Detail string
	// Shed is the reason for which the queue turned the request away, "" if it did not.
	Shed string
	// RetryAfter is how long to wait before a retry, 0 if the service did not say.
	RetryAfter time.Duration
	// ETag is the validator of the present value if a condition did not hold; "" if there
	// is no value.
	ETag string
	// Operations are those of a batch whose conditions do not hold.
	Operations []Refusal

	method string
}

// Refusal is an operation of a batch whose condition does not hold.
type Refusal struct {
	// Index is the place of the operation in the batch, from 0.
	Index int `json:"index"`
	// Status is 412.
	Status int `json:"status"`
	// ETag is the validator of the present value, "" if there is none.
	ETag string `json:"etag"`
}

// Error returns one line.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %d %s", e.method, e.Status, http.StatusText(e.Status))
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Is reports whether e matches one of the errors above.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrCondition:
		return e.Status == http.StatusPreconditionFailed
	case ErrNotModified:
		return e.Status == http.StatusNotModified
	case ErrShed:
		return e.Shed != ""
	}
	return false
}

// mostDetail is how much of an error's body is read.
const mostDetail = 256 << 10

// readError returns what an answer says.
func readError(method string, resp *http.Response) *Error {
	e := &Error{
		Status: resp.StatusCode, Shed: resp.Header.Get("Spillway-Shed"), ETag: unquoted(resp.Header.Get("ETag")), method: method,
	}
	after := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(after, 10, 31); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(after); err == nil {
		e.RetryAfter = max(0, time.Until(date))
	}
	var problem struct {
		Detail     string
		Operations []Refusal
	}
	if json.NewDecoder(io.LimitReader(resp.Body, mostDetail)).Decode(&problem) == nil {
		e.Detail, e.Operations = problem.Detail, problem.Operations
	}
	_, _ = io.CopyN(io.Discard, resp.Body, mostDetail) // so that the connection can be used again
	return e
}
