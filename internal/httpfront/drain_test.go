package httpfront

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
)

// A connection that sets its alarm after Close has interrupted it does not sleep until
// that rings.
func TestClose_WhileAnAlarmIsSet(t *testing.T) {
	t.Parallel()
	f := serve(t)
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	c := newConn(f.Front, here)
	f.closed.Store(true)
	c.interrupt(time.Time{})
	c.until = c.now() + int64(time.Hour)
	c.arm()
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
}

// What was started gets its true answer also when it ends long after Close has interrupted
// the connections.
func TestClose_LateAnswer(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.dial()
	c.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
	x := <-f.held
	// What Close does, with its last writes over at once.
	f.draining.Store(true)
	f.closed.Store(true)
	f.interrupt(time.Unix(1, 0))
	x.Done()
	resp, _ := c.read("GET")
	require.Equal(t, 200, resp.StatusCode)
	require.True(t, resp.Close)
	c.requireClosed()
}

// A drain waits for another request of clients that pause, and its answer tells
// them that the connection ends.
func TestDrain_PausingClients(t *testing.T) {
	t.Parallel()
	certificate, roots := fronttest.SelfSigned(t)
	for name, secured := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, func(o *Options, _ *net.Listener) {
				if secured {
					o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
				}
			})
			f.lastRequests = time.Hour // no test of how fast this machine is
			ask := func(c *bufio.ReadWriter) *http.Response {
				_, _ = c.WriteString("GET /k HTTP/1.1\r\nHost: x\r\n\r\n")
				require.NoError(t, c.Flush())
				resp, err := http.ReadResponse(c.Reader, nil)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return resp
			}
			var clients []*bufio.ReadWriter
			for range 10 {
				var nc net.Conn = f.dial().conn
				if secured {
					nc = tls.Client(nc, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
				}
				c := bufio.NewReadWriter(bufio.NewReader(nc), bufio.NewWriter(nc))
				require.False(t, ask(c).Close)
				clients = append(clients, c)
			}
			drained := make(chan error, 1)
			go func() { drained <- f.Drain(context.Background()) }()
			eventually(t, f.draining.Load, "the drain has begun")
			for _, c := range clients {
				resp := ask(c)
				require.Equal(t, 404, resp.StatusCode)
				require.True(t, resp.Close, "Connection: close")
				_, err := c.ReadByte()
				require.ErrorIs(t, err, io.EOF)
			}
			require.NoError(t, <-drained)
		})
	}
}
