package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/internal/served"
)

func eventually(t testing.TB, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, time.Millisecond, what)
}

// raw is a connection to a proxy.
type raw struct {
	*net.TCPConn
	in *bufio.Reader
}

func (f *front) dial(t *testing.T) *raw {
	t.Helper()
	c, err := net.Dial("tcp", f.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return &raw{c.(*net.TCPConn), bufio.NewReader(c)}
}

func (c *raw) send(t *testing.T, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
}

// answer reads an answer whose status is not 1xx, in full.
func (c *raw) answer(t *testing.T, method string) (int, string) {
	t.Helper()
	for {
		resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
		require.NoError(t, err)
		if resp.StatusCode < 200 {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
}

// Whichever way a request frames its body, what reaches the upstream is one request or none:
// a second one behind it never does, with Expect and interim answers or without.
func TestProxy_OneRequestOrNone(t *testing.T) {
	t.Parallel()
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	lengths := []string{
		"", "Content-Length: 0", "Content-Length: 5", fmt.Sprint("Content-Length: ", len(smuggled)), "Content-Length: +5", "Content-Length: 0x5",
		"Content-Length: 5, 5", "Content-Length: 5\r\nContent-Length: 6", "Content-Length : 5", "Content-Length: -1", "Content-Length:\t5",
		"content-length: 00000000005", "Content-Length: 99999999999999999999",
	}
	encodings := []string{
		"", "Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked, identity",
		"Transfer-Encoding: identity", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding : chunked",
		"Transfer-Encoding:\x0bchunked", "Transfer-Encoding: gzip, chunked", "X: a\r\n Transfer-Encoding: chunked", "Transfer-Encoding: \"chunked\"",
		"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
	}
	bodies := []string{"", "0\r\n\r\n", "hello"}
	var reached atomic.Int64
	f := open(t, speak(t, func(_ int, c net.Conn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if r.Header.Get("X-Interim") != "" {
				_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n")
			}
			reached.Add(1)
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}), func(o *Options) { o.ReadTimeout, o.Capacity, o.MaxConnections = 2*time.Second, 10_000, 10_000 })
	rows := 0
	limit := make(chan struct{}, 32)
	var clients sync.WaitGroup
	for _, version := range []string{"1.1", "1.0"} {
		for _, length := range lengths {
			for _, encoding := range encodings {
				for _, extra := range []string{"", "Expect: 100-continue\r\n", "X-Interim: 1\r\n"} {
					body := bodies[rows%len(bodies)]
					rows++
					head := "POST / HTTP/" + version + "\r\nHost: a\r\nConnection: keep-alive\r\n" + extra
					for _, line := range []string{length, encoding} {
						if line != "" {
							head += line + "\r\n"
						}
					}
					clean := isClean(length, encoding, body)
					limit <- struct{}{}
					clients.Go(func() {
						defer func() { <-limit }()
						c, err := net.Dial("tcp", f.Addr().String())
						if err != nil {
							t.Error(err)
							return
						}
						defer func() { _ = c.Close() }()
						_, _ = io.WriteString(c, head+"\r\n"+body+smuggled)
						_ = c.(*net.TCPConn).CloseWrite()
						_ = c.SetDeadline(time.Now().Add(time.Minute))
						answer, _ := io.ReadAll(c)
						both := length != "" && encoding != ""
						if both && !strings.HasPrefix(string(answer), "HTTP/1.1 400") {
							t.Errorf("%q %q %q: %q", version, length, encoding, answer[:min(len(answer), 60)])
						}
						if n := strings.Count(string(answer), "HTTP/1.1 200"); n > 1 && !clean {
							t.Errorf("%q %q %q: %d answers", version, length, encoding, n)
						}
					})
				}
			}
		}
	}
	clients.Wait()
	require.GreaterOrEqual(t, rows, 500)
	require.Zero(t, f.Gauge().Busy)
	require.Positive(t, reached.Load())
}

// isClean reports whether a framing and a body mean the same to everybody, so that what
// follows is a request of its own.
func isClean(length, encoding, body string) bool {
	switch {
	case encoding == "" && (length == "" || length == "Content-Length: 0"):
		return true
	case encoding == "" && (strings.TrimLeft(strings.TrimSpace(strings.SplitN(length, ":", 2)[1]), "0") == "5"):
		return body == "hello" || body == "0\r\n\r\n"
	case length == "" && (strings.HasSuffix(encoding, ": chunked") || strings.HasSuffix(encoding, ": Chunked")):
		return body == "0\r\n\r\n"
	}
	return false
}

// Content-Length and Transfer-Encoding together are 400 on the connection's end, also where an
// interim answer comes before.
func TestProxy_RefusesTwoFramings(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	f := open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		w.WriteHeader(http.StatusEarlyHints)
	}), nil)
	for _, extra := range []string{"", "Expect: 100-continue\r\n"} {
		c := f.dial(t)
		c.send(t, "POST / HTTP/1.1\r\nHost: a\r\n"+extra+"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
		status, _ := c.answer(t, "POST")
		require.Equal(t, 400, status)
		_, err := c.in.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	}
	require.Zero(t, reached.Load())
}

// holding starts an upstream that holds requests of /hold until it is let go, and counts those
// of other paths.
func holding(t *testing.T) (url string, held chan struct{}, release func(), others *atomic.Int64) {
	t.Helper()
	held, others = make(chan struct{}, 100), new(atomic.Int64)
	free := make(chan struct{})
	release = sync.OnceFunc(func() { close(free) })
	url = serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/hold" {
			held <- struct{}{}
			<-free
			return
		}
		others.Add(1)
	})
	t.Cleanup(release)
	return url, held, release, others
}

