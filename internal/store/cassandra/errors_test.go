package cassandra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
)

// said is an answer of a node that it could not do what it was asked.
type said int

func (s said) Code() int       { return int(s) }
func (s said) Message() string { return "no" }
func (s said) Error() string   { return fmt.Sprintf("code %#x", int(s)) }

var _ gocql.RequestError = said(0)

func TestErrors_SayWhatBecameOfTheOperation(t *testing.T) {
	t.Parallel()
	unknown, timeout, unavailable := store.ErrUnknownOutcome, store.ErrTimeout, store.ErrUnavailable
	for _, tt := range []struct {
		err   error
		read  []error // what the error of a read is
		write []error // what that of a write is
		retry gocql.RetryType
	}{
		// A node that knows that too few replicas are up has not begun.
		{said(gocql.ErrCodeUnavailable), []error{unavailable}, []error{unavailable}, gocql.RetryNextHost},
		{said(gocql.ErrCodeBootstrapping), []error{unavailable}, []error{unavailable}, gocql.RetryNextHost},
		// Nor has anything been sent without a node to send it to.
		{gocql.ErrNoConnections, []error{unavailable}, []error{unavailable}, gocql.RetryNextHost},
		{gocql.ErrNoStreams, []error{unavailable}, []error{unavailable}, gocql.RetryNextHost},
		// Replicas that are late may still do it, through whichever node.
		{said(gocql.ErrCodeWriteTimeout), []error{timeout}, []error{unknown, timeout}, gocql.Rethrow},
		{said(gocql.ErrCodeReadTimeout), []error{timeout}, []error{unknown, timeout}, gocql.Rethrow},
		// A node that does not answer may have begun; another may answer.
		{gocql.ErrTimeoutNoResponse, []error{timeout}, []error{unknown, timeout}, gocql.RetryNextHost},
		{context.DeadlineExceeded, []error{timeout}, []error{unknown, timeout}, gocql.RetryNextHost},
		// So may one whose connection has ended, or one in trouble.
		{gocql.ErrConnectionClosed, []error{unavailable}, []error{unknown}, gocql.RetryNextHost},
		{io.EOF, []error{unavailable}, []error{unknown}, gocql.RetryNextHost},
		{syscall.ECONNRESET, []error{unavailable}, []error{unknown}, gocql.RetryNextHost},
		{said(gocql.ErrCodeOverloaded), []error{unavailable}, []error{unknown}, gocql.RetryNextHost},
		{said(gocql.ErrCodeServer), []error{unavailable}, []error{unknown}, gocql.Rethrow},
		{said(gocql.ErrCodeWriteFailure), []error{unavailable}, []error{unknown}, gocql.Rethrow},
		{said(gocql.ErrCodeReadFailure), []error{unavailable}, []error{unknown}, gocql.Rethrow},
		// What the cluster will not have it will not have later either, but a node
		// may be the last to hear of a table.
		{said(gocql.ErrCodeUnauthorized), nil, nil, gocql.Rethrow},
		{said(gocql.ErrCodeInvalid), nil, nil, gocql.RetryNextHost},
		{gocql.ErrSessionClosed, []error{store.ErrClosed}, []error{store.ErrClosed}, gocql.RetryNextHost},
	} {
		t.Run(tt.err.Error(), func(t *testing.T) {
			t.Parallel()
			all := []error{unknown, timeout, unavailable, store.ErrClosed, store.ErrNotFound, store.ErrUnwritable}
			requireKinds(t, all, tt.read, readError(tt.err))
			requireKinds(t, all, tt.write, writeError(tt.err, false))
			require.Equal(t, tt.retry, oneMore{}.GetRetryType(tt.err))

			// Of a write that was sent before, the end of the second attempt says
			// nothing of the first.
			require.ErrorIs(t, writeError(tt.err, true), unknown)

			// Unless the first had not begun either.
			var r remembering
			require.Equal(t, tt.retry, r.GetRetryType(tt.err))
			if !errors.Is(tt.err, gocql.ErrSessionClosed) {
				require.Equal(t, errors.Is(writeError(tt.err, false), unknown), r.begun)
			}
			was := r.begun
			r.GetRetryType(said(gocql.ErrCodeUnavailable))
			require.Equal(t, was, r.begun, "what has begun stays so")
		})
	}
}

// requireKinds asserts that err is of the kinds in want, and of no other of all.
func requireKinds(t *testing.T, all, want []error, err error) {
	t.Helper()
	require.Error(t, err)
	for _, kind := range all {
		is := false
		for _, w := range want {
			is = is || errors.Is(w, kind)
		}
		require.Equal(t, is, errors.Is(err, kind), "%v is %v", err, kind)
	}
}

// sent is an operation that was sent so many times.
type sent struct {
	gocql.RetryableQuery
	attempts int
}

func (s sent) Attempts() int { return s.attempts }

func TestRetry_SendsOnceMore(t *testing.T) {
	t.Parallel()
	require.True(t, oneMore{}.Attempt(sent{attempts: 1}))
	require.False(t, oneMore{}.Attempt(sent{attempts: 2}))
}
