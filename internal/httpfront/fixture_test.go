package httpfront

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
)

const (
	mostBody = 64 << 10
	budgetOf = 1 << 20
)

// handler serves a few targets, under any method:
//
//	/hold      waits until it is let go, or the client goes
//	/run       waits until it is let go
//	/value/N   N bytes of a known length
//	/stream/N  N bytes of a length that is not known
//
// and 404 elsewhere. Bodies of PUT are kept.
type handler struct {
	held chan *Exchange // those that wait; Done lets them go

	mu     sync.Mutex
	told   []int    // that Answered was told, 499 for what was cut, unless it was refused
	bodies []string // of PUT
}

func (h *handler) NewCall(x *Exchange) Call { return &fakeCall{handler: h, x: x} }
func (h *handler) Refused(int64)            { h.tell(503) }

func (h *handler) tell(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, status)
}

func (h *handler) statuses() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.told)
}

type fakeCall struct {
	*handler
	x      *Exchange
	fields int
}

func (c *fakeCall) Begin()                     { c.fields = 0 }
func (c *fakeCall) Field(_, _ []byte) *Problem { c.fields++; return nil }
func (c *fakeCall) NoRoom() *Problem           { return &Problem{Status: 503, Detail: "no room"} }
func (c *fakeCall) Lines() string              { return "" }
func (c *fakeCall) Head() (Wanted, *Problem) {
	return Wanted{Most: mostBody, Keep: c.x.Method == http.MethodPut, Name: "value"}, nil
}

func (c *fakeCall) Answered(status int, cut bool, _ int64) {
	if cut && status != http.StatusServiceUnavailable {
		status = 499
	}
	c.tell(status)
}

func (c *fakeCall) Serve() {
	x := c.x
	if x.Method == http.MethodPut {
		c.mu.Lock()
		c.bodies = append(c.bodies, string(x.Body))
		c.mu.Unlock()
	}
	what, size, _ := strings.Cut(strings.TrimPrefix(string(x.Target), "/"), "/")
	n, _ := strconv.Atoi(size)
	switch what {
	case "run":
		c.held <- x
		x.WaitDone()
		x.Send(Answer{Status: 200})
	case "hold":
		c.held <- x
		if x.Wait(0) == Gone {
			x.Done() // nobody else has it to do any more
			x.WaitDone()
			x.Send(Answer{Problem: &Problem{Status: 503, Detail: "gone"}, Close: true})
			return
		}
		x.Send(Answer{Status: 200})
	case "value":
		x.Send(Answer{Status: 200, Type: "text/plain", Buf: append(x.Room(), bytes.Repeat([]byte("v"), n)...)})
	case "stream":
		buf, there := x.Start(&Head{Status: 200, Type: "text/plain", Length: Unknown}), true
		for piece := make([]byte, 256<<10); n > 0 && there; n -= len(piece) {
			piece = piece[:min(n, len(piece))]
			if x.Chunks() {
				buf = AppendChunk(buf, len(piece))
			}
			if buf = append(buf, piece...); x.Chunks() {
				buf = append(buf, "\r\n"...)
			}
			buf, there = x.Write(buf)
		}
		x.End(buf, nil)
	default:
		x.Send(Answer{Status: 404})
	}
}

// front is one with the handler above.
type front struct {
	*Front
	*handler
	t testing.TB
}

// serve opens a front over a listener on loopback, or one that change sets.
func serve(t testing.TB, change ...func(*Options, *net.Listener)) *front {
	t.Helper()
	f := &front{t: t, handler: &handler{held: make(chan *Exchange, 100)}}
	begin := time.Now().Add(-time.Hour)
	o := Options{
		AcceptLoops: 2, Handler: f.handler, Now: func() int64 { return int64(time.Since(begin)) },
		MaxHeadBytes: 32 << 10, HeadLimits: [2]string{"a line", "some lines"}, MaxBodyBytes: budgetOf, MaxConnections: 100,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
	}
	var listener net.Listener
	for _, c := range change {
		c(&o, &listener)
	}
	var err error
	if listener == nil {
		listener, err = Listen("127.0.0.1:0")
		require.NoError(t, err)
	}
	f.Front, err = Open(o, listener)
	require.NoError(t, err)
	t.Cleanup(func() {
		f.Close()
		require.Zero(t, f.Connections())
		require.Zero(t, f.Bodies())
		require.Empty(t, f.writers)
	})
	return f
}

func eventually(t testing.TB, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, time.Millisecond, what)
}

// client is one connection to a front.
type client struct {
	t    testing.TB
	conn *net.TCPConn
	r    *bufio.Reader
}

func (f *front) dial() *client {
	f.t.Helper()
	conn, r := fronttest.Dial(f.t, f.Addr())
	return &client{t: f.t, conn: conn, r: r}
}

func (c *client) send(text string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, text)
	require.NoError(c.t, err)
}

// read reads an answer and returns its status and its body.
func (c *client) read(method string) (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	require.NoError(c.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, resp.Body.Close())
	return resp, string(body)
}

// do sends a request without a body, and returns its status.
func (c *client) do(method, target string) int {
	c.t.Helper()
	c.send(method + " " + target + " HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, _ := c.read(method)
	return resp.StatusCode
}

func (c *client) requireOpen() {
	c.t.Helper()
	require.Equal(c.t, 404, c.do("GET", "/"))
}

// requireClosed waits for the end of the connection.
func (c *client) requireClosed() {
	c.t.Helper()
	fronttest.RequireEnded(c.t, c.r)
}

// put returns a PUT of a body of that size in either framing.
func put(target string, size int, inChunks bool) (head, body string) {
	body = strings.Repeat("v", size)
	if inChunks {
		return "PUT " + target + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, body)
	}
	return "PUT " + target + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n", body
}

// goroutinesIn counts the goroutines that are in a function.
func goroutinesIn(function string) int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), function+"(")
}
