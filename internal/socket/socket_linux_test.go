package socket

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The bytes that lie unsent tell whether a slow client takes anything: they stay
// while it does not, and become fewer when it does.
func TestUnsent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	c, err := l.Accept()
	require.NoError(t, err)
	defer c.Close()
	raw := Raw(c)
	require.Zero(t, Unsent(raw))

	block := make([]byte, 64<<10)
	written := 0
	// Full is when no room has come for a while: the client's side takes over
	// what it has room for first.
	for {
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		n, err := c.Write(block)
		written += n
		if err != nil {
			break
		}
	}
	full := Unsent(raw)
	require.Positive(t, full)

	_, err = io.CopyN(io.Discard, client, int64(written-full/2))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return Unsent(raw) < full }, 10*time.Second, time.Millisecond)
}
