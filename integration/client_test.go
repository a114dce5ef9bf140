//go:build integration

package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// client is one connection to the data plane. Unlike net/http it never repeats
// a request, and shows when a connection is cut.
type client struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
	sent []string // methods of the requests that have not been answered
}

// answer is an HTTP answer.
type answer struct {
	status int
	header http.Header
	body   string
	// close says that the answer announced the end of the connection.
	close bool
}

// shed returns why the queueing layer turned the request away, "" if it did
// not.
func (a answer) shed() string { return a.header.Get("Spillway-Shed") }

func dial(addr string) (*client, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, r: bufio.NewReader(conn)}, nil
}

// dial opens a connection that is closed with the test.
func (s *service) dial() *client {
	s.t.Helper()
	c, err := dial(s.data)
	require.NoError(s.t, err)
	s.t.Cleanup(c.close)
	return c
}

func (c *client) close() { _ = c.conn.Close() }

// reset closes the connection in the way of a client that has crashed.
func (c *client) reset() error {
	return errors.Join(c.conn.(*net.TCPConn).SetLinger(0), c.conn.Close())
}

// refuses reports whether nobody listens on the data plane.
func (s *service) refuses() bool {
	c, err := dial(s.data)
	if err != nil {
		return true
	}
	c.close()
	return false
}

// silent reports whether nothing has come that was not received.
func (c *client) silent() bool {
	if err := c.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return false
	}
	_, err := c.r.Peek(1)
	restored := c.conn.SetReadDeadline(time.Now().Add(patience))
	return errors.Is(err, os.ErrDeadlineExceeded) && restored == nil
}

func entity(key string) string { return "/v0/entity?id=" + url.QueryEscape(key) }

// send sends a request without waiting for the answer. Headers are
// "Name: value".
func (c *client) send(method, target, body string, headers ...string) error {
	c.out = fmt.Appendf(c.out[:0], "%s %s HTTP/1.1\r\nHost: spillway\r\n", method, target)
	for _, h := range headers {
		c.out = fmt.Appendf(c.out, "%s\r\n", h)
	}
	if body != "" || method == http.MethodPut {
		c.out = fmt.Appendf(c.out, "Content-Length: %d\r\n", len(body))
	}
	c.out = append(c.out, "\r\n"...)
	c.out = append(c.out, body...)
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	c.sent = append(c.sent, method)
	_, err := c.conn.Write(c.out)
	return err
}

// receive waits for the next answer.
func (c *client) receive() (answer, error) {
	method := c.sent[0]
	c.sent = c.sent[1:]
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body), close: resp.Close}, err
}

// do sends a request and waits for the answer.
func (c *client) do(method, target, body string, headers ...string) (answer, error) {
	if err := c.send(method, target, body, headers...); err != nil {
		return answer{}, err
	}
	return c.receive()
}

// mustSend and mustReceive fail the test on an error, and so must be called by
// its own goroutine.
func (c *client) mustSend(t testing.TB, method, target, body string, headers ...string) {
	t.Helper()
	require.NoError(t, c.send(method, target, body, headers...))
}

func (c *client) mustReceive(t testing.TB) answer {
	t.Helper()
	a, err := c.receive()
	require.NoError(t, err)
	return a
}

// requireProblem asserts that the answer is an error for people, and returns
// its detail.
func (a answer) requireProblem(t testing.TB, status int) string {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	var problem struct {
		Title, Detail string
		Status        int
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &problem), a.body)
	require.Equal(t, status, problem.Status)
	require.NotEmpty(t, problem.Title)
	require.NotEmpty(t, problem.Detail)
	return problem.Detail
}

// concurrently runs f for 0 to n-1, each in a goroutine, and returns their
// errors.
func concurrently(n int, f func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = f(i) })
	}
	running.Wait()
	return errors.Join(errs...)
}
