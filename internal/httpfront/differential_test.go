package httpfront

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
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
)

// asNetHTTP returns what net/http makes of the first n requests in the input, as the handler
// of recorded tells them.
func asNetHTTP(t *testing.T, input []byte, n int) (requests []string) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(input))
	for range n {
		for { // empty lines before a request, which net/http does not skip
			b, err := r.Peek(1)
			if err != nil || b[0] != '\r' && b[0] != '\n' {
				break
			}
			_, _ = r.Discard(1)
		}
		req, err := http.ReadRequest(r)
		var target *url.Error
		if errors.As(err, &target) {
			break // to the front a target is bytes, which its handler takes apart
		}
		require.NoError(t, err, "%q", input)
		body, err := io.ReadAll(req.Body)
		require.NoError(t, err, "%q", input)
		method := req.Method
		if methodName([]byte(method)) != method {
			method = "other"
		}
		if method != http.MethodPut {
			body = nil
		}
		_, origin := splitTarget([]byte(req.RequestURI))
		requests = append(requests, fmt.Sprintf("%s %q %q host %q close %t", method, origin, body, hostOf(req), req.Close))
	}
	return requests
}

// hostOf returns the field Host, which a target in absolute form overrides for net/http.
func hostOf(req *http.Request) string {
	if strings.Contains(req.RequestURI, "://") || req.Method == http.MethodConnect {
		return "any"
	}
	return req.Host
}

// recorded notes each request as the front has read it.
type recorded struct {
	handler
	requests []string
}

func (r *recorded) NewCall(x *Exchange) Call {
	return &recordedCall{fakeCall{handler: &r.handler, x: x}, r}
}

type recordedCall struct {
	fakeCall
	all *recorded
}

const refused = "refused"

// Answered notes what was refused before it was served.
func (c *recordedCall) Answered(status int, _ bool, _ int64) {
	if status >= http.StatusBadRequest {
		c.mu.Lock()
		c.all.requests = append(c.all.requests, refused)
		c.mu.Unlock()
	}
}

func (c *recordedCall) Serve() {
	x := c.x
	host := string(x.Host)
	if bytes.Contains(x.head.RequestURI(), []byte("://")) || string(x.RawMethod) == http.MethodConnect {
		host = "any"
	}
	c.mu.Lock()
	c.all.requests = append(c.all.requests, fmt.Sprintf("%s %q %q host %q close %t", x.Method, x.Target, x.Body, host, !x.keepAlive))
	c.mu.Unlock()
	x.Send(Answer{Status: 204})
}

// Whatever is served, net/http reads as the same requests, with the same bodies and the same
// end: where the two differ, the front is the stricter.
func FuzzReadsAlike(f *testing.F) {
	const get, behind = "GET /a HTTP/1.1\r\nHost: x\r\n", "GET /behind HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	const put = "PUT /a HTTP/1.1\r\nHost: x\r\n"
	for _, s := range []string{
		get + "\r\n", get + "Connection: keep-alive, close\r\n\r\n", "GET http://y/a?b HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /a HTTP/1.0\r\n\r\n", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		put + "Content-Length: 5\r\n\r\nhello", put + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
		put + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", put + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		put + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\n", put + "Transfer-Encoding: chunked\r\n\r\n0\r\nX : y\r\n\r\n",
		put + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n y\r\n\r\n", get + "X: y\r\n z\r\n\r\n", get + "X : y\r\n\r\n", get + "X\x00: y\r\n\r\n",
		put + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\na",
	} {
		f.Add([]byte(s + behind))
	}
	r := &recorded{}
	front := serve(f, func(o *Options, _ *net.Listener) { o.Handler = r })
	f.Fuzz(func(t *testing.T, input []byte) {
		r.mu.Lock()
		r.requests = nil
		r.mu.Unlock()
		fronttest.Throw(t, front.Addr(), input)
		eventually(t, func() bool { return front.Connections() == 0 }, "the connection is gone")
		r.mu.Lock()
		defer r.mu.Unlock()
		ours := r.requests
		for len(ours) > 0 && ours[len(ours)-1] == refused {
			ours = ours[:len(ours)-1] // net/http may see nothing there, or something else
		}
		for i, theirs := range asNetHTTP(t, input, len(ours)) {
			if ours[i] != refused { // but what is behind it was served
				require.Equal(t, theirs, ours[i], "%q", input)
			}
		}
	})
}
