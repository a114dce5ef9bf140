package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seen tells what net/http has read of a request.
func seen(r *http.Request, body []byte) string {
	target, host := r.RequestURI, r.Host
	if scheme := strings.Index(target, "://"); scheme >= 0 && target[0] != '/' {
		rest := target[scheme+len("://"):]
		if end := strings.IndexAny(rest, "/?"); end < 0 {
			target = "/"
		} else if target = rest[end:]; target[0] == '?' {
			target = "/" + target
		}
	}
	return fmt.Sprintf("%s %q %q host %q", r.Method, target, body, host)
}

// Whatever a client sends, the upstream gets the requests that net/http reads in it, each once,
// with the same bodies: where the two differ, the proxy is the stricter.
func FuzzForwardsAlike(f *testing.F) {
	const get, behind = "GET /a HTTP/1.1\r\nHost: x\r\n", "GET /behind HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	const post = "POST /a HTTP/1.1\r\nHost: x\r\n"
	for _, s := range []string{
		get + "\r\n", get + "Connection: keep-alive, close\r\n\r\n", "GET http://y/a?b HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://y?b HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /a HTTP/1.0\r\n\r\n", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\nHost: x\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "G@T /a HTTP/1.1\r\nHost: x\r\n\r\n",
		post + "Content-Length: 5\r\n\r\nhello", post + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
		post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		post + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 3\r\n\r\n", post + "Transfer-Encoding: chunked\r\n\r\n0\r\nX : y\r\n\r\n",
		post + "Connection: Content-Length\r\nContent-Length: 5\r\n\r\nhello", post + "Connection: Host, X\r\nX: 1\r\nContent-Length: 0\r\n\r\n",
		post + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\na", get + "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: a\r\n\r\n",
		get + "X: y\r\n z\r\n\r\n", get + "X : y\r\n\r\n", get + "X\x00: y\r\n\r\n", "GET /a\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		f.Add([]byte(s + behind))
	}
	const refused = "refused"
	var mu sync.Mutex
	var ours []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		ours = append(ours, what)
	}
	var conns atomic.Int64 // connections of the upstream
	upstream := speak(f, func(_ int, c net.Conn) {
		conns.Add(1)
		defer conns.Add(-1)
		for in := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			note(seen(r, body))
			if _, err = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
				return
			}
		}
	})
	proxy := open(f, upstream, func(o *Options) {
		o.Events.Answered = func(_, _ string, code int, _ bool, _, _ time.Duration) {
			if code != http.StatusNoContent && code != codeLeft { // who leaves may have been read
				note(refused)
			}
		}
	})
	f.Fuzz(func(t *testing.T, input []byte) {
		mu.Lock()
		ours = nil
		mu.Unlock()
		conn, err := net.Dial("tcp", proxy.Addr().String())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, _ = conn.Write(input)
		// Who has sent all too early has left.
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(3*time.Millisecond)))
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.(*net.TCPConn).CloseWrite()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = io.Copy(io.Discard, conn)
		var network net.Error
		require.False(t, errors.As(err, &network) && network.Timeout(), "the connection does not end")
		eventually(t, func() bool {
			u := &proxy.upstream.conns
			u.Lock()
			defer u.Unlock()
			return proxy.Connections() == 0 && proxy.Gauge().Busy == 0 && conns.Load() == int64(len(u.all))
		}, "the connection is gone")
		mu.Lock()
		defer mu.Unlock()
		in := bufio.NewReader(bytes.NewReader(input))
		for _, got := range ours {
			for { // empty lines before a request, which net/http does not skip
				b, err := in.Peek(1)
				if err != nil || b[0] != '\r' && b[0] != '\n' {
					break
				}
				_, _ = in.Discard(1)
			}
			r, err := http.ReadRequest(in)
			if got == refused && err != nil {
				return // nothing behind it is read alike
			}
			if errors.As(err, new(*url.Error)) {
				return // to the proxy a target is bytes
			}
			require.NoError(t, err, "%q reached the upstream of %q", got, input)
			body, err := io.ReadAll(r.Body)
			if got == refused { // but what is behind it may have been served
				if err != nil {
					return
				}
				continue
			}
			require.NoError(t, err, "%q", input)
			want := seen(r, body)
			if r.Host == "" { // of HTTP/1.0
				want, _, _ = strings.Cut(want, " host ")
				got, _, _ = strings.Cut(got, " host ")
			}
			require.Equal(t, want, got, "%q", input)
		}
	})
}
