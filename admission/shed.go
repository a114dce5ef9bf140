package admission

import (
	"errors"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// ErrShed matches every error of Acquire, by errors.Is.
var ErrShed = errors.New("admission: shed")

// ErrClosed matches the errors of Acquire after Close, by errors.Is.
var ErrClosed = errors.New("admission: the controller is closed")

// ShedError is the error for a request that was turned away. It got no places.
type ShedError struct {
	// Reason says why: one of strategies.Reasons, or of the strategy's own reasons.
	Reason strategies.Reason
	// RetryAfter is how long to wait before trying again: about as long as the queue takes
	// to drain, in whole seconds, 1 to 30. It is 0 if the request's own context ended.
	RetryAfter time.Duration

	cause  error // of the context, nil if that had not ended
	closed bool
}

const longestRetry = 30 * time.Second

// Error says why the request was turned away.
func (s *ShedError) Error() string {
	if s.closed {
		return ErrClosed.Error()
	}
	return ErrShed.Error() + ": " + s.Reason.String()
}

// Is reports whether target is ErrShed or, after Close, ErrClosed.
func (s *ShedError) Is(target error) bool {
	return target == ErrShed || s.closed && target == ErrClosed
}

// Unwrap returns the error of the context if that ended, or nil.
func (s *ShedError) Unwrap() error { return s.cause }

// refused calls Options.Shed for a request that was turned away, and returns the error.
func (c *Controller) refused(e Event, cause error) error {
	s := &ShedError{Reason: e.Reason, cause: cause, closed: c.closed.Load()}
	if s.Reason != strategies.ReasonExpired && s.Reason != strategies.ReasonAbandoned {
		s.RetryAfter = min(max(c.engine.DrainTime().Truncate(time.Second)+time.Second, time.Second), longestRetry)
	}
	if c.opts.Shed != nil {
		c.opts.Shed(e)
	}
	return s
}
