package httpfront

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Connections rest before their first request and after it, and do all that others do. It
// looks at the goroutines of the process, and so runs while no other test does.
func TestRest(t *testing.T) { //nolint:paralleltest // see above
	f := serve(t)
	clients := []*client{f.dial(), f.dial(), f.dial(), f.dial()}
	allRest := func() {
		t.Helper()
		eventually(t, func() bool { return goroutinesIn("(*conn).rest") == 4 && goroutinesIn("(*conn).attend") == 0 }, "all rest")
	}
	allRest()
	for _, c := range clients {
		c.requireOpen()
	}
	allRest()
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

// The time of a connection that rests is as long as that of others.
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

func TestConn_MayRest(t *testing.T) {
	t.Parallel()
	f := serve(t)
	now := f.opts.Now()
	for _, row := range []struct {
		what string
		c    *conn
		rest bool
	}{
		{"new: it may end after one request", &conn{answered: now, restFrom: now + 1}, false},
		{"one request now and then", &conn{answered: now, restFrom: now}, true},
		{"one request soon after another", &conn{answered: now, lately: busyAfter}, false},
		{"busy until long ago", &conn{answered: now - int64(restAfter), lately: 1000}, true},
	} {
		row.c.front = f.Front
		require.Equal(t, row.rest, row.c.mayRest(now), row.what)
		require.Equal(t, row.rest, row.c.resting, row.what)
		require.Greater(t, row.c.nextRest(now), now, row.what)
	}
}

// A connection that ends has all of its time for what the client is sending, also if it is
// too young to rest: when the alarm rings after Close, there is no more of it.
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
	c.restFrom = c.now() + int64(lingerTime)/2
	c.ending, c.lingering = true, true
	c.close()
	require.Equal(t, c.until, c.armed)
}
