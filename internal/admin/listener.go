package admin

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/socket"
)

const (
	// writeTimeout is how long a client may take nothing of an answer. Handlers
	// may take as long as they like: a profile of 30 s writes nothing before.
	writeTimeout = 10 * time.Second
	// refusalTimeout and maxRefusals bound the connections that are being refused.
	refusalTimeout = time.Second
	maxRefusals    = 16
)

// listener accepts no more connections than that at once, so that whoever
// reaches this plane cannot take the descriptors of the data plane and the store,
// and bounds the time for which a client takes nothing.
type listener struct {
	net.Listener
	most  int64
	stall time.Duration
	// refusal is what a connection beyond is told; nil under TLS, in which
	// nothing can be said without a handshake.
	refusal  []byte
	open     atomic.Int64
	refusing atomic.Int64
	refusals sync.WaitGroup
}

// tooMany is the whole answer to a connection beyond the limit.
var tooMany = func() []byte {
	const body = `{"title":"Service Unavailable","status":503,"detail":"too many connections to the admin plane are open, allowed by SPILLWAY_ADMIN_MAX_CONNECTIONS"}` + "\n"
	return []byte("HTTP/1.1 503 " + http.StatusText(http.StatusServiceUnavailable) + "\r\nRetry-After: 1\r\nConnection: close\r\n" +
		"Content-Type: application/problem+json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}()

// Accept returns the next connection that may be served.
func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &conn{Conn: socket.NewConn(nc, l.stall), release: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		l.refuse(nc)
	}
}

// refuse tells why, for a moment, so that a client that is sending sees it.
// Beyond some at a time it just closes.
func (l *listener) refuse(nc net.Conn) {
	if l.refusing.Add(1) > maxRefusals || l.refusal == nil {
		l.refusing.Add(-1)
		_ = nc.Close()
		return
	}
	l.refusals.Go(func() {
		defer l.refusing.Add(-1)
		defer func() { _ = nc.Close() }()
		_ = nc.SetDeadline(time.Now().Add(refusalTimeout))
		if _, err := nc.Write(l.refusal); err != nil {
			return
		}
		if w, ok := nc.(interface{ CloseWrite() error }); ok && w.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, nc, 64<<10)
		}
	})
}

// Close stops listening and waits for those who are being refused.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.refusals.Wait()
	return err
}

// conn is a connection that counts until it is closed.
type conn struct {
	*socket.Conn
	release func()
}

func (c *conn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
