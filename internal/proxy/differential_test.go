package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
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

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
	"github.com/spillway-go/spillway/internal/served"
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

// witness is an upstream that notes the requests that net/http reads of what reaches it.
type witness struct {
	conns atomic.Int64
	mu    sync.Mutex
	noted []string
}

const refused = "refused" // what is noted of a request that does not get so far

func (w *witness) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noted = append(w.noted, what)
}

func (w *witness) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noted = nil
}

// serve starts it.
func (w *witness) serve(t testing.TB) (url string) {
	return speak(t, func(_ int, c net.Conn) {
		w.conns.Add(1)
		defer w.conns.Add(-1)
		for in := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			w.note(seen(r, body))
			if _, err = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
				return
			}
		}
	})
}

// saw returns what was noted, once the clients of the proxy are gone.
func (w *witness) saw(t *testing.T, proxy *front) []string {
	t.Helper()
	eventually(t, func() bool {
		u := &proxy.upstreams.of("").conns
		u.Lock()
		defer u.Unlock()
		return proxy.Connections() == 0 && proxy.Gauge().Busy == 0 && w.conns.Load() == int64(len(u.all))
	}, "the connection is gone")
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noted
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
	var upstream witness
	proxy := open(f, upstream.serve(f), func(o *Options) {
		o.Events.Answered = func(_, _ string, code int, _ served.Outcome, _, _ time.Duration) {
			if code != http.StatusNoContent && code != codeLeft { // who leaves may have been read
				upstream.note(refused)
			}
		}
	})
	f.Fuzz(func(t *testing.T, input []byte) {
		upstream.forget()
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
		noted := upstream.saw(t, proxy)
		in := bufio.NewReader(bytes.NewReader(input))
		for _, got := range noted {
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

// Whatever a client says in the fields of HTTP/2, in clear or under TLS, the upstream gets that
// one request, with that body, or none.
func FuzzForwardsStreamsAlike(f *testing.F) {
	for _, s := range []struct{ method, path, authority, name, value, body string }{
		{"GET", "/a?b", "x", "x", "y", ""},
		{"POST", "/a", "x", "content-length", "5", "hello"},
		{"POST", "/a", "x", "content-length", "3", "hello"},
		{"POST", "/a", "x", "content-length", "3", ""},
		{"POST", "/a", "x", "content-length", "+5", "hello"},
		{"POST", "/a", "x", "transfer-encoding", "chunked", "0\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"POST", "/a", "x", "connection", "content-length, host", "hello"},
		{"POST", "/a", "x", "expect", "100-continue", "hello"},
		{"GET", "/a", "x", "x", "y\r\ntransfer-encoding: chunked", ""},
		{"GET", "/a", "x", "x: y\r\nz", "y", ""},
		{"GET", "/a HTTP/1.1\r\nHost: x\r\n\r\nGET /b", "x", "x", "y", ""},
		{"GET", "/a b", "x", "x", "y", ""}, {"GET", "/a\tb", "x", "x", "y", ""}, {"GET", "/\xff#", "x", "x", "y", ""}, {"GET", "http://y/a", "x", "x", "y", ""},
		{"GET /b", "/a", "x", "x", "y", ""}, {"GET\r\n", "/a", "x", "x", "y", ""}, {"CONNECT", "/a", "x", "x", "y", ""}, {"OPTIONS", "*", "x", "x", "y", ""},
		{"GET", "/a", "x\r\nY: z", "x", "y", ""}, {"GET", "/a", " ", "x", "y", ""}, {"GET", "/a", "x/b", "x", "y", ""}, {"GET", "/a", "", "host", "y", ""}, {"GET", "/a", "x", "host", "y", ""},
		{"GET", "/a", "x", "te", "trailers", ""}, {"GET", "/a", "x", "upgrade", "websocket", ""}, {"GET", "/a", "x", ":path", "/b", ""},
	} {
		f.Add(s.method, s.path, s.authority, s.name, s.value, []byte(s.body))
	}
	certificate, roots := fronttest.SelfSigned(f)
	var upstreams [2]witness
	inClear := open(f, upstreams[0].serve(f), nil)
	secure := open(f, upstreams[1].serve(f), func(o *Options) { o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}} })
	f.Fuzz(func(t *testing.T, method, path, authority, name, value string, body []byte) {
		const field, frame = 3 << 10, 16 << 10 // all fields fit in a frame, and so does the body
		for _, s := range []*string{&method, &path, &authority, &name, &value} {
			*s = (*s)[:min(len(*s), field)]
		}
		body = body[:min(len(body), frame)]
		for i, proxy := range []*front{inClear, secure} {
			upstream := &upstreams[i]
			upstream.forget()
			conn, err := net.Dial("tcp", proxy.Addr().String())
			require.NoError(t, err)
			if proxy == secure {
				conn = tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"}})
			}
			require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			var fields []byte
			for _, f := range [][2]string{{":method", method}, {":path", path}, {":scheme", "http"}, {":authority", authority}, {name, value}} {
				fields = appendLiteral(appendLiteral(append(fields, 0), f[0]), f[1])
			}
			text := appendFrame([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frameSettings, 0, 0, nil)
			if len(body) == 0 {
				text = appendFrame(text, frameHeaders, flagEndStream|flagEndHeaders, 1, fields)
			} else {
				text = appendFrame(appendFrame(text, frameHeaders, flagEndHeaders, 1, fields), frameData, flagEndStream, 1, body)
			}
			_, _ = conn.Write(text)
			require.True(t, streamEnds(conn), "the stream does not end")
			_ = conn.Close()
			noted := upstream.saw(t, proxy)
			if len(noted) == 0 {
				continue
			}
			want := fmt.Sprintf("%s %q %q host %q", method, path, body, authority)
			if authority == "" && strings.EqualFold(name, "host") {
				want = fmt.Sprintf("%s %q %q host %q", method, path, body, value)
			}
			require.Equal(t, []string{want}, noted)
		}
	})
}

// Of HTTP/2 (RFC 9113).
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway = 0, 1, 3, 4, 7

	flagEndStream, flagEndHeaders = 1, 4
)

func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// appendLiteral appends a string of HPACK (RFC 7541, 5.2), not compressed.
func appendLiteral(b []byte, s string) []byte {
	n := len(s)
	if n < 127 {
		return append(append(b, byte(n)), s...)
	}
	b = append(b, 127)
	for n -= 127; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return append(append(b, byte(n)), s...)
}

// streamEnds reads until the only stream of a connection has ended, or the connection, and
// reports whether that was before the deadline.
func streamEnds(conn net.Conn) bool {
	for in := bufio.NewReader(conn); ; {
		var head [9]byte
		_, err := io.ReadFull(in, head[:])
		if err == nil {
			_, err = in.Discard(int(head[0])<<16 | int(head[1])<<8 | int(head[2]))
		}
		switch kind, flags := head[3], head[4]; {
		case err != nil:
			var network net.Error
			return !errors.As(err, &network) || !network.Timeout()
		case kind == frameReset || kind == frameGoAway || kind <= frameHeaders && flags&flagEndStream != 0:
			return true
		}
	}
}
