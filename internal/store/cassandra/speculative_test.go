package cassandra

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
)

// underWay returns a speculation beside so many operations under way.
func underWay(operations int, delay time.Duration) *speculation {
	s := &speculation{delay: delay, slots: make(chan struct{}, 100)}
	for range operations {
		s.slots <- struct{}{}
	}
	return s
}

func TestSpeculation_TakesTheFirstAnswer(t *testing.T) {
	t.Parallel()
	const delay, limit = 10 * time.Millisecond, time.Second
	failed, other := errors.New("failed"), errors.New("failed elsewhere")
	// attempt is what one of the two comes to, unless it is given up before.
	type attempt struct {
		takes time.Duration
		value string
		err   error
	}
	never := attempt{takes: time.Hour}
	for _, tt := range []struct {
		name          string
		first, second attempt
		value         string
		err           error
		took          time.Duration
		attempts      int
	}{
		{"it is fast", attempt{delay - 1, "first", nil}, never, "first", nil, delay - 1, 1},
		{"it fails fast", attempt{delay - 1, "", failed}, never, "", failed, delay - 1, 1},
		{"the second is faster", never, attempt{delay, "second", nil}, "second", nil, 2 * delay, 2},
		{"the second finds that there is nothing", never, attempt{delay, "", store.ErrNotFound}, "", store.ErrNotFound, 2 * delay, 2},
		{"the first is faster after all", attempt{2 * delay, "first", nil}, never, "first", nil, 2 * delay, 2},
		{"the first finds nothing after all", attempt{2 * delay, "", store.ErrNotFound}, never, "", store.ErrNotFound, 2 * delay, 2},
		{"the second fails", attempt{5 * delay, "first", nil}, attempt{0, "", other}, "first", nil, 5 * delay, 2},
		{"the first fails, then the second answers", attempt{2 * delay, "", failed}, attempt{3 * delay, "second", nil}, "second", nil, 4 * delay, 2},
		{"both fail, the first first", attempt{2 * delay, "", failed}, attempt{3 * delay, "", other}, "", failed, 4 * delay, 2},
		{"both fail, the second first", attempt{4 * delay, "", failed}, attempt{0, "", other}, "", failed, 4 * delay, 2},
		{"neither answers", never, never, "", context.DeadlineExceeded, limit, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := underWay(1, delay)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				key := []byte("key")
				made := make(chan attempt, 2)
				made <- tt.first
				made <- tt.second
				began := time.Now()
				got, _, err := s.read(ctx, []byte("head "), key, func(ctx context.Context, dst, key []byte) ([]byte, store.Meta, error) {
					a := <-made
					select {
					case <-time.After(a.takes):
					case <-ctx.Done():
						return dst, store.Meta{}, ctx.Err()
					}
					require.Equal(t, "key", string(key))
					return append(dst, a.value...), store.Meta{}, a.err
				})
				clear(key) // it is the caller's again
				require.Equal(t, tt.err, err)
				require.Equal(t, "head "+tt.value, string(got))
				require.Equal(t, tt.took, time.Since(began))
				time.Sleep(time.Minute) // what was given up has ended, and nothing begins any more
				require.Len(t, made, 2-tt.attempts)
				require.Len(t, s.slots, 1, "the operation's own")
				require.Zero(t, s.underWay.Load())
			})
		})
	}
}

// A second attempt that does not end when it is told to, since it is stuck in a
// connection, keeps nobody waiting, and uses nothing of the caller's.
func TestSpeculation_DoesNotWaitForWhatIsStuck(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error // of the first
		took time.Duration
	}{
		{"the first answers", nil, 20 * time.Millisecond},
		{"the first fails", io.EOF, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := underWay(1, 10*time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				key := []byte("key")
				var attempts atomic.Int32
				keys := make(chan string, 1)
				began := time.Now()
				_, _, err := s.read(ctx, nil, key, func(_ context.Context, dst, key []byte) ([]byte, store.Meta, error) {
					if attempts.Add(1) == 1 {
						time.Sleep(20 * time.Millisecond)
						return dst, store.Meta{}, tt.err
					}
					time.Sleep(time.Minute)
					keys <- string(key)
					return dst, store.Meta{}, io.EOF
				})
				require.Equal(t, tt.err, err)
				require.Equal(t, tt.took, time.Since(began))
				clear(key)
				require.Equal(t, "key", <-keys)
				synctest.Wait()
				require.Len(t, s.slots, 1)
			})
		})
	}
}