// The answer to a request does not wait for that of the next one, nor is it lost when that is given up as the client
// has ended its side.
func TestProxy_AnswersBeforeTheNext(t *testing.T) {
	t.Parallel()
	url, held, release, _ := holding(t)
	f := open(t, url, nil)
	for _, leaves := range []bool{false, true} {
		c := f.dial(t)
		c.send(t, "POST /quick HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
		if leaves {
			require.NoError(t, c.CloseWrite())
		} else {
			<-held
		}
		status, _ := c.answer(t, "POST")
		require.Equal(t, 200, status)
	}
	release()
}

// A client that leaves while its request waits has it given up, whatever the method, with a
// body, with Expect, and with a body that was to be streamed: 499, and the upstream never hears
// of it.
func TestProxy_GivesUpWhatWaitsForNobody(t *testing.T) {
	t.Parallel()
	url, held, release, others := holding(t)
	f := open(t, url, func(o *Options) { o.Concurrency, o.BufferBytes = 1, 1000 })
	first := f.dial(t)
	first.send(t, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
	<-held
	requests := []string{
		"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /gone HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\nfifteen bytes..",
		"PATCH /gone HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST /gone HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n",
		"POST /gone HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n" + strings.Repeat("b", 1000),
		"DELETE /gone HTTP/1.0\r\n\r\n",
	}
	for _, reset := range []bool{false, true} {
		var waiting []*raw
		for i, request := range requests {
			c := f.dial(t)
			c.send(t, request)
			waiting = append(waiting, c)
			eventually(t, func() bool { return f.Gauge().Depth == i+1 }, "it waits")
		}
		for _, c := range waiting {
			if reset {
				require.NoError(t, c.SetLinger(0))
			}
			require.NoError(t, c.Close())
		}
		eventually(t, func() bool { return f.Gauge().Depth == 0 }, "the dead have left the queue")
	}
	release()
	status, _ := first.answer(t, "GET")
	require.Equal(t, 200, status)
	require.Equal(t, 200, f.do(t, "GET", "/", nil).status)
	require.EqualValues(t, 1, others.Load(), "of the dead the upstream got nothing")
	eventually(t, func() bool {
		text := scrape(t, f)
		return strings.Contains(text, `spillway_shed_total{reason="abandoned",strategy="fifo"} 12`) &&
			strings.Contains(text, `code="499",method="POST",strategy="fifo"} 6`) && !strings.Contains(text, `code="503",method`)
	}, "they are counted as 499")
	require.Zero(t, f.front.Bodies())
}

// A body takes no place until it is there, and 100 Continue comes with the place.
func TestProxy_BodiesArriveBeforeTheyTakeAPlace(t *testing.T) {
	t.Parallel()
	url, held, release, _ := holding(t)
	f := open(t, url, func(o *Options) { o.Concurrency = 1 })
	slow := f.dial(t)
	slow.send(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello")
	eventually(t, func() bool { return f.front.Bodies() > 0 }, "some of it has arrived")
	require.Equal(t, 200, f.do(t, "GET", "/", nil).status, "the place is free")
	first := f.dial(t)
	first.send(t, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
	<-held
	expects := f.dial(t)
	expects.send(t, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	eventually(t, func() bool { return f.Gauge().Depth == 1 }, "it waits")
	require.NoError(t, expects.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := expects.in.Peek(1)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is told nothing yet")
	require.NoError(t, expects.SetReadDeadline(time.Now().Add(time.Minute)))
	release()
	line, err := expects.in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
	_, _ = expects.in.ReadString('\n')
	expects.send(t, "hello")
	status, _ := expects.answer(t, "POST")
	require.Equal(t, 200, status)
	slow.send(t, "hello")
	status, _ = slow.answer(t, "POST")
	require.Equal(t, 200, status)
}

// An answer that breaks off after its head is not good: 502 by the upstream's fault, 499 if
// the client left, and the log says so at most once in a while.
func TestProxy_JudgesAnswersAtTheirEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		head, body string
		two        bool // over HTTP/2
	}{
		"closes early":     {"Content-Length: 10", "hello", false},
		"bad chunk":        {"Transfer-Encoding: chunked", "5\r\nhello\r\nzz\r\n", false},
		"bad chunk, h2c":   {"Transfer-Encoding: chunked", "5\r\nhello\r\nzz\r\n", true},
		"cut chunks":       {"Transfer-Encoding: chunked", "5\r\nhello\r\n", false},
		"silent":           {"Content-Length: 10", "hello", false},
		"silent, h2c":      {"Content-Length: 10", "hello", true},
		"resets":           {"Content-Length: 10", "hello", false},
		"closes early, h2": {"Content-Length: 10", "hello", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log syncBuffer
			silent := strings.HasPrefix(name, "silent")
			f := open(t, speak(t, func(_ int, c net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+tt.head+"\r\n\r\n"+tt.body)
				switch {
				case silent:
					_, _ = io.Copy(io.Discard, c)
				case name == "resets":
					_ = c.(*net.TCPConn).SetLinger(0)
				}
			}), func(o *Options) {
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				if silent {
					o.Timeout = 100 * time.Millisecond
				}
			})
			client := f.client
			if tt.two {
				client = h2c(t)
			}
			const requests = 5
			for range requests {
				resp, err := client.Get(f.url)
				if err == nil {
					var body []byte
					body, err = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusOK { // nothing had been sent
						require.NoError(t, err)
						requireProblem(t, answer{resp.StatusCode, resp.Header, string(body)}, 502, "the upstream")
						continue
					}
				}
				require.Error(t, err)
				require.NotContains(t, name, "bad chunk", "nothing was sent before it was seen")
			}
			eventually(t, func() bool { return f.Gauge().Busy == 0 }, "no place is lost")
			eventually(t, func() bool {
				return strings.Contains(scrape(t, f), `code="502",method="GET",strategy="fifo"} 5`)
			}, "all are counted")
			require.NotContains(t, scrape(t, f), `outcome="ok"`)
			require.Equal(t, 1, strings.Count(log.String(), "no answer from the upstream"), log.String())
		})
	}
}

// An upstream is never asked to switch to HTTP/2, whose requests would pass the queue.
func TestProxy_NoSwitchToHTTP2(t *testing.T) {
	t.Parallel()
	f := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Upgrade")) }), nil)
	for asked, passed := range map[string]string{
		"websocket": "websocket", "x, websocket": "x, websocket", "h2c": "", "H2C": "", "h2c-14": "", "websocket, h2c": "", "websocket ,\tH2c": "", "h2,websocket": "",
	} {
		a := f.do(t, "GET", "/", nil, "Connection", "Upgrade, HTTP2-Settings", "HTTP2-Settings", "a", "Upgrade", asked)
		require.Equal(t, passed, a.body, asked)
	}
}

// h2c returns a client that speaks HTTP/2 in the clear.
func h2c(t *testing.T) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// What is held of answers counts in the budget, over HTTP/2 too.
func TestProxy_HeldAnswersCount(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	f := open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-goOn
	}), nil)
	resp, err := h2c(t).Get(f.url)
	require.NoError(t, err)
	require.EqualValues(t, f.o.BufferBytes, f.front.Bodies())
	close(goOn)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	eventually(t, func() bool { return f.front.Bodies() == 0 }, "it is given back")
}

