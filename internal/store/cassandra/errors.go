package cassandra

import (
	"context"
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/spillway-go/spillway/internal/store"
)

// failure tells what an error of the driver says of the attempt that failed.
type failure uint8

const (
	// refused: it has not begun, as too few replicas could be reached.
	refused failure = iota
	// late: it has begun, and did not end in time.
	late
	// broken: it may have begun; what became of it nobody has said.
	broken
	// rejected: it has not begun, and never will as long as the cluster is set
	// up as it is.
	rejected
	closed
)

func classify(err error) failure {
	if said, ok := errors.AsType[gocql.RequestError](err); ok {
		switch said.Code() {
		case gocql.ErrCodeUnavailable, gocql.ErrCodeBootstrapping:
			return refused
		case gocql.ErrCodeReadTimeout, gocql.ErrCodeWriteTimeout:
			return late
		case gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized, gocql.ErrCodeInvalid, gocql.ErrCodeConfig,
			gocql.ErrCodeProtocol, gocql.ErrCodeCredentials:
			return rejected
		}
		return broken
	}
	switch {
	case errors.Is(err, gocql.ErrSessionClosed):
		return closed
	case errors.Is(err, gocql.ErrNoConnections), errors.Is(err, gocql.ErrNoStreams):
		return refused
	case errors.Is(err, gocql.ErrTimeoutNoResponse), errors.Is(err, context.DeadlineExceeded):
		return late
	}
	return broken // connections that ended
}

// readError says what the driver's error means for a read.
func readError(err error) error {
	switch classify(err) {
	case late:
		return fmt.Errorf("%w: %w", store.ErrTimeout, err)
	case rejected:
		return err
	case closed:
		return store.ErrClosed
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// writeError says what the driver's error means for a write. The error is that of
// the last attempt; begun says that an earlier one may have had an effect.
func writeError(err error, begun bool) error {
	f := classify(err)
	switch {
	case f == closed && !begun:
		return store.ErrClosed
	case f == late:
		return fmt.Errorf("%w: %w: %w", store.ErrUnknownOutcome, store.ErrTimeout, err)
	case f == broken || begun:
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	case f == refused:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

// oneMore is the retry policy: a second attempt, at another node, if it could end
// differently there. What is invalid for one may be valid for another, which has
// heard of the table already.
type oneMore struct{}

// Attempt reports whether the operation may be sent again.
func (oneMore) Attempt(q gocql.RetryableQuery) bool { return q.Attempts() < 2 }

// GetRetryType tells how.
func (oneMore) GetRetryType(err error) gocql.RetryType {
	if said, ok := errors.AsType[gocql.RequestError](err); ok {
		switch said.Code() {
		case gocql.ErrCodeUnavailable, gocql.ErrCodeBootstrapping, gocql.ErrCodeOverloaded, gocql.ErrCodeInvalid:
		default:
			return gocql.Rethrow
		}
	}
	return gocql.RetryNextHost
}

// remembering is the retry policy of one write, and knows what its attempts came to.
type remembering struct {
	oneMore
	begun bool // an attempt may have had an effect
}

// GetRetryType is called after every attempt that failed, except if its time was
// over.
func (r *remembering) GetRetryType(err error) gocql.RetryType {
	if f := classify(err); f != refused && f != rejected {
		r.begun = true
	}
	return r.oneMore.GetRetryType(err)
}