// When everything is slow, second attempts would only add to it.
func TestSpeculation_IsASmallShare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ operations, may int }{{1, 1}, {18, 1}, {19, 2}, {60, 6}, {97, 3}, {99, 1}} {
		s := underWay(tt.operations, 0)
		began := 0
		for s.begin() {
			began++
		}
		// Those that have begun are under way themselves, and there is room for 100.
		require.Equal(t, tt.may, began, "%d operations", tt.operations)
		require.Len(t, s.slots, tt.operations+began)
		for range began {
			s.end()
		}
		require.Len(t, s.slots, tt.operations)
		require.Zero(t, s.underWay.Load())
	}

	synctest.Test(t, func(t *testing.T) {
		s := underWay(10, time.Millisecond)
		require.True(t, s.begin())
		began := time.Now()
		attempts := 0
		_, _, err := s.read(t.Context(), nil, nil, func(_ context.Context, dst, _ []byte) ([]byte, store.Meta, error) {
			attempts++
			time.Sleep(time.Minute)
			return dst, store.Meta{}, io.EOF
		})
		require.Equal(t, io.EOF, err)
		require.Equal(t, time.Minute, time.Since(began))
		require.Equal(t, 1, attempts)
	})
}

// When a node begins to hang, more reads wait for it than may be made elsewhere at
// once. They take their turns.
func TestSpeculation_IsMadeOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	const delay, takes, reads = 10 * time.Millisecond, 3 * time.Millisecond, 10
	synctest.Test(t, func(t *testing.T) {
		s := underWay(reads, delay) // so that one second attempt is made at a time
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		errs := make(chan error, reads)
		for range reads {
			go func() {
				var attempts atomic.Int32
				_, _, err := s.read(ctx, nil, nil, func(ctx context.Context, dst, _ []byte) ([]byte, store.Meta, error) {
					if attempts.Add(1) == 1 {
						<-ctx.Done()
						return dst, store.Meta{}, ctx.Err()
					}
					time.Sleep(takes)
					return dst, store.Meta{}, nil
				})
				errs <- err
			}()
		}
		for range reads {
			require.NoError(t, <-errs)
		}
		require.Equal(t, reads*delay+takes, time.Since(began))
		synctest.Wait()
		require.Len(t, s.slots, reads)
		require.Zero(t, s.underWay.Load())
	})
}

// Time that is over as soon as the second has answered takes nothing back: this
// machine may have stood still.
func TestSpeculation_TakesAnAnswerAtTheLastMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 64 { // as a select chooses at random
			s := underWay(1, time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			var attempts atomic.Int32
			got, _, err := s.read(ctx, nil, nil, func(attempt context.Context, dst, _ []byte) ([]byte, store.Meta, error) {
				if attempts.Add(1) == 1 {
					<-attempt.Done()
					<-ctx.Done()
					return dst, store.Meta{}, attempt.Err()
				}
				return append(dst, "second"...), store.Meta{}, nil
			})
			cancel()
			require.NoError(t, err)
			require.Equal(t, "second", string(got))
		}
	})
}

// statement stands for a query under a context.
type statement struct {
	gocql.ExecutableStatement
	ctx context.Context
}

func (s statement) Context() context.Context { return s.ctx }

func TestElsewhere_SecondAttemptsGoWhereTheFirstHasNotBeen(t *testing.T) {
	t.Parallel()
	ids := []string{"00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b", "00000000-0000-0000-0000-00000000000c"}
	hosts := newCautious()
	for i := range ids {
		h, err := gocql.NewTestHostInfoFromRow(map[string]any{"host_id": ids[i], "rpc_address": net.IPv4(10, 0, 0, byte(i+1))})
		require.NoError(t, err)
		hosts.AddHost(h)
	}
	policy := elsewhere{hosts}
	id := func(next gocql.NextHost) string { return next().Info().HostID() }

	for range ids { // whatever node is next
		var been asked
		first := policy.Pick(statement{ctx: &attemptContext{t.Context(), false, &been}})
		got := []string{id(first)}
		second := policy.Pick(statement{ctx: &attemptContext{t.Context(), true, &been}})
		there := []string{id(second), id(second)}
		require.Nil(t, second())
		require.ElementsMatch(t, ids, append(there, got...))

		// The first goes where it would have gone without the second.
		got = append(got, id(first), id(first))
		require.ElementsMatch(t, ids, got)
		require.Nil(t, first())
	}

	// The second keeps away from where the first goes meanwhile.
	var been asked
	first := policy.Pick(statement{ctx: &attemptContext{t.Context(), false, &been}})
	second := policy.Pick(statement{ctx: &attemptContext{t.Context(), true, &been}})
	got := []string{id(first), id(first), id(second)}
	require.ElementsMatch(t, ids, got)
	require.Nil(t, second())

	// Others have all nodes to themselves.
	for _, alone := range []gocql.ExecutableStatement{nil, statement{ctx: t.Context()}} {
		next := policy.Pick(alone)
		require.ElementsMatch(t, ids, []string{id(next), id(next), id(next)})
		require.Nil(t, next())
	}
}
