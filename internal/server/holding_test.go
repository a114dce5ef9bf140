package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// holder waits for the operation on a key, and returns the connection that has
// sent it: its goroutine is parked, and its fields can be looked at.
func (s *service) holder(key string) *conn {
	s.t.Helper()
	require.Equal(s.t, key, <-s.store.arrived)
	s.Server.mu.Lock()
	defer s.Server.mu.Unlock()
	for c := range s.Server.mu.conns {
		if c.x != nil && string(c.req.key) == key {
			return c
		}
	}
	s.t.Error("no connection has sent it")
	return nil
}

// While a request waits, its body takes at most a quarter more memory than it
// has bytes, beside what the connection holds anyway, and the budget knows of it.
func TestBody_HoldsWhatItHas(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 100, smallBuffer, smallBuffer + 1, 8 << 10, 40_000, 64 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			s := serve(t, "fifo")
			unblock := s.store.block("a")
			defer unblock()
			c := s.dial()
			// The body comes late, so that it is not in the reader by chance.
			c.send("PUT /v0/entity?id=a" + host + fmt.Sprintf("Expect: 100-continue\nContent-Length: %d\n\n", size))
			require.Equal(t, 100, mustRead(c).status)
			c.sendRaw(strings.Repeat("v", size))
			b := &s.holder("a").body
			require.Len(t, b.value, size)
			require.EqualValues(t, size, b.reserved)
			require.EqualValues(t, 1<<20-size, s.budget.left.Load())
			require.LessOrEqual(t, cap(b.buffer), size+size/4+1)
			require.Equal(t, size <= smallBuffer, b.buffer == nil, "small bodies lie in the reader")
			unblock()
			require.Equal(t, 201, c.read("PUT").status)
		})
	}
}

// A chunked body is charged for the room that it takes, not for its bytes alone,
// and takes no buffer that an earlier one has left, but for a small one.
func TestBody_ChunkedHoldsWhatItHas(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	c := s.dial()
	for _, size := range []int{64 << 10, 10, 5000, 10, 2000, 10, 64 << 10, 10} {
		unblock := s.store.block("a")
		c.send("PUT /v0/entity?id=a" + host + fmt.Sprintf("Transfer-Encoding: chunked\n\n%x\r\n%s\r\n0\r\n\r\n", size, strings.Repeat("v", size)))
		b := &s.holder("a").body
		require.Len(t, b.value, size)
		require.LessOrEqual(t, b.reserved, int64(max(firstChunkRoom, 2*size)))
		require.LessOrEqual(t, cap(b.buffer), int(b.reserved+b.reserved/4+1))
		unblock()
		require.Equal(t, 201, c.read("PUT").status)
	}
}

// A head of thousands of fields holds no more than its bytes while its request
// waits. The parser makes twenty times as much of it.
func TestHead_HoldsNoFields(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	unblock := s.store.block("a")
	defer unblock()
	for _, lines := range []string{
		strings.Repeat("X:\n", 1600) + "\n",
		strings.Repeat("Accept: a\n", 700) + "\n",
		"Transfer-Encoding: chunked\n\n0\r\n" + strings.Repeat("X:\r\n", 900) + "\r\n",
	} {
		c := s.dial()
		c.send("PUT /v0/entity?id=a" + host + lines)
		x := s.holder("a").x
		require.LessOrEqual(t, x.head.Len(), keptLines)
		require.LessOrEqual(t, cap(x.fields.moreAccept), keptLines)
		unblock()
		require.Equal(t, 201, c.read("PUT").status)
		_ = c.conn.Close()
		eventually(t, func() bool { return s.Connections() == 0 }, "gone")
		unblock = s.store.block("a")
	}
}