// syncBuffer is a buffer for many goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A client that leaves within its answer is 499, and the upstream's error is told apart.
func TestProxy_TellsApartWhoBreaksOff(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	f := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}), nil)
	c := f.dial(t)
	c.send(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	_, err := c.in.Peek(1)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	<-gone
	eventually(t, func() bool { return strings.Contains(scrape(t, f), `code="499",method="GET",strategy="fifo"} 1`) }, "it is counted")
	require.Zero(t, f.Gauge().Busy)
}

// Clients that read nothing hold no place for answers within the buffer, over each protocol,
// though what the socket holds is full.
func TestProxy_SlowReadersHoldNoPlace(t *testing.T) {
	t.Parallel()
	const size = 60 << 10
	f := open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }), func(o *Options) {
		o.Concurrency, o.Capacity, o.MaxConnections, o.MaxBodyBytes = 2, 1000, 1000, 1<<30
	})
	for range 2 {
		c := f.dial(t)
		require.NoError(t, c.SetReadBuffer(4<<10))
		go func() { // 6 MB of answers, of which it reads nothing
			for range 100 {
				if _, err := io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
					return
				}
			}
		}()
	}
	for range 2 {
		client := h2c(t)
		for range 100 { // together more than the connection's window
			go func() {
				if resp, err := client.Get(f.url + "/slow"); err == nil {
					t.Cleanup(func() { _ = resp.Body.Close() })
				}
			}()
		}
	}
	for range 20 {
		require.Equal(t, 200, f.do(t, "GET", "/", nil).status)
	}
	eventually(t, func() bool { return f.Gauge().Busy == 0 && f.Gauge().Depth == 0 }, "nobody holds a place")
}

