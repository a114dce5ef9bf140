package cassandra

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"
)

func TestCautious_TriesSilentNodesLast(t *testing.T) {
	t.Parallel()
	const a, b, third = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b", "00000000-0000-0000-0000-00000000000c"
	c := newCautious()
	hosts := map[string]*gocql.HostInfo{}
	for i, id := range []string{a, b, third} {
		h, err := gocql.NewTestHostInfoFromRow(map[string]any{"host_id": id, "rpc_address": net.IPv4(10, 0, 0, byte(i+1))})
		require.NoError(t, err)
		hosts[id] = h
		c.AddHost(h)
	}
	picked := func() (ids []string) {
		next := c.Pick(nil)
		for h := next(); h != nil; h = next() {
			ids = append(ids, h.Info().HostID())
		}
		require.ElementsMatch(t, []string{a, b, third}, ids, "none is left out, and none comes twice")
		return ids
	}
	start := time.Unix(0, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	require.Empty(t, c.silentOnes())

	// What is given up soon says nothing of the node, nor does a connection that
	// ends, nor that it says itself that it was too late.
	c.observe(b, gocql.ErrTimeoutNoResponse, at(0), at(silence-1))
	c.observe(b, io.EOF, at(0), at(time.Hour))
	c.observe(b, said(gocql.ErrCodeReadTimeout), at(-time.Hour), at(0))
	require.Empty(t, c.silentOnes())

	c.observe(b, context.DeadlineExceeded, at(0), at(silence))
	require.Equal(t, []string{b}, c.silentOnes())
	for range 3 {
		require.Equal(t, b, picked()[2])
	}
	require.False(t, c.IsLocal(hosts[b]))
	require.True(t, c.IsLocal(hosts[a]))

	c.observe(a, gocql.ErrTimeoutNoResponse, at(0), at(time.Second))
	require.Equal(t, []string{a, b}, c.silentOnes())
	require.Equal(t, third, picked()[0])

	// Any answer ends it.
	c.observe(b, nil, at(time.Second), at(2*time.Second))
	require.Equal(t, a, picked()[2])
	require.True(t, c.IsLocal(hosts[b]))

	// A node that has left is forgotten, also if an attempt there ends later.
	c.keep([]*gocql.HostInfo{hosts[b], hosts[third]})
	require.Empty(t, c.silentOnes())
	c.observe(a, gocql.ErrTimeoutNoResponse, at(0), at(time.Second))
	c.observe(third, gocql.ErrTimeoutNoResponse, at(0), at(time.Second))
	require.Equal(t, []string{a, third}, c.silentOnes())
	c.keep([]*gocql.HostInfo{hosts[b], hosts[third]})
	require.Equal(t, []string{third}, c.silentOnes())
}

// A node that waits for another replica until the client gives up is well: it
// answers others meanwhile, in whatever order that is seen.
func TestCautious_NodesThatAnswerOthersAreNotSilent(t *testing.T) {
	t.Parallel()
	const id = "a"
	start := time.Unix(0, 0)
	type attempt struct {
		err        error
		start, end time.Duration
	}
	givenUp := attempt{gocql.ErrTimeoutNoResponse, 10 * time.Second, 12 * time.Second}
	for _, tt := range []struct {
		name   string
		other  attempt
		silent bool
	}{
		{"another was answered meanwhile", attempt{nil, 11 * time.Second, 11500 * time.Millisecond}, false},
		{"it had begun before", attempt{nil, 9 * time.Second, 10500 * time.Millisecond}, false},
		{"another was refused meanwhile", attempt{said(gocql.ErrCodeUnavailable), 11 * time.Second, 11 * time.Second}, false},
		{"another was answered after", attempt{nil, 11 * time.Second, 13 * time.Second}, false},
		{"another was answered before", attempt{nil, 9 * time.Second, 9999 * time.Millisecond}, true},
		{"another was given up before", attempt{context.DeadlineExceeded, 8 * time.Second, 9 * time.Second}, true},
		{"a connection ended meanwhile", attempt{io.EOF, 11 * time.Second, 11 * time.Second}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, order := range [][]attempt{{givenUp, tt.other}, {tt.other, givenUp}} {
				c := newCautious()
				c.know("another")
				for _, a := range order {
					c.observe(id, a.err, start.Add(a.start), start.Add(a.end))
				}
				require.Equal(t, tt.silent, c.isSilent(id))
				require.Equal(t, tt.silent, len(c.silentOnes()) == 1)
			}
		})
	}
}

// routed is a statement of which the key is known.
type routed struct {
	gocql.ExecutableStatement
	key []byte
}

func (r routed) GetRoutingKey() ([]byte, error) { return r.key, nil }
func (routed) Keyspace() string                 { return "" }

// When clients wait for less than any answer takes, all nodes look silent. Then
// operations still go to replicas: another node would only add to the load.
func TestCautious_ReplicasComeFirstIfAllAreSilent(t *testing.T) {
	t.Parallel()
	c := newCautious()
	policy := gocql.TokenAwareHostPolicy(c, gocql.ShuffleReplicas())
	policy.SetPartitioner("Murmur3Partitioner")
	var hosts []*gocql.HostInfo
	for i, token := range []string{"-6000000000000000000", "0", "6000000000000000000"} {
		h, err := gocql.NewTestHostInfoFromRow(map[string]any{
			"host_id":     fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i),
			"rpc_address": net.IPv4(10, 0, 0, byte(i+1)),
			"tokens":      []string{token},
		})
		require.NoError(t, err)
		hosts = append(hosts, h)
		policy.AddHost(h)
	}
	first := func() string { return policy.Pick(routed{key: []byte("key")})().Info().HostID() }
	replica := first()
	start := time.Unix(0, 0)
	giveUp := func(id string) { c.observe(id, context.DeadlineExceeded, start, start.Add(silence)) }

	giveUp(replica)
	for range hosts {
		require.NotEqual(t, replica, first(), "it alone is silent")
	}
	for _, h := range hosts {
		giveUp(h.HostID())
	}
	require.Len(t, c.silentOnes(), len(hosts), "so that all are probed")
	for range hosts {
		require.Equal(t, replica, first())
	}

	// What is down counts no more, until it is up again.
	other := hosts[slices.IndexFunc(hosts, func(h *gocql.HostInfo) bool { return h.HostID() != replica })]
	policy.HostDown(other)
	require.Equal(t, replica, first())
	policy.HostUp(other)
	require.NotEqual(t, replica, first())
	giveUp(other.HostID())
	require.Equal(t, replica, first())
	policy.RemoveHost(other)
	require.NotContains(t, c.silentOnes(), other.HostID())
}
