package admin

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/socket"
)

// dial opens a connection and sends a request for /healthz.
func dial(t *testing.T, addr net.Addr) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	return c, bufio.NewReader(c)
}

func receive(t *testing.T, r *bufio.Reader) answer {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// Connections beyond the limit are told so, and those within are served, also
// when one has made room.
func TestServer_MaxConnections(t *testing.T) {
	t.Parallel()
	p := open(t, Options{MaxConnections: 2})
	first, r := dial(t, p.Addr())
	require.Equal(t, 200, receive(t, r).status)
	_, r = dial(t, p.Addr())
	require.Equal(t, 200, receive(t, r).status)
	for range 3 {
		_, r := dial(t, p.Addr())
		a := receive(t, r)
		requireProblem(t, a, 503, "SPILLWAY_ADMIN_MAX_CONNECTIONS")
		require.Equal(t, "1", a.header.Get("Retry-After"))
		_, err := r.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	}
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool {
		_, r := dial(t, p.Addr())
		return receive(t, r).status == 200
	}, time.Minute, 10*time.Millisecond)
}

// An answer that nobody reads is not held for ever.
func TestListener_StalledReader(t *testing.T) {
	t.Parallel()
	bound, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &socket.Listener{Listener: bound, Stall: 100 * time.Millisecond}
	l.Most.Store(1)
	defer l.Close()
	dial(t, bound.Addr())
	c, err := l.Accept()
	require.NoError(t, err)
	_, err = c.Write(make([]byte, 64<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.Close())
	_ = c.Close() // counts no second time
	require.Zero(t, l.Open())
}

// single is a listener with one connection.
type single struct{ conn chan net.Conn }

func (s *single) Accept() (net.Conn, error) {
	c, ok := <-s.conn
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (s *single) Addr() net.Addr { return &net.TCPAddr{} }
func (s *single) Close() error   { return nil }

// A body that was announced and does not come holds nothing up for ever, wanted or
// not, and behind what is malformed.
func TestServer_BodyDoesNotCome(t *testing.T) {
	t.Parallel()
	for _, request := range []string{
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
		"PUT /strategy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n",
		"PUT /strategy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n]",
		"PUT /strategy HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n]\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			o := Options{Metrics: http.NotFoundHandler(), Dispatcher: &switcher{}}
			server := http.Server{Handler: o.routes(nil, newFeed()), ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout}
			ours, theirs := net.Pipe()
			from := &single{make(chan net.Conn, 1)}
			from.conn <- ours
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = server.Serve(from)
			}()
			_, err := io.Copy(theirs, strings.NewReader(request))
			require.NoError(t, err)
			begun := time.Now()
			_, _ = io.Copy(io.Discard, theirs) // until it is closed
			require.LessOrEqual(t, time.Since(begun), bodyTimeout+idleTimeout, request)
			close(from.conn)
			<-done
		})
	}
}