// A bodiless request of an idempotent method is sent once more when the connection that was
// kept for it has been closed; others are not.
func TestProxy_SendsAgain(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "POST", "PATCH"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			var again atomic.Int64
			f := open(t, speak(t, func(_ int, c net.Conn) {
				in := bufio.NewReader(c)
				for i := 0; ; i++ {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					if r.URL.Path == "/again" && again.Add(1) == 1 && i > 0 {
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}), nil)
			require.Equal(t, 200, f.do(t, "GET", "/", nil).status)
			c := f.dial(t)
			c.send(t, method+" /again HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
			status, _ := c.answer(t, method)
			if method == "POST" || method == "PATCH" {
				require.Equal(t, 502, status)
				require.EqualValues(t, 1, again.Load())
			} else {
				require.Equal(t, 200, status)
				require.EqualValues(t, 2, again.Load())
			}
		})
	}
}

// What comes back is fit for whoever asked: no interim answers for HTTP/1.0, and trailers
// whose names may pass.
func TestProxy_FiltersAnswers(t *testing.T) {
	t.Parallel()
	f := open(t, speak(t, func(_ int, c net.Conn) {
		in := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\nSpillway-Shed: full\r\n\r\n"+
				"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\n"+
				"X-Sum: 1\r\nSpillway-Shed: full\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
		}
	}), nil)
	c := f.dial(t)
	c.send(t, "GET / HTTP/1.0\r\n\r\n")
	all, err := io.ReadAll(c.in)
	require.NoError(t, err)
	require.Regexp(t, "(?s)^HTTP/1.1 200 Fine\r\n.*\r\n\r\nok$", string(all))
	require.NotContains(t, string(all), "103")

	c = f.dial(t)
	c.send(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	all, err = io.ReadAll(c.in)
	require.NoError(t, err)
	require.Regexp(t, "(?s)^HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n.*HTTP/1.1 200 Fine\r\n.*\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n$", string(all))
	require.NotContains(t, string(all), "Spillway-Shed")

	resp, err := h2c(t).Get(f.url)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "ok", string(body))
	require.Equal(t, "1", resp.Trailer.Get("X-Sum"))
	require.Empty(t, resp.Trailer.Get("Spillway-Shed"))
}

