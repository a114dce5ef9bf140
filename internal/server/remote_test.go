package server

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/store"
)

// remoteStore is the store in memory as if it were on other machines.
type remoteStore struct {
	*memStore
	terms chan store.Terms
}

func (r *remoteStore) GetUnder(t store.Terms, dst, key []byte) ([]byte, store.Meta, error) {
	r.terms <- t
	return r.Get(dst, key)
}

func (r *remoteStore) ApplyUnder(t store.Terms, writes []store.Write) error {
	r.terms <- t
	_, err := r.Apply(writes)
	return err
}

// What a request asks of a distributed store gets there.
func TestRemote_TermsReachTheStore(t *testing.T) {
	t.Parallel()
	epoch := time.Now()
	remote := &remoteStore{memStore: newMemStore(), terms: make(chan store.Terms, 1)}
	exec := executor.Open(executor.Options{Store: remote, Epoch: epoch})
	s := serve(t, "fifo", func(o *setup) {
		o.queue.Run, o.queue.MaxBatch, o.queue.Epoch = exec.Run, 1, epoch
	})
	t.Cleanup(func() {
		s.stop()
		exec.Close()
	})
	c := s.dial()
	for value, want := range map[string]store.Consistency{
		"": store.ConsistencyDefault, "one": store.ConsistencyOne, "quorum": store.ConsistencyQuorum, "all": store.ConsistencyAll,
	} {
		header := ""
		if value != "" {
			header = "Spillway-Consistency: " + value + "\n"
		}
		for _, request := range []string{"GET", "HEAD", "DELETE", "PUT"} {
			length := ""
			if request == "PUT" {
				length = "Content-Length: 0\n"
			}
			c.do(request + " /v0/entity?id=a" + host + header + length + "\n")
			require.Equal(t, store.Terms{Consistency: want}, <-remote.terms, "%s %s", request, value)
		}
	}

	before := time.Now()
	c.do("GET /v0/entity?id=a" + host + "Spillway-Timeout-Ms: 3600000\n\n")
	terms := <-remote.terms
	require.False(t, terms.Deadline.Before(before.Add(time.Hour)))
	require.False(t, terms.Deadline.After(time.Now().Add(time.Hour)))
}

// What a distributed store cannot say is no other answer: not an absent key, not
// a write that was done, and the details tell a client what it may do.
func TestRemote_Errors(t *testing.T) {
	t.Parallel()
	timeout, unavailable := fmt.Errorf("%w: %w", store.ErrTimeout, errTest), fmt.Errorf("%w: %w", store.ErrUnavailable, errTest)
	late := fmt.Errorf("%w: %w", store.ErrUnknownOutcome, timeout)
	for _, tt := range []struct {
		err    error
		write  bool
		status int
		detail string
	}{
		{timeout, false, 503, "not enough replicas have answered the read in time"},
		{timeout, true, 503, "not begun in time and has had no effect"},
		{late, true, 503, "the outcome of the write is unknown: not enough replicas have acknowledged it in time"},
		{errUnknown, true, 503, "the outcome of the write is unknown"},
		{fmt.Errorf("%w: %w", executor.ErrInDoubt, errUnknown), true, 503, "what the write depends on is unknown: an earlier write of it was not made durable, and the store has not recovered yet; the write has had no effect"},
		{fmt.Errorf("%w: %w", executor.ErrInDoubt, errUnknown), false, 503, "what is stored here is unknown"},
		{unavailable, false, 503, "too few replicas"},
		{unavailable, true, 503, "too few replicas of the key can be reached at the moment; the write has had no effect"},
		{fmt.Errorf("%w: %w", errors.ErrUnsupported, errTest), false, 501, "or use the embedded store"},
	} {
		bad := storeProblem(tt.err, tt.write)
		require.Equal(t, tt.status, bad.Status, tt.detail)
		require.Contains(t, bad.Detail, tt.detail)
		require.Empty(t, bad.Lines)
	}
}
