package httpfront

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Connections are dormant before their first request and after it, and do all that others do. It
// looks at the goroutines of the process, and so runs while no other test does.
func TestDormant(t *testing.T) { //nolint:paralleltest // see above
	f := serve(t)
	clients := []*client{f.dial(), f.dial(), f.dial(), f.dial()}
	allDormant := func() {
		t.Helper()
		eventually(t, func() bool { return goroutinesIn("(*conn).stayDormant") == 4 && goroutinesIn("(*conn).attend") == 0 }, "all are dormant")
	}
	allDormant()
	for _, c := range clients {
		c.requireOpen()
	}
	allDormant()
	clients[0].requireOpen()
	clients[1].send("GET / HTTP/1.1\r\n")
	eventually(t, func() bool { return goroutinesIn("(*Exchange).readHead") == 1 }, "part of a request is there")
	clients[1].send("Host: x\r\n\r\n")
	resp, _ := clients[1].read("GET")
	require.Equal(t, 404, resp.StatusCode)

	require.NoError(t, clients[2].conn.Close())
	eventually(t, func() bool { return f.Connections() == 3 }, "a client has gone")
	require.NoError(t, f.Drain(context.Background()))
	clients[3].requireClosed()
}

// The time of a dormant connection is as long as that of others.
func TestRest_IsOver(t *testing.T) {
	t.Parallel()
	f := serve(t, func(o *Options, _ *net.Listener) { o.IdleTimeout = 100 * time.Millisecond })
	for {
		c := f.dial()
		c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp, err := http.ReadResponse(c.r, nil); err == nil {
			require.NoError(t, resp.Body.Close()) // it came before its time was over
			c.requireClosed()
			return
		}
	}
}

func TestConn_GoDormant(t *testing.T) {
	t.Parallel()
	f := serve(t)
	now := f.opts.Now()
	for _, row := range []struct {
		what    string
		c       *conn
		dormant bool
	}{
		{"new: it may end after one request", &conn{answered: now, dormantFrom: now + 1}, false},
		{"one request now and then", &conn{answered: now, dormantFrom: now}, true},
		{"one request soon after another", &conn{answered: now, lately: busyAfter}, false},
		{"busy until long ago", &conn{answered: now - int64(dormantAfter), lately: 1000}, true},
	} {
		row.c.front = f.Front
		require.Equal(t, row.dormant, row.c.goDormant(now), row.what)
		require.Equal(t, row.dormant, row.c.dormant, row.what)
		require.Greater(t, row.c.nextDormant(now), now, row.what)
	}
}

// A connection that ends has all of its time for what the client is sending, also if it is
// too young to go dormant: when the alarm rings after Close, there is no more of it.
func TestLinger_NewConnection(t *testing.T) {
	t.Parallel()
	f := serve(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	nc, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, client.Close())

	c := newConn(f.Front, nc)
	c.dormantFrom = c.now() + int64(lingerTime)/2
	c.ending, c.lingering = true, true
	c.close()
	require.Equal(t, c.until, c.armed)
}