// Over HTTP/2 no interim answer comes, and streams that are reset while such come from the upstream race nothing.
func TestProxy_NoInterimAnswersOverHTTP2(t *testing.T) {
	t.Parallel()
	const requests = 400
	arrived := make(chan struct{}, requests+1)
	hints := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", maxInterim)
	f := open(t, speak(t, func(_ int, c net.Conn) {
		for in := bufio.NewReader(c); ; {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			arrived <- struct{}{}
			for hint := range strings.SplitAfterSeq(hints, "\r\n\r\n") {
				_, _ = io.WriteString(c, hint)
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	}), func(o *Options) { o.Capacity, o.Concurrency = 1000, 64 })
	client := h2c(t)
	get := func(ctx context.Context) (*http.Response, error) {
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				t.Errorf("an interim answer, %d", code)
				return nil
			},
		}), http.MethodGet, f.url, nil)
		require.NoError(t, err)
		return client.Do(r)
	}
	var clients sync.WaitGroup
	for i := range requests {
		ctx, reset := context.WithCancel(t.Context())
		clients.Go(func() {
			resp, err := get(ctx)
			if err == nil {
				_ = resp.Body.Close()
			} else if ctx.Err() == nil {
				t.Error(err)
			}
			reset()
		})
		if i%4 > 0 {
			select {
			case <-arrived: // it, or one before
				reset()
			case <-ctx.Done(): // it has been answered, and one before was heard of for it
			}
		}
	}
	clients.Wait()
	resp, err := get(t.Context())
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "ok", string(body))
	require.Empty(t, resp.Header["Link"])
	eventually(t, func() bool { return f.Gauge().Busy == 0 }, "no place is lost")
}

// The bytes of a target stay as they are, and OPTIONS * is the upstream's to answer.
func TestProxy_TargetsStay(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	f := open(t, speak(t, func(_ int, c net.Conn) {
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			for rest := line; rest != "\r\n" && err == nil; {
				rest, err = in.ReadString('\n')
			}
			seen <- strings.TrimSuffix(line, " HTTP/1.1\r\n")
			_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	}), nil)
	c := f.dial(t)
	for _, line := range []string{"GET /a|b\"c<d>^`{}\\é//x/../y?q=%zz|\"[]", "OPTIONS *", "GET /%2e%2E/%41", "PURGE /x"} {
		c.send(t, line+" HTTP/1.1\r\nHost: a\r\n\r\n")
		status, _ := c.answer(t, "GET")
		require.Equal(t, 204, status)
		require.Equal(t, line, <-seen)
	}
}

// An event stream in answer to a GET gives its place back with its headers; one in answer to
// anything else, which is what models generate, at its end.
func TestProxy_EventStreamsByMethod(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	f := open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-next
	}), func(o *Options) { o.Concurrency = 8 })
	for _, method := range []string{"GET", "POST", "PUT"} {
		c := f.dial(t)
		c.send(t, method+" / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		_, err := c.in.Peek(1)
		require.NoError(t, err)
		want := 1
		if method == "GET" {
			want = 0
		}
		require.Equal(t, want, f.Gauge().Busy, method)
		next <- struct{}{}
		status, _ := c.answer(t, method)
		require.Equal(t, 200, status)
		eventually(t, func() bool { return f.Gauge().Busy == 0 }, method)
	}
}

