package cassandra

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/testenv"
)

func TestClock_NeverRepeatsOrGoesBack(t *testing.T) {
	t.Parallel()
	var c clock
	// It follows the machine's clock.
	require.EqualValues(t, 100, c.takeAt(100, 1))
	// Twice within a microsecond, or with the clock set back, it goes on.
	require.EqualValues(t, 101, c.takeAt(100, 1))
	require.EqualValues(t, 102, c.takeAt(50, 1))
	// Several are taken as a run of their own.
	require.EqualValues(t, 103, c.takeAt(100, 10))
	require.EqualValues(t, 113, c.takeAt(100, 1))
	require.EqualValues(t, 500, c.takeAt(500, 2))
	require.EqualValues(t, 502, c.takeAt(501, 1))
}

func TestClock_GivesEveryTimestampOnce(t *testing.T) {
	t.Parallel()
	const goroutines, takes = 8, 1000
	var c clock
	var running sync.WaitGroup
	taken := make([][]int64, goroutines)
	for g := range goroutines {
		running.Go(func() {
			for range takes {
				taken[g] = append(taken[g], c.take(3))
			}
		})
	}
	running.Wait()
	seen := make(map[int64]bool)
	for _, stamps := range taken {
		last := int64(0)
		for _, first := range stamps {
			require.Greater(t, first, last)
			last = first
			for i := range int64(3) {
				require.False(t, seen[first+i])
				seen[first+i] = true
			}
		}
	}
}

func TestLevels(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		want levels
	}{
		// Who stays in a datacentre by default does so when asked for less or more.
		{"LOCAL_QUORUM", levels{gocql.LocalQuorum, gocql.LocalOne, gocql.LocalQuorum, gocql.All}},
		{"LOCAL_ONE", levels{gocql.LocalOne, gocql.LocalOne, gocql.LocalQuorum, gocql.All}},
		{"QUORUM", levels{gocql.Quorum, gocql.One, gocql.Quorum, gocql.All}},
		{"EACH_QUORUM", levels{gocql.EachQuorum, gocql.One, gocql.Quorum, gocql.All}},
		{"TWO", levels{gocql.Two, gocql.One, gocql.Quorum, gocql.All}},
	} {
		got, err := levelsOf(tt.name)
		require.NoError(t, err)
		require.Equal(t, tt.want, got, tt.name)
		for c := range store.ConsistencyAll + 1 {
			require.Equal(t, tt.want[c], got.of(c))
		}
	}
	for _, name := range []string{"", "ANY", "SERIAL", "quorum"} {
		_, err := levelsOf(name)
		require.ErrorContains(t, err, "LOCAL_QUORUM", name)
	}
}

func TestAppended_CopiesBehindWhatIsThere(t *testing.T) {
	t.Parallel()
	theirs := []byte("value")
	a := appended{to: append(make([]byte, 0, 5), "head "...)}
	require.NoError(t, a.UnmarshalCQL(nil, theirs))
	copy(theirs, "XXXXX")
	require.Equal(t, "head value", string(a.to))
	require.NoError(t, a.UnmarshalCQL(nil, nil))
	require.Equal(t, "head value", string(a.to))
}

// The time of an operation ends before its deadline, so that the client hears
// how it ended, and never later than any operation's.
func TestStore_BeginsWithinTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Store{slots: make(chan struct{}, 1)}
		for _, tt := range []struct{ deadline, want time.Duration }{
			{0, operationTimeout},
			{time.Hour, operationTimeout},
			{1600 * time.Millisecond, 1500 * time.Millisecond},
			{16 * time.Millisecond, 15 * time.Millisecond},
		} {
			var terms store.Terms
			now := time.Now()
			if tt.deadline != 0 {
				terms.Deadline = now.Add(tt.deadline)
			}
			ctx, end, err := s.begin(terms)
			require.NoError(t, err)
			ends, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, tt.want, ends.Sub(now))
			end()
			require.Empty(t, s.slots)
		}

		// What has no time left is not begun.
		_, _, err := s.begin(store.Terms{Deadline: time.Now()})
		require.ErrorIs(t, err, store.ErrTimeout)
		require.NotErrorIs(t, err, store.ErrUnknownOutcome)

		// Nor is what finds as many under way as may be, all the time that it has.
		_, end, err := s.begin(store.Terms{})
		require.NoError(t, err)
		begun := time.Now()
		_, _, err = s.begin(store.Terms{Deadline: begun.Add(1600 * time.Millisecond)})
		require.ErrorIs(t, err, store.ErrTimeout)
		require.NotErrorIs(t, err, store.ErrUnknownOutcome)
		require.Equal(t, 1500*time.Millisecond, time.Since(begun))
		end()

		s.closed.Store(true)
		_, _, err = s.begin(store.Terms{})
		require.ErrorIs(t, err, store.ErrClosed)
	})
}

