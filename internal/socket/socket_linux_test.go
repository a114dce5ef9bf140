package socket

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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
		if err != nil && Unsent(raw) > 0 { // and it was not just late
			break
		}
	}
	full := Unsent(raw)
	require.Positive(t, full)

	_, err = io.CopyN(io.Discard, client, int64(written-full/2))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return Unsent(raw) < full }, time.Minute, time.Millisecond)
}

// What a socket holds for a client that does not read, or that sends ahead, stays
// below a bound.
func TestBound(t *testing.T) {
	t.Parallel()
	config := net.ListenConfig{Control: Bound}
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	c, err := l.Accept()
	require.NoError(t, err)
	defer c.Close()
	for _, option := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
		size := 0
		require.NoError(t, Raw(c).Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, option) }))
		require.NoError(t, err)
		require.LessOrEqual(t, size, 2*bufferSize)
	}
	// It was set for good: nothing makes it larger while data flows.
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, client, 8<<20)
		read <- err
	}()
	_, err = c.Write(make([]byte, 8<<20))
	require.NoError(t, err)
	require.NoError(t, <-read)
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Second)))
	_, err = c.Write(make([]byte, 64<<20))
	require.Error(t, err)
	// Linux takes one more segment as long as there is any room, of up to 64 KiB.
	require.LessOrEqual(t, Unsent(Raw(c)), 2*bufferSize+64<<10)
}