// Routes have names in the metrics and among the slowest requests.
func TestProxy_NamesRoutes(t *testing.T) {
	t.Parallel()
	var routes rules.Routes
	require.NoError(t, routes.UnmarshalText([]byte("/orders/*=orders")))
	m := metrics.New(metrics.Options{Proxy: true, Routes: routes.Names()})
	f := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/x" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}), func(o *Options) {
		o.Routes = routes
		o.Events.Routed = m.Routed
	})
	f.metrics = m
	require.Equal(t, 200, f.do(t, "GET", "/orders/7?secret", nil).status)
	require.Equal(t, 500, f.do(t, "GET", "/x", nil).status)
	eventually(t, func() bool {
		text := scrape(t, f)
		return strings.Contains(text, `spillway_route_duration_seconds_count{outcome="ok",route="orders"} 1`) &&
			strings.Contains(text, `spillway_route_duration_seconds_count{outcome="error",route="other"} 1`)
	}, "each is timed by its name")
	require.NotContains(t, scrape(t, f), "secret")
	eventually(t, func() bool { return len(f.o.Slowest.List(f.Now())) == 2 }, "they are remembered")
	names := map[string]bool{}
	for _, q := range f.o.Slowest.List(f.Now()) {
		names[q.Route] = true
	}
	require.Equal(t, map[string]bool{"orders": true, "other": true}, names)
}

// Whatever an upstream does in the place of an answer is one clear status and, for all of them,
// one line of the log in 10 s, and costs no place.
func TestProxy_BadUpstreams(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer string
		status int
	}{
		"garbage":              {"220 mail ESMTP\r\n\r\n", 502},
		"no line":              {strings.Repeat("x", 1000), 502},
		"two lengths":          {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 502},
		"a length and chunks":  {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502},
		"a length of letters":  {"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n", 502},
		"another encoding":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", 502},
		"a name with a blank":  {"HTTP/1.1 200 OK\r\nX Y: 1\r\n\r\n", 502},
		"a folded line":        {"HTTP/1.1 200 OK\r\nX: 1\r\n 2\r\n\r\n", 502},
		"an odd status":        {"HTTP/1.1 20 OK\r\n\r\n", 502},
		"another version":      {"HTTP/2.0 200 OK\r\n\r\n", 502},
		"a switch":             {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", 502},
		"interim without end":  {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 1000), 502},
		"a head without end":   {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 100), 502},
		"a return in a value":  {"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n", 502},
		"until the end":        {"HTTP/1.0 200 OK\r\n\r\nhello", 200},
		"lines without return": {"HTTP/1.1 200 OK\nConnection: close\nContent-Length: 2\n\nok", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log syncBuffer
			f := open(t, speak(t, func(_ int, c net.Conn) {
				in := bufio.NewReader(c)
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				_, _ = io.WriteString(c, tt.answer)
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, in)
			}), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			for range 3 {
				c := f.dial(t)
				c.send(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
				status, _ := c.answer(t, "POST")
				require.Equal(t, tt.status, status)
			}
			eventually(t, func() bool { return f.Gauge().Busy == 0 }, "no place is lost")
			if tt.status == 502 {
				require.Equal(t, 1, strings.Count(log.String(), "no answer from the upstream"), log.String())
			}
		})
	}
}

