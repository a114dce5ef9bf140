package socket

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// refusalTimeout and maxRefusals bound the connections that are being refused.
const (
	refusalTimeout = time.Second
	maxRefusals    = 16
)

// Listener bounds how many connections are open, and cuts off clients that take nothing
// of what they are sent.
type Listener struct {
	net.Listener
	// Most is the number of connections that may be open. It may change at any time.
	Most atomic.Int64
	// Stall is the time after which a client that takes nothing is cut off.
	Stall time.Duration
	// Refusal is sent to connections beyond Most. It is nil under TLS, where nothing can be
	// sent before a handshake.
	Refusal []byte

	open     atomic.Int64
	refusing atomic.Int64
	refusals sync.WaitGroup
}

// Refusal returns the HTTP answer for a connection beyond the limit: a problem with that
// detail, in which nothing has to be escaped.
func Refusal(detail string) []byte {
	body := `{"title":"Service Unavailable","status":503,"detail":"` + detail + "\"}\n"
	return []byte("HTTP/1.1 503 " + http.StatusText(http.StatusServiceUnavailable) + "\r\nRetry-After: 1\r\nConnection: close\r\n" +
		"Content-Type: application/problem+json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// Open returns how many connections are open.
func (l *Listener) Open() int { return int(l.open.Load()) }

// Accept returns the next connection that may be served.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.Most.Load() {
			return &counted{Conn: NewConn(nc, l.Stall), release: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		l.refuse(nc)
	}
}

// refuse sends the refusal, and reads on for a moment so that a client that is sending sees
// it. Beyond maxRefusals at once it just closes the connection.
func (l *Listener) refuse(nc net.Conn) {
	if l.refusing.Add(1) > maxRefusals || l.Refusal == nil {
		l.refusing.Add(-1)
		_ = nc.Close()
		return
	}
	l.refusals.Go(func() {
		defer l.refusing.Add(-1)
		defer func() { _ = nc.Close() }()
		_ = nc.SetDeadline(time.Now().Add(refusalTimeout))
		if _, err := nc.Write(l.Refusal); err != nil {
			return
		}
		if w, ok := nc.(interface{ CloseWrite() error }); ok && w.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, nc, 64<<10)
		}
	})
}

// Close stops listening and waits for those who are being refused.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	l.refusals.Wait()
	return err
}

// counted is a connection that counts until it is closed.
type counted struct {
	*Conn
	release func()
}

func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