// One probe that is lost is not the whole cluster.
func TestStore_FailsWhenNothingSucceeds(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	s := &Store{hosts: newCautious()}
	now := time.Unix(0, 0)
	for _, step := range []struct {
		what      string
		operation error // of one since the probe before
		probe     error
		absent    bool
		writable  bool
		said      int // lines of the log
	}{
		{"all is well", nil, nil, false, true, 0},
		{"a probe is lost, and operations succeed", nil, gocql.ErrTimeoutNoResponse, false, true, 0},
		{"neither succeeds", gocql.ErrTimeoutNoResponse, gocql.ErrTimeoutNoResponse, false, false, 1},
		{"that is said once", said(gocql.ErrCodeUnavailable), gocql.ErrNoConnections, false, false, 1},
		{"an operation succeeds again", nil, gocql.ErrTimeoutNoResponse, false, true, 2},
		{"and it fails again", io.EOF, io.EOF, false, false, 3},
		{"a probe succeeds again", io.EOF, nil, false, true, 4},
		{"the keyspace is dropped", nil, nil, true, false, 5},
		{"nor can the driver connect then", io.EOF, gocql.ErrNoConnections, true, false, 5},
		{"it is back, and no node answers", io.EOF, gocql.ErrNoConnections, false, false, 6},
		{"all is well again", nil, nil, false, true, 7},
		{"a node says that the keyspace was dropped", io.EOF, said(gocql.ErrCodeInvalid), false, false, 8},
		{"and so does the driver", io.EOF, nil, true, false, 8},
	} {
		s.hosts.observe("a", step.operation, now, now)
		s.probed(step.probe, step.absent, log)
		if step.writable {
			require.NoError(t, s.Writable(), step.what)
		} else {
			require.ErrorIs(t, s.Writable(), store.ErrUnwritable, step.what)
		}
		require.Equal(t, step.said, strings.Count(out.String(), "\n"), step.what)
	}
}

func TestStore_HasNoRanges(t *testing.T) {
	t.Parallel()
	_, err := new(Store).Range([]byte("a"), nil, false)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestOpen_Unreachable(t *testing.T) {
	t.Parallel()
	address := testenv.Nobody(t)
	var log bytes.Buffer
	_, err := Open(Options{
		Hosts: []string{address}, Keyspace: "k", Consistency: "ONE", Replication: map[string]int{"": 1},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.ErrorContains(t, err, address)
	require.Empty(t, log.String(), "the error says it")
}

func TestDriverLog_SaysAWarningOnceAMinute(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := &driverLog{log: slog.New(slog.NewTextHandler(&out, nil))}
	now := time.Unix(0, 0)
	said := func() int { return strings.Count(out.String(), "\n") }

	l.warn(now, "before it is on", nil)
	require.Zero(t, said())
	l.on.Store(true)
	l.warn(now, "down", []gocql.LogField{gocql.NewLogFieldString("host", "a")})
	require.Equal(t, 1, said())
	require.Contains(t, out.String(), "host=a")
	l.warn(now.Add(quiet-1), "down", nil)
	require.Equal(t, 1, said())
	l.warn(now.Add(quiet-1), "another", nil)
	require.Equal(t, 2, said())
	l.warn(now.Add(quiet), "down", nil)
	require.Equal(t, 3, said())
	l.Info("for those who look", gocql.NewLogFieldString("x", "y"))
	l.Debug("nobody")
	require.Equal(t, 3, said())
}