// An upstream that resets the connection after each byte of its answer costs one answer, and
// no place.
func TestProxy_ResetAtEachByte(t *testing.T) {
	t.Parallel()
	const text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	var at atomic.Int64
	f := open(t, speak(t, func(_ int, c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		_, _ = io.WriteString(c, text[:at.Load()])
		_ = c.(*net.TCPConn).SetLinger(0)
	}), nil)
	for n := range len(text) {
		at.Store(int64(n))
		c := f.dial(t)
		c.send(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
		resp, err := http.ReadResponse(c.in, nil)
		if err == nil && resp.StatusCode == http.StatusOK {
			_, err = io.ReadAll(resp.Body)
			require.Error(t, err, n)
		} else if err == nil {
			require.Equal(t, http.StatusBadGateway, resp.StatusCode, n)
		}
		_ = c.Close()
	}
	eventually(t, func() bool { return f.Gauge().Busy == 0 && f.Connections() == 0 }, "nothing is left")
	eventually(t, func() bool {
		return strings.Contains(scrape(t, f), fmt.Sprintf(`code="502",method="POST",strategy="fifo"} %d`, len(text)))
	}, "each is counted once")
}

// An upstream that resets the connection within a request's body is 502, wherever that is, and is not taken for one that
// did not answer in time.
func TestProxy_ResetWithinTheBody(t *testing.T) {
	t.Parallel()
	const body, all = 300 << 10, 300 // more than sockets hold
	step := 1
	if testing.Short() {
		step = 5
	}
	text := strings.Repeat("b", body)
	for name, framed := range map[string]string{
		"bytes": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", body, text), "chunks": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", body, text),
	} {
		for _, buffer := range []int{1000, 1 << 20} { // the rest is sent while the answer is waited for, or all is there before
			t.Run(fmt.Sprint(name, buffer), func(t *testing.T) {
				t.Parallel()
				var at atomic.Int64
				codes := make(chan int, all)
				f := open(t, speak(t, func(_ int, c net.Conn) {
					_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
					_, _ = io.CopyN(io.Discard, c, at.Load())
					_ = c.(*net.TCPConn).SetLinger(0)
				}), func(o *Options) {
					o.BufferBytes, o.MaxConnections = buffer, all
					o.Events.Answered = func(_, _ string, code int, _ served.Outcome, _, _ time.Duration) { codes <- code }
				})
				for n := 0; n < all; n += step {
					at.Store(int64(n))
					c := f.dial(t)
					sent := make(chan struct{})
					go func() {
						defer close(sent)
						_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+framed)
					}()
					require.Equal(t, http.StatusBadGateway, <-codes, n)
					require.NoError(t, c.Close())
					<-sent
				}
				eventually(t, func() bool { return f.Gauge().Busy == 0 && f.Connections() == 0 }, "nothing is left")
			})
		}
	}
}

// An upstream that answers a large upload before it has read it is heard, and an upstream that
// answers while it reads gets all of it.
func TestProxy_AnswersWhileTheBodyComes(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	f := open(t, speak(t, func(_ int, c net.Conn) {
		in := bufio.NewReader(c)
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if r.URL.Path == "/refuse" {
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.CopyN(io.Discard, in, 1<<20)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		w := httputilChunked{c}
		_, _ = io.Copy(w, r.Body)
		_, _ = io.WriteString(c, "0\r\n\r\n")
	}), nil)
	c := f.dial(t)
	go func() {
		_, _ = io.WriteString(c, fmt.Sprintf("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", 64<<20))
		_, _ = io.CopyN(c, zeros{}, 64<<20)
	}()
	status, body := c.answer(t, "POST")
	require.Equal(t, 413, status)
	require.Equal(t, "no", body)
	eventually(t, func() bool { return f.Gauge().Busy == 0 }, "no place is lost")

	c = f.dial(t)
	go func() {
		_, _ = io.WriteString(c, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size))
		_, _ = io.CopyN(c, zeros{}, size)
	}()
	status, body = c.answer(t, "POST")
	require.Equal(t, 200, status)
	require.Len(t, body, size)
}

type httputilChunked struct{ io.Writer }

