package cassandra

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"
)

func TestSchema(t *testing.T) {
	t.Parallel()
	require.Equal(t, "CREATE KEYSPACE IF NOT EXISTS k WITH replication = {'class': 'NetworkTopologyStrategy', 'here': 3}",
		createKeyspace("k", "here", map[string]int{"": 3}))
	require.Equal(t, "CREATE KEYSPACE IF NOT EXISTS k WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3, 'it''s': 2}",
		createKeyspace("k", "here", map[string]int{"it's": 2, "dc1": 3}))
	require.Equal(t, "CREATE TABLE IF NOT EXISTS k.entities (key blob PRIMARY KEY, value blob)", createTable("k"))
}

// A start waits for nodes that are about to have the table, and not for ever.
func TestSettle(t *testing.T) {
	t.Parallel()
	missing, slow := errors.New("node b does not have the table"), gocql.ErrTimeoutNoResponse
	type look struct {
		have int
		err  error
	}
	for _, tt := range []struct {
		name  string
		looks []look // the last one again and again
		took  time.Duration
		err   error
		log   []string // what its lines hold
	}{
		// The usual case costs one look.
		{"all have it", []look{{3, nil}}, 0, nil, nil},
		// A cluster that forms: first one knows it, then all.
		{"some have it, then all", []look{{1, missing}, {2, slow}, {3, nil}}, 2 * schemaInterval, nil, nil},
		{"none is connected at first", []look{{0, gocql.ErrNoConnections}, {3, nil}}, schemaInterval, nil, nil},
		// A node in trouble keeps no service from starting.
		{"one never answers", []look{{2, slow}}, schemaTimeout, nil, []string{"the start waits", "not all nodes"}},
		// One has had it, and none answers any more.
		{"all fall silent", []look{{1, missing}, {0, slow}}, schemaTimeout, nil, []string{"the start waits", "not all nodes"}},
		// Nobody has it.
		{"none ever has it", []look{{0, missing}}, schemaTimeout, missing, []string{"the start waits"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), schemaTimeout)
				defer cancel()
				looks := tt.looks
				err := settle(ctx, slog.New(slog.NewTextHandler(&out, nil)), func(context.Context) (int, error) {
					l := looks[0]
					if len(looks) > 1 {
						looks = looks[1:]
					}
					return l.have, l.err
				})
				require.ErrorIs(t, err, tt.err)
				require.Equal(t, tt.took, time.Since(began))
				lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
				if len(tt.log) == 0 {
					require.Empty(t, out.String())
					return
				}
				require.Len(t, lines, len(tt.log), "each is said once")
				for i, words := range tt.log {
					require.Contains(t, lines[i], words)
				}
			})
		})
	}
}

func TestWarnOfReplicas(t *testing.T) {
	t.Parallel()
	var hosts []*gocql.HostInfo
	for i, datacentre := range []string{"here", "here", "there"} {
		h, err := gocql.NewTestHostInfoFromRow(map[string]any{"data_center": datacentre, "rpc_address": net.IPv4(10, 0, 0, byte(i+1))})
		require.NoError(t, err)
		hosts = append(hosts, h)
	}
	for _, tt := range []struct {
		options map[string]any
		says    string
	}{
		{map[string]any{"here": "2", "there": "9"}, ""},
		{map[string]any{"here": "3", "there": "1"}, "keyspace=k replicas=3 datacentre=here nodes=2"},
		{map[string]any{"replication_factor": "2"}, ""},
		{map[string]any{"replication_factor": 4}, "replicas=4"},
		{map[string]any{"here": "9/1"}, ""}, // the others are transient
		{map[string]any{"there": "9"}, ""},
		{nil, ""},
	} {
		var out strings.Builder
		warnOfReplicas(slog.New(slog.NewTextHandler(&out, nil)), &gocql.KeyspaceMetadata{Name: "k", StrategyOptions: tt.options}, "here", hosts)
		if tt.says == "" {
			require.Empty(t, out.String(), "%v", tt.options)
		} else {
			require.Contains(t, out.String(), tt.says)
		}
	}
}

// What a start has waited for is worth more than that its time was over.
func TestPersist_KeepsTheReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*schemaInterval+schemaInterval/2)
		defer cancel()
		reason := errors.New("the keyspace is not there")
		tries := 0
		err := persist(ctx, slog.New(slog.DiscardHandler), "in vain", func(ctx context.Context) error {
			if tries++; tries < 3 {
				return reason
			}
			<-ctx.Done()
			return ctx.Err()
		})
		require.Equal(t, reason, err)
		require.Equal(t, 3, tries)

		// What was never tried to the end has no other.
		err = persist(ctx, slog.New(slog.DiscardHandler), "in vain", func(ctx context.Context) error { return ctx.Err() })
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestJoined_IsOneLine(t *testing.T) {
	t.Parallel()
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	require.NoError(t, joined(nil))
	require.Equal(t, a, joined([]error{a}))
	all := joined([]error{a, b, c})
	require.Equal(t, "a; b; c", all.Error())
	for _, err := range []error{a, b, c} {
		require.ErrorIs(t, all, err)
	}
}
