package cassandra

import (
	"context"
	"io"
	"net"
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
	require.Empty(t, c.silentOnes())

	// What a node says, and what is given up soon, says nothing of the node.
	c.observe(b, gocql.ErrTimeoutNoResponse, silence-1)
	c.observe(b, said(gocql.ErrCodeReadTimeout), time.Hour)
	c.observe(b, io.EOF, time.Hour)
	require.Empty(t, c.silentOnes())

	c.observe(b, context.DeadlineExceeded, silence)
	require.Equal(t, []string{b}, c.silentOnes())
	for range 3 {
		require.Equal(t, b, picked()[2])
	}
	require.False(t, c.IsLocal(hosts[b]))
	require.True(t, c.IsLocal(hosts[a]))

	c.observe(a, gocql.ErrTimeoutNoResponse, time.Second)
	require.Equal(t, []string{a, b}, c.silentOnes())
	require.Equal(t, third, picked()[0])

	c.answered(b)
	require.Equal(t, a, picked()[2])
	c.RemoveHost(hosts[a])
	require.Empty(t, c.silentOnes())
	require.True(t, c.IsLocal(hosts[b]))
}