func (w httputilChunked) Write(p []byte) (int, error) {
	if _, err := fmt.Fprintf(w.Writer, "%x\r\n%s\r\n", len(p), p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// An upstream of https is spoken to over TLS, and one that nobody vouches for is not.
func TestProxy_SecureUpstream(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	f := open(t, server.URL, func(o *Options) {
		o.UpstreamRoots = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	})
	for range 3 {
		require.Equal(t, "hello", f.do(t, "POST", "/", strings.NewReader("hello")).body)
	}
	requireProblem(t, open(t, server.URL, nil).do(t, "GET", "/", nil), 502, "cannot be reached")
}

// Whenever a client leaves, in whichever way, nothing is left of it, and the upstream is not
// kept busy for it.
func TestProxy_VanishingClients(t *testing.T) {
	t.Parallel()
	fronttest.Vanish(t, func(t *testing.T) fronttest.Subject {
		t.Helper()
		var mu sync.Mutex
		var told []int
		arrived, free := make(chan struct{}, 1), make(chan struct{})
		let := sync.OnceFunc(func() { close(free) })
		f := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			switch r.URL.Path {
			case "/hold":
				arrived <- struct{}{}
				select {
				case <-free:
				case <-r.Context().Done():
				}
			case "/long":
				for piece := make([]byte, 1<<20); r.Context().Err() == nil; {
					if _, err := w.Write(piece); err != nil {
						return
					}
				}
			}
		}), func(o *Options) {
			o.Concurrency = 1
			answered := o.Events.Answered
			o.Events.Answered = func(strategy, method string, code int, outcome served.Outcome, head, took time.Duration) {
				answered(strategy, method, code, outcome, head, took)
				if method != http.MethodHead { // the holder's
					mu.Lock()
					defer mu.Unlock()
					told = append(told, code)
				}
			}
		})
		t.Cleanup(let)
		return fronttest.Subject{
			Addr: f.Addr().String(), Quick: "/", Long: "/long", GivesUp: true,
			Hold: func(t *testing.T, running bool) (_ string, there, release func()) {
				t.Helper()
				if running {
					return "/hold", func() { <-arrived }, let
				}
				holder := f.dial(t)
				holder.send(t, "HEAD /hold HTTP/1.1\r\nHost: a\r\n\r\n")
				<-arrived
				return "/", func() { eventually(t, func() bool { return f.Gauge().Depth == 1 }, "it waits") }, sync.OnceFunc(func() {
					let()
					_ = holder.Close()
				})
			},
			Told: func() []int {
				mu.Lock()
				defer mu.Unlock()
				return append([]int(nil), told...)
			},
			Idle: func() bool {
				g := f.Gauge()
				return f.Connections() == 0 && f.front.Bodies() == 0 && g.Busy == 0 && g.Depth == 0
			},
		}
	})
}

// Under TLS and over HTTP/2, too, a client that leaves while it waits is noticed, and what is
// served is the same.
func TestProxy_UnderTLS(t *testing.T) {
	t.Parallel()
	certificate, roots := fronttest.SelfSigned(t)
	url, held, release, others := holding(t)
	f := open(t, url, func(o *Options) {
		o.Concurrency = 1
		o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	})
	secure := "https://" + f.Addr().String()
	client := func(protocol func(*http.Protocols)) *http.Client {
		protocols := new(http.Protocols)
		protocol(protocols)
		transport := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{RootCAs: roots}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	one, two := client(func(p *http.Protocols) { p.SetHTTP1(true) }), client(func(p *http.Protocols) { p.SetHTTP2(true) })
	for version, c := range map[string]*http.Client{"HTTP/1.1": one, "HTTP/2.0": two} {
		resp, err := c.Post(secure+"/", "text/plain", strings.NewReader("hello"))
		require.NoError(t, err)
		require.Equal(t, version, resp.Proto)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		_ = resp.Body.Close()
	}
	var clients sync.WaitGroup
	clients.Go(func() {
		if resp, err := two.Get(secure + "/hold"); err == nil {
			_ = resp.Body.Close()
		}
	})
	<-held
	before := others.Load()
	for _, c := range []*http.Client{one, two} {
		ctx, leave := context.WithCancel(t.Context())
		clients.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, secure+"/gone", strings.NewReader("hello"))
			if err != nil {
				return
			}
			if resp, err := c.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		})
		eventually(t, func() bool { return f.Gauge().Depth == 1 }, "it waits")
		leave()
		eventually(t, func() bool { return f.Gauge().Depth == 0 }, "it is given up")
	}
	release()
	clients.Wait()
	eventually(t, func() bool { return f.Gauge().Busy == 0 }, "no place is lost")
	require.Equal(t, before, others.Load())
	eventually(t, func() bool {
		return strings.Contains(scrape(t, f), `spillway_requests_total{code="499",method="POST",strategy="fifo"} 2`)
	}, "they are counted as 499")
}
