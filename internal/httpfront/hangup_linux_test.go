package httpfront

import (
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// watched is a listener that counts the calls by which the server looks at the
// descriptors of its connections, beside reading and writing: one when it starts
// to watch each, and then those that find out whether a client has gone.
type watched struct {
	*net.TCPListener
	looks atomic.Int64
}

func (l *watched) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil {
		return nil, err
	}
	return watchedConn{c.(*net.TCPConn), l}, nil
}

type watchedConn struct {
	*net.TCPConn
	listener *watched
}

func (c watchedConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.TCPConn.SyscallConn()
	return watchedRaw{raw, c.listener}, err
}

type watchedRaw struct {
	syscall.RawConn
	listener *watched
}

func (r watchedRaw) Control(f func(fd uintptr)) error {
	r.listener.looks.Add(1)
	return r.RawConn.Control(f)
}

// To find out that a client has gone costs one call, and only if its request
// waits and its side of the connection has ended; a reset costs none.
func TestHangups_OneLookForAClientThatGoes(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &watched{TCPListener: tcp.(*net.TCPListener)}
	f := serve(t, func(_ *Options, listener *net.Listener) { *listener = l })
	hold := func() (*client, *Exchange) {
		c := f.dial()
		c.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
		return c, <-f.held
	}
	gone := func() { eventually(t, func() bool { return f.Connections() == 0 }, "the connection is gone") }

	resets, _ := hold()
	require.NoError(t, resets.conn.SetLinger(0))
	require.NoError(t, resets.conn.Close())
	gone()
	require.EqualValues(t, 1, l.looks.Load(), "to watch the connection")

	ends, _ := hold()
	require.NoError(t, ends.conn.CloseWrite())
	resp, _ := ends.read("GET")
	require.Equal(t, 503, resp.StatusCode)
	ends.requireClosed()
	gone()
	require.EqualValues(t, 4, l.looks.Load(), "to watch it, to look for the client, and whether bytes are left when it is closed")

	stays, x := hold()
	x.Done()
	resp, _ = stays.read("GET")
	require.Equal(t, 200, resp.StatusCode)
	for range 10 {
		stays.requireOpen() // these do not wait
	}
	require.EqualValues(t, 5, l.looks.Load(), "to watch it")
}
