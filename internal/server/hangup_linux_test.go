package server

import (
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// watched is a listener that counts the calls by which the server looks at the
// descriptors of its connections, beside reading and writing: one when it starts
// to watch each, and then those that find out whether a client has gone.
type watched struct {
	net.Listener
	looks atomic.Int64
}

func (l *watched) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
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
func TestWaiting_OneLookForAClientThatGoes(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h, err := openHangups()
	require.NoError(t, err)
	l := &watched{Listener: tcp}
	b := serveBusy(t, "fifo", func(o *setup) { o.listener, o.hangups = l, h })
	start := l.looks.Load()

	resets := b.dial()
	resets.send(put("a", "value"))
	b.waiting(1)
	require.NoError(t, resets.conn.SetLinger(0))
	require.NoError(t, resets.conn.Close())
	b.requireShed(strategies.ReasonAbandoned)
	eventually(t, func() bool { return b.Connections() == 1 }, "the connection is gone")
	require.EqualValues(t, 1, l.looks.Load()-start, "to watch the connection")

	ends := b.dial()
	ends.send(put("a", "value"))
	b.waiting(1)
	require.NoError(t, ends.conn.CloseWrite())
	require.Equal(t, "abandoned", ends.read("PUT").header.Get("Spillway-Shed"))
	ends.requireClosed()
	eventually(t, func() bool { return b.Connections() == 1 }, "the connection is gone")
	require.EqualValues(t, 4, l.looks.Load()-start, "to watch it, to look for the client, and whether bytes are left when it is closed")

	stays := b.dial()
	stays.send(get("/v0/entity?id=a"))
	b.waiting(1)
	b.free()
	require.Equal(t, 404, stays.read("GET").status)
	for range 10 {
		stays.requireOpen() // these do not wait
	}
	require.EqualValues(t, 5, l.looks.Load()-start, "to watch it")
}
