package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/strategies"
)

// front is a proxy in front of an upstream, and a client of it.
type front struct {
	*Server
	url     string
	client  *http.Client
	metrics *metrics.Metrics
}

// open opens a proxy in front of an upstream, with 4 places unless it is changed.
func open(t testing.TB, upstream string, change func(*Options)) *front {
	t.Helper()
	u, err := url.Parse(upstream)
	require.NoError(t, err)
	m := metrics.New(metrics.Options{Proxy: true})
	o := Options{
		Listen: "127.0.0.1:0", Upstreams: []*url.URL{u}, Strategy: "fifo", Capacity: 16, Concurrency: 4, Client: "address",
		Timeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxConnections: 100,
		BufferBytes: 64 << 10, MaxBodyBytes: 16 << 20, AcceptLoops: 1,
		Logger:  slog.New(slog.DiscardHandler),
		Events:  Events{Queue: m.Queue, Answered: m.Forwarded, Asked: m.Asked, Left: m.Left, Switched: m.Switched},
		Slowest: new(slowest.Recorder), Epoch: time.Now(),
	}
	if change != nil {
		change(&o)
	}
	s, err := Open(o)
	require.NoError(t, err)
	m.Watch(metrics.Sources{Gauge: s.Gauge, Objective: s.Objective(), Connections: s.Connections, Dropped: func() uint64 { return 0 }})
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(s.Close)
	return &front{s, "http://" + s.Addr().String(), &http.Client{
		Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, m}
}

// serve starts an upstream.
func serve(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server.URL
}

// speak starts an upstream that does what it likes with each connection.
func speak(t testing.TB, with func(n int, c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	var open sync.Map
	serving.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(c, true)
			serving.Go(func() {
				defer func() { _ = c.Close() }()
				with(n, c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		open.Range(func(c, _ any) bool { return c.(net.Conn).Close() == nil || true })
		serving.Wait()
	})
	return "http://" + l.Addr().String()
}

// unheard is a socket that has an address and does not listen: connections are refused there, and nobody else gets the
// port until the end of the test.
func unheard(t *testing.T) (socket *os.File, address string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	socket = os.NewFile(uintptr(fd), "")
	t.Cleanup(func() { _ = socket.Close() })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	return socket, fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (f *front) do(t *testing.T, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, f.url+path, body)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := f.client.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(content)}
}

func requireProblem(t *testing.T, a answer, status int, detail string) {
	t.Helper()
	require.Equal(t, status, a.status, a)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.Contains(t, a.body, detail)
}

func TestProxy_ForwardsWhatIsSent(t *testing.T) {
	t.Parallel()
	var seen *http.Request
	f := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r
		body, _ := io.ReadAll(r.Body)
		w.Header().Add("X-Answer", "a")
		w.Header().Add("X-Answer", "b")
		w.Header().Set("Spillway-Shed", "full")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "gone")
		w.Header()["Content-Type"] = nil
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(append([]byte("<html>"), body...))
	}), nil)
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		a := f.do(t, method, "/a%2Fb//c?x=1;y&z=%zz", strings.NewReader("body"),
			"Host", "ignored", "X-Own", "1", "Connection", "X-Private", "X-Private", "p", "X-Forwarded-For", "6.6.6.6", "X-Forwarded-Proto", "https", "User-Agent", "me")
		require.Equal(t, http.StatusTeapot, a.status)
		require.Equal(t, "<html>body", a.body)
		require.Equal(t, []string{"a", "b"}, a.header["X-Answer"])
		require.Equal(t, "1.1 spillway", a.header.Get("Via"))
		for _, gone := range []string{"Spillway-Shed", "X-Hop", "Content-Type", "Connection"} {
			require.NotContains(t, a.header, gone)
		}
		require.Equal(t, method, seen.Method)
		require.Equal(t, "/a%2Fb//c?x=1;y&z=%zz", seen.RequestURI)
		require.Equal(t, strings.TrimPrefix(f.url, "http://"), seen.Host, "as the client names it")
		require.Equal(t, "1", seen.Header.Get("X-Own"))
		require.Equal(t, "me", seen.UserAgent())
		require.Empty(t, seen.Header.Get("X-Private"))
		require.Equal(t, []string{"127.0.0.1"}, seen.Header["X-Forwarded-For"], "a client may say what it likes")
		require.Equal(t, []string{"http"}, seen.Header["X-Forwarded-Proto"])
		require.Equal(t, []string{seen.Host}, seen.Header["X-Forwarded-Host"])
		require.Equal(t, []string{"1.1 spillway"}, seen.Header["Via"])
	}
	a := f.do(t, "HEAD", "/", nil)
	require.Equal(t, http.StatusTeapot, a.status)
}

func TestProxy_TrustsForwardingHeadersIfTold(t *testing.T) {
	t.Parallel()
	var seen http.Header
	f := open(t, serve(t, func(_ http.ResponseWriter, r *http.Request) { seen = r.Header }), func(o *Options) { o.TrustHeaders = true })
	f.do(t, "GET", "/", nil, "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "shop.example")
	require.Equal(t, "1.2.3.4, 127.0.0.1", seen.Get("X-Forwarded-For"))
	require.Equal(t, "https", seen.Get("X-Forwarded-Proto"))
	require.Equal(t, "shop.example", seen.Get("X-Forwarded-Host"))
	require.NotContains(t, seen, "User-Agent-Of-Go")
}

// Places are held while the upstream works, and whoever finds no room is told so.
func TestProxy_QueuesAndSheds(t *testing.T) {
	t.Parallel()
	var most, now atomic.Int64 // at once, in the upstream
	release := make(chan struct{})
	var served atomic.Int64
	f := open(t, serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			return
		}
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
		now.Add(-1)
		served.Add(1)
	}), func(o *Options) { o.Concurrency, o.Capacity, o.Exempt = 2, 3, rules.Paths{"/health"} })
	codes := make(chan answer, 8)
	for range 8 {
		go func() {
			resp, err := f.client.Get(f.url + "/work")
			if err != nil {
				codes <- answer{}
				return
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			codes <- answer{resp.StatusCode, resp.Header, string(body)}
		}()
	}
	for range 3 { // that find no room
		a := <-codes
		requireProblem(t, a, http.StatusServiceUnavailable, "queue is full")
		require.Equal(t, "full", a.header.Get("Spillway-Shed"))
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
	require.Equal(t, http.StatusOK, f.do(t, "GET", "/health", nil).status, "what is exempt does not wait")
	require.Eventually(t, func() bool { return now.Load() == 2 }, time.Minute, time.Millisecond)
	close(release)
	for range 5 {
		require.Equal(t, http.StatusOK, (<-codes).status)
	}
	require.EqualValues(t, 2, most.Load())
	require.EqualValues(t, 5, served.Load())
	eventually(t, func() bool {
		text := scrape(t, f)
		return strings.Contains(text, `spillway_requests_total{code="200",method="GET",strategy="fifo"} 6`) &&
			strings.Contains(text, `spillway_requests_total{code="503",method="GET",strategy="fifo"} 3`)
	}, "all are counted")
	text := scrape(t, f)
	require.Contains(t, text, `spillway_shed_total{reason="full",strategy="fifo"} 3`)
	require.Contains(t, text, `spillway_tasks_submitted_total{strategy="fifo"} 8`)
	require.Contains(t, text, `spillway_tasks_run_total{strategy="fifo"} 5`)
	require.NotContains(t, text, "spillway_store")
	require.NotContains(t, text, "spillway_commit")
	require.NotEmpty(t, f.o.Slowest.List(f.Now()))
}

func scrape(t *testing.T, f *front) string {
	t.Helper()
	w := httptest.NewRecorder()
	f.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return w.Body.String()
}

// Whatever the upstream does in the place of an answer is one clear problem, without
// Spillway-Shed: the request has reached it, or there was none.
func TestProxy_TellsWhatIsWrongWithTheUpstream(t *testing.T) {
	t.Parallel()
	nobody := testenv.Nobody(t)
	head := func(c net.Conn) { _, _ = http.ReadRequest(bufio.NewReader(c)) }
	for name, tt := range map[string]struct {
		upstream string
		status   int
		detail   string
	}{
		"down":    {"http://" + nobody, 502, "cannot be reached"},
		"garbage": {speak(t, func(_ int, c net.Conn) { head(c); _, _ = io.WriteString(c, "220 mail.example ESMTP\r\n\r\n") }), 502, "not valid HTTP"},
		"resets": {speak(t, func(_ int, c net.Conn) {
			head(c)
			_ = c.(*net.TCPConn).SetLinger(0)
		}), 502, "closed the connection"},
		"closes": {speak(t, func(_ int, c net.Conn) { head(c) }), 502, "closed the connection"},
		"a head without end": {speak(t, func(_ int, c net.Conn) {
			head(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := io.WriteString(c, "X-A: "+strings.Repeat("a", 1000)+"\r\n"); err != nil {
					return
				}
			}
		}), 502, "not valid HTTP"},
		"hangs": {speak(t, func(_ int, c net.Conn) { _, _ = io.Copy(io.Discard, c) }), 504, "did not answer within 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, tt.upstream, func(o *Options) {
				if tt.status == 504 {
					o.Timeout = 100 * time.Millisecond
				}
			})
			a := f.do(t, "POST", "/", strings.NewReader("x"))
			requireProblem(t, a, tt.status, tt.detail)
			require.NotContains(t, a.header, "Spillway-Shed")
			require.Zero(t, f.Gauge().Busy, "its place is free again")
		})
	}
}

// Of answers that do not come the log has one warning in a while, and says in it what was wrong.
func TestProxy_WarnsOfAnswersThatDoNotCome(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // written by noAnswer alone
	u := &upstream{target: target{name: "http://a:1"}, log: slog.New(slog.NewTextHandler(&log, nil)), end: t.Context()}
	began := time.Unix(1_800_000_000, 0)
	for after := range 25 {
		u.noAnswer("GET", fmt.Errorf("cause %d", after), began.Add(time.Duration(after)*time.Second))
	}
	require.Equal(t, []string{"cause 0", "cause 10", "cause 20"}, regexp.MustCompile(`cause \d+`).FindAllString(log.String(), -1))
	require.Equal(t, 3, strings.Count(log.String(), `level=WARN msg="no answer from the upstream" upstream=http://a:1 method=GET`), log.String())
}

// What was cut in its midst is cut for the client too, and looks whole to nobody.
func TestProxy_CutsWhatTheUpstreamCuts(t *testing.T) {
	t.Parallel()
	f := open(t, speak(t, func(_ int, c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
	}), nil)
	resp, err := f.client.Get(f.url)
	if err == nil { // it is cut in the body, unless already before the head
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	require.ErrorContains(t, err, "EOF")
	require.Eventually(t, func() bool { return f.Gauge().Busy == 0 }, time.Minute, time.Millisecond)
}

// An upstream that hangs in the midst of an answer holds no place for longer than the
// time-out. An event stream may be silent.
func TestProxy_CutsWhatTheUpstreamLeavesUnfinished(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	f := open(t, speak(t, func(_ int, c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		if r.URL.Path == "/events" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nfirst\n")
			<-goOn
			_, _ = io.WriteString(c, "second\n")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		_, _ = io.Copy(io.Discard, c)
	}), func(o *Options) { o.Timeout = 100 * time.Millisecond })
	events, err := f.client.Get(f.url + "/events")
	require.NoError(t, err)
	defer events.Body.Close()
	lines := bufio.NewReader(events.Body)
	first, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "first\n", first)

	answer, err := f.client.Get(f.url)
	if err == nil { // it is cut in the body, unless already before the head
		_, err = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
	}
	require.ErrorContains(t, err, "EOF")
	require.Eventually(t, func() bool { return f.Gauge().Busy == 0 }, time.Minute, time.Millisecond)

	close(goOn) // it has been silent for longer than the other
	second, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "second\n", second)
}

// An idempotent request without a body gets one more attempt when the connection that was
// kept for it has been closed, and nothing else does.
func TestProxy_OneMoreAttempt(t *testing.T) {
	t.Parallel()
	type attempt struct {
		method, body string
		closing      int // how many connections are closed on their second request
		status       int
		requests     int64 // with path /again
	}
	// try reports false if the connection was not kept, as net/http does not keep one that
	// it is slow to note the end of the request for.
	try := func(t *testing.T, tt attempt) (kept bool) {
		t.Helper()
		var again atomic.Int64
		var anew atomic.Bool // the first of them came over a new connection
		upstream := speak(t, func(n int, c net.Conn) {
			in := bufio.NewReader(c)
			for i := 0; ; i++ {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				if r.URL.Path == "/again" {
					if again.Add(1) == 1 {
						anew.Store(i == 0)
					}
					if n <= 1+tt.closing { // the first was to see whether it is there
						return
					}
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		})
		f := open(t, upstream, nil)
		require.Equal(t, 200, f.do(t, "GET", "/", nil).status) // its connection is kept
		var body io.Reader
		if tt.body != "" {
			body = strings.NewReader(tt.body)
		}
		status := f.do(t, tt.method, "/again", body).status
		if anew.Load() {
			return false
		}
		require.Equal(t, tt.status, status)
		require.Equal(t, tt.requests, again.Load())
		return true
	}
	for name, tt := range map[string]attempt{
		"idempotent":           {"GET", "", 1, 200, 2},
		"not idempotent":       {"POST", "", 1, 502, 1},
		"with a body":          {"PUT", "x", 1, 502, 1},
		"and no more than one": {"GET", "", 100, 502, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for !try(t, tt) {
				continue
			}
		})
	}
}

// An upstream that is not there at the start is looked for until it is.
func TestProxy_ReadyOnceTheUpstreamIs(t *testing.T) {
	t.Parallel()
	socket, address := unheard(t)
	f := open(t, "http://"+address, nil)
	require.EqualError(t, f.Ready(), "the upstream http://"+address+" cannot be reached: connection refused")
	require.NoError(t, syscall.Listen(int(socket.Fd()), 16))
	l, err := net.FileListener(socket)
	require.NoError(t, err)
	require.NoError(t, socket.Close()) // l has a duplicate
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	require.Eventually(t, func() bool { return f.Ready() == nil }, time.Minute, 10*time.Millisecond)
	require.Equal(t, 404, f.do(t, "GET", "/", nil).status)
	require.NoError(t, server.Close())
	requireProblem(t, f.do(t, "GET", "/", nil), 502, "cannot be reached")
	require.Error(t, f.Ready())
}

// An event stream arrives as it is sent, and holds no place; so does an upgrade.
func TestProxy_StreamsHoldNoPlace(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	upstream := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			for event := range next {
				_, _ = io.WriteString(w, event)
				w.(http.Flusher).Flush()
			}
		case "/echo":
			c, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, rw)
		}
	})
	f := open(t, upstream, func(o *Options) { o.Concurrency = 1 })
	resp, err := f.client.Get(f.url + "/events")
	require.NoError(t, err)
	events := bufio.NewReader(resp.Body)
	for i := range 3 {
		next <- fmt.Sprintf("data: %d\n", i)
		line, err := events.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("data: %d\n", i), line)
		require.Equal(t, 200, f.do(t, "GET", "/", nil).status, "the one place is free")
	}

	c, err := net.Dial("tcp", f.Addr().String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(c)
	switched, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, 101, switched.StatusCode)
	for range 3 {
		_, err = io.WriteString(c, "hello\n")
		require.NoError(t, err)
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "hello\n", line)
		require.Equal(t, 200, f.do(t, "GET", "/", nil).status)
	}
	text := scrape(t, f)
	require.Contains(t, text, `spillway_requests_total{code="101",method="GET",strategy="fifo"} 1`)

	close(next)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	_ = resp.Body.Close()
}

// What has no end of its own is cut when all else has ended, whether or not it holds a place.
func TestProxy_DrainsWithoutStreams(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"events":  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n",
		"upgrade": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
	} {
		for _, hold := range []Hold{HoldAuto, HoldBody} {
			t.Run(fmt.Sprint(name, hold), func(t *testing.T) {
				t.Parallel()
				other, release := make(chan struct{}), make(chan struct{})
				let := sync.OnceFunc(func() { close(release) })
				f := open(t, speak(t, func(_ int, c net.Conn) {
					from := bufio.NewReader(c)
					r, err := http.ReadRequest(from)
					if err != nil { // a look whether anybody is there
						return
					}
					answer := head
					if r.URL.Path == "/other" {
						close(other)
						<-release
						answer = "HTTP/1.1 204 No Content\r\n\r\n"
					}
					_, _ = io.WriteString(c, answer)
					_, _ = from.ReadByte()
				}), func(o *Options) { o.Hold = hold })
				defer let()
				c, err := net.Dial("tcp", f.Addr().String())
				require.NoError(t, err)
				defer func() { _ = c.Close() }()
				_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				require.NoError(t, err)
				stream, err := http.ReadResponse(bufio.NewReader(c), nil)
				require.NoError(t, err)
				answered := make(chan int, 1)
				go func() {
					resp, err := f.client.Get(f.url + "/other")
					if err != nil {
						answered <- 0
						return
					}
					_ = resp.Body.Close()
					answered <- resp.StatusCode
				}()
				<-other

				drained := make(chan error, 1)
				go func() { drained <- f.Drain(t.Context()) }()
				require.Eventually(t, func() bool {
					c, err := net.Dial("tcp", f.Addr().String())
					if err == nil {
						_ = c.Close()
					}
					return err != nil
				}, time.Minute, time.Millisecond)
				let()
				require.Equal(t, 204, <-answered)
				require.NoError(t, <-drained)
				_, _ = io.Copy(io.Discard, stream.Body) // it is cut, or this does not end
			})
		}
	}
}

// Large bodies pass in little memory, both ways.
func TestProxy_StreamsLargeBodies(t *testing.T) {
	t.Parallel()
	size := 1 << 30
	if testing.Short() {
		size = 256 << 20
	}
	var most atomic.Uint64
	look := func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most.Store(max(most.Load(), m.HeapAlloc))
	}
	f := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		look()
		if r.Method == http.MethodPut && (n != int64(size) || err != nil) {
			w.WriteHeader(http.StatusInternalServerError)
		}
		if r.Method == http.MethodGet {
			piece := make([]byte, 1<<20)
			for i := range size / len(piece) {
				if _, err := w.Write(piece); err != nil {
					return
				}
				if i%64 == 0 {
					look()
				}
			}
		}
	}), nil)
	require.Equal(t, 200, f.do(t, "PUT", "/", io.LimitReader(zeros{}, int64(size))).status)
	resp, err := f.client.Get(f.url)
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	require.Less(t, most.Load(), uint64(128<<20))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A client whose body does not come is not waited for, nor is its place kept.
func TestProxy_GivesUpSlowBodies(t *testing.T) {
	t.Parallel()
	f := open(t, serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }),
		func(o *Options) { o.ReadTimeout = 100 * time.Millisecond })
	for answered := false; !answered; {
		c, err := net.Dial("tcp", f.Addr().String())
		require.NoError(t, err)
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if answered = err == nil; answered { // its head came before the time for that was over
			require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
		}
		_ = c.Close()
	}
	require.Eventually(t, func() bool { return f.Gauge().Busy == 0 }, time.Minute, time.Millisecond)
}

// Who is turned away and does not send the rest of a body is told all the same, and then cut
// off, as is who has been told that it was too slow.
func TestProxy_CutsOffWhoSendsNoBody(t *testing.T) {
	t.Parallel()
	const rest = "Host: a\r\nContent-Length: 10\r\n\r\nhello"
	for name, tt := range map[string]struct {
		head   string
		status int
		full   bool
	}{
		"turned away":       {"POST / HTTP/1.1\r\nExpect: 100-continue\r\n", http.StatusServiceUnavailable, true},
		"a method":          {"CONNECT a:1 HTTP/1.1\r\n", http.StatusMethodNotAllowed, false},
		"too slow":          {"POST / HTTP/1.1\r\n", http.StatusRequestTimeout, false},
		"too slow, expects": {"POST / HTTP/1.1\r\nExpect: 100-continue\r\n", http.StatusRequestTimeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			f := open(t, serve(t, func(_ http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					<-release
				}
				_, _ = io.Copy(io.Discard, r.Body)
			}), func(o *Options) { o.ReadTimeout, o.Concurrency, o.Capacity = 100*time.Millisecond, 1, 1 })
			var others sync.WaitGroup
			defer others.Wait()
			defer close(release)
			for n := range 2 {
				if tt.full {
					others.Go(func() {
						for { // until its head comes before the time for that is over
							if resp, err := f.client.Get(f.url); err == nil {
								_ = resp.Body.Close()
								return
							}
						}
					})
					require.Eventually(t, func() bool { return f.Gauge().Busy+f.Gauge().Depth == n+1 }, time.Minute, time.Millisecond)
				}
			}
			for answered := false; !answered; {
				c, err := net.Dial("tcp", f.Addr().String())
				require.NoError(t, err)
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = io.WriteString(c, tt.head+rest)
				from := bufio.NewReader(c)
				resp, err := http.ReadResponse(from, nil)
				for err == nil && resp.StatusCode == http.StatusContinue {
					resp, err = http.ReadResponse(from, nil)
				}
				if answered = err == nil; answered { // its head came before the time for that was over
					require.Equal(t, tt.status, resp.StatusCode)
					_, err = io.Copy(io.Discard, resp.Body)
					require.NoError(t, err)
					_, err = from.ReadByte()
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is still open")
				} else {
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is not told")
				}
				_ = c.Close()
			}
			require.Eventually(t, func() bool { return f.Connections() <= 2 }, time.Minute, time.Millisecond)
		})
	}
}

// An upstream that answers before it has read the body holds no place until a client sends
// the rest.
func TestProxy_AnswersBeforeTheBody(t *testing.T) {
	t.Parallel()
	f := open(t, speak(t, func(_ int, c net.Conn) {
		from := bufio.NewReader(c)
		if _, err := http.ReadRequest(from); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
		}
		_, _ = io.Copy(io.Discard, from)
	}), func(o *Options) { o.ReadTimeout = 100 * time.Millisecond })
	for range 8 {
		c, err := net.Dial("tcp", f.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return f.Gauge().Busy == 0 && f.Connections() == 0 }, time.Minute, time.Millisecond)
}

// A client of HTTP/2 that takes nothing more of its answer, on a connection that is well, is
// cut off, and its place comes back.
func TestProxy_CutsOffWhoReadsNothingOfAStream(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(w http.ResponseWriter) error{
		"much at once": func(w http.ResponseWriter) error {
			_, err := w.Write(make([]byte, 1<<20))
			return err
		},
		"piece by piece": func(w http.ResponseWriter) error {
			_, err := w.Write(make([]byte, 1000))
			_ = http.NewResponseController(w).Flush()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for write(w) == nil { // until it is cut off
				}
			}), func(o *Options) { o.WriteTimeout = 100 * time.Millisecond })
			client := h2c(t)
			resp, err := client.Get(f.url)
			for err != nil { // its connection, too, was too slow
				resp, err = client.Get(f.url)
			}
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Eventually(t, func() bool { return f.Gauge().Busy == 0 }, time.Minute, time.Millisecond)
			_, err = io.Copy(io.Discard, resp.Body)
			require.Error(t, err)
			_ = resp.Body.Close()
		})
	}
}

// A client that hangs up while it waits gives its place in the queue up, and while it is
// served the upstream learns of it.
func TestProxy_ClientsThatGo(t *testing.T) {
	t.Parallel()
	told, arrived := make(chan struct{}), make(chan struct{})
	f := open(t, serve(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
		close(told)
	}), func(o *Options) { o.Concurrency = 1 })
	ctx, leave := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	get := func(ctx context.Context) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
		if err != nil {
			return
		}
		if resp, err := f.client.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}
	clients.Go(func() { get(ctx) })
	<-arrived
	waiting, stopWaiting := context.WithCancel(t.Context())
	clients.Go(func() { get(waiting) })
	require.Eventually(t, func() bool { return f.Gauge().Depth == 1 }, time.Minute, time.Millisecond)
	stopWaiting()
	require.Eventually(t, func() bool { return f.Gauge().Depth == 0 }, time.Minute, time.Millisecond)
	leave()
	<-told
	clients.Wait()
	require.Eventually(t, func() bool { return f.Gauge().Busy == 0 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		text := scrape(t, f)
		return strings.Contains(text, `code="499"`) && strings.Contains(text, `spillway_shed_total{reason="abandoned",strategy="fifo"} 1`)
	}, time.Minute, time.Millisecond)
	live, _ := f.metrics.Live()
	require.EqualValues(t, 2, live.Left.Count(), "for how long they waited is known")
}

// Requests that smuggle another never reach the upstream as two.
func TestProxy_SmugglesNothing(t *testing.T) {
	t.Parallel()
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, text := range map[string]string{
		"both lengths":                 "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"two lengths":                  "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 36\r\n\r\n" + smuggled,
		"a list of lengths":            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0, 36\r\n\r\n" + smuggled,
		"a signed length":              "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\n" + smuggled,
		"a chunk's extension":          "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0;a=\"\r\n\r\n" + smuggled,
		"a bare line feed in a chunk":  "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\n\n" + smuggled,
		"another encoding":             "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n" + smuggled,
		"two encodings":                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
		"an encoding in HTTP/1.0":      "POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"a space before the colon":     "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 36\r\n\r\n" + smuggled,
		"a carriage return in a value": "POST / HTTP/1.1\r\nHost: a\r\nX-A: b\rContent-Length: 36\r\n\r\n" + smuggled,
		"a length that is hidden":      "POST / HTTP/1.1\r\nHost: a\r\nConnection: Content-Length\r\nContent-Length: 36\r\n\r\n" + smuggled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var paths sync.Map
			f := open(t, serve(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				paths.Store(r.URL.Path, true)
			}), nil)
			c, err := net.Dial("tcp", f.Addr().String())
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			_, err = io.WriteString(c, text)
			require.NoError(t, err)
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
			_, _ = io.Copy(io.Discard, c) // until the proxy hangs up
			_, reached := paths.Load("/smuggled")
			require.False(t, reached)
		})
	}
}

func TestProxy_RefusesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	f := open(t, serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the upstream") }), nil)
	c, err := net.Dial("tcp", f.Addr().String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	// The proxy may hang up before the last of it.
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nX-Large: "+strings.Repeat("a", 2*maxHead)+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
}

// HTTP/2 in the clear, as some clients speak it.
func TestProxy_H2C(t *testing.T) {
	t.Parallel()
	f := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s", r.Proto, body)
	}), nil)
	resp, err := h2c(t).Post(f.url, "text/plain", bytes.NewReader([]byte("hello")))
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	require.NoError(t, err)
	require.Equal(t, "HTTP/2.0", resp.Proto)
	require.Equal(t, "HTTP/1.1 hello", string(body))
	require.Equal(t, "1.1 spillway", resp.Header.Get("Via"))
}

// Who is being served when the proxy stops is served, and who still waits at the end of
// the time is told why.
func TestProxy_Drains(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	f := open(t, serve(t, func(_ http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
	}), func(o *Options) { o.Concurrency = 1 })
	answers := make(chan answer, 2)
	get := func(path string) {
		resp, err := f.client.Get(f.url + path)
		if err != nil {
			answers <- answer{body: err.Error()}
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		answers <- answer{resp.StatusCode, resp.Header, string(body)}
	}
	go get("/first")
	<-arrived
	go get("/second")
	require.Eventually(t, func() bool { return f.Gauge().Depth == 1 }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan error)
	go func() { drained <- f.Drain(ctx) }()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", f.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, time.Minute, time.Millisecond, "nobody else is let in")
	release <- struct{}{}
	first := <-answers
	require.Equal(t, 200, first.status)
	<-arrived // the second has its turn
	go func() { release <- struct{}{} }()
	require.Equal(t, 200, (<-answers).status)
	require.NoError(t, <-drained)
	cancel()
}

func TestProxy_TurnsAwayWhatWaitsTooLongToDrain(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	f := open(t, serve(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}), func(o *Options) { o.Concurrency = 1 })
	answers := make(chan answer, 2)
	get := func() {
		resp, err := f.client.Get(f.url)
		if err != nil {
			answers <- answer{body: err.Error()}
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		answers <- answer{resp.StatusCode, resp.Header, string(body)}
	}
	go get()
	<-arrived
	go get()
	require.Eventually(t, func() bool { return f.Gauge().Depth == 1 }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, f.Drain(ctx), "2 requests were not finished")
	got := []answer{<-answers, <-answers}
	shed := 0
	for _, a := range got {
		requireProblem(t, a, http.StatusServiceUnavailable, "stopping")
		if a.header.Get("Spillway-Shed") == "draining" {
			shed++
		}
	}
	require.Equal(t, 1, shed, "of the two one had reached the upstream")
}

// In the mode observe what would be shed is served, and counted.
func TestProxy_Observes(t *testing.T) {
	t.Parallel()
	all := make(chan struct{}) // closed once all wait but the first
	f := open(t, serve(t, func(http.ResponseWriter, *http.Request) {
		<-all
		time.Sleep(20 * time.Millisecond)
	}), func(o *Options) {
		o.Mode, o.Strategy, o.Concurrency, o.Capacity = admission.Observe, "codel", 1, 1000
	})
	const requests = 60
	var clients sync.WaitGroup
	for range requests {
		clients.Go(func() {
			resp, err := f.client.Get(f.url)
			if err == nil {
				_ = resp.Body.Close()
			}
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Error("turned away", err)
			}
		})
	}
	require.Eventually(t, func() bool { return f.Gauge().Depth == requests-1 }, time.Minute, time.Millisecond)
	close(all)
	clients.Wait()
	text := scrape(t, f)
	require.Regexp(t, `spillway_would_shed_total\{reason="codel",strategy="codel"\} [1-9]`, text)
	require.Contains(t, text, `spillway_shed_total{reason="codel",strategy="codel"} 0`)
}

// Observing begins and ends live, and with a learned number too it tells what is late.
func TestProxy_ObservesLive(t *testing.T) {
	t.Parallel()
	f := open(t, serve(t, func(http.ResponseWriter, *http.Request) { time.Sleep(2 * time.Millisecond) }), func(o *Options) {
		o.Strategy, o.Concurrency, o.Objective = "auto", 0, strategies.NoObjective
	})
	require.Zero(t, f.Objective().InForce())
	require.NoError(t, f.Objective().Set(time.Millisecond))
	require.NoError(t, f.SetObserve(true))
	require.True(t, f.Gauge().Observe)
	require.Equal(t, 200, f.do(t, "GET", "/", nil).status)
	require.Eventually(t, func() bool {
		return strings.Contains(scrape(t, f), `spillway_would_shed_total{reason="late",strategy="auto"} 1`)
	}, time.Minute, time.Millisecond, "it is told when the place is given back")
	text := scrape(t, f)
	require.Contains(t, text, `spillway_requests_within_objective_total{strategy="auto"} 0`)
	require.Contains(t, text, "spillway_strategy_switches_total 0")
	require.NoError(t, f.SetObserve(false))
	require.False(t, f.Gauge().Observe)

	// An answer is in time by its headers, however long it goes on.
	head := make(chan time.Duration, 1)
	f = open(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "more")
	}), func(o *Options) {
		o.Events.Answered = func(_, _ string, _ int, _ served.Outcome, h, took time.Duration) {
			if h < took {
				head <- h
			}
		}
	})
	require.Equal(t, "more", f.do(t, "GET", "/", nil).body)
	require.Positive(t, <-head)
}

// A switch is told of, and counts from then on.
func TestProxy_Switches(t *testing.T) {
	t.Parallel()
	f := open(t, serve(t, func(http.ResponseWriter, *http.Request) {}), nil)
	require.NoError(t, f.Switch("lifo"))
	require.ErrorContains(t, f.Switch("nonsense"), "nonsense")
	require.Equal(t, "lifo", f.Gauge().Strategy)
	require.Equal(t, 200, f.do(t, "GET", "/", nil).status)
	eventually(t, func() bool {
		return strings.Contains(scrape(t, f), `spillway_requests_total{code="200",method="GET",strategy="lifo"} 1`)
	}, "it is counted")
	require.Contains(t, scrape(t, f), "spillway_strategy_switches_total 1")
}

// How many requests the upstream has at once is learned from how its answers end: what it
// refuses as overloaded, what it breaks off, and what does not reach it, is told as such.
func TestProxy_LearnsFromEnds(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/overloaded" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = http.NewResponseController(w).Flush()
		<-end
		if r.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(upstream.Close)
	let := sync.OnceFunc(func() { close(end) })
	defer let()
	f := open(t, upstream.URL, func(o *Options) { o.Concurrency = 0 })
	require.Equal(t, f.Gauge().Learned.Limit, f.Gauge().Workers)
	var answers []*http.Response
	for i, path := range []string{"/", "/overloaded", "/broken"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+path, http.NoBody)
		require.NoError(t, err)
		a, err := f.client.Do(r)
		require.NoError(t, err)
		answers = append(answers, a)
		g := f.Gauge()
		require.Zero(t, g.Learned.Dropped)
		require.Equal(t, i+1, g.Busy, "its body has not ended")
	}
	let()
	for _, a := range answers {
		_, err := io.Copy(io.Discard, a.Body)
		require.Equal(t, a.Request.URL.Path == "/broken", err != nil)
		require.NoError(t, a.Body.Close())
	}
	require.Eventually(t, func() bool { return f.Gauge().Busy == 0 }, time.Minute, time.Millisecond)
	require.EqualValues(t, 2, f.Gauge().Learned.Dropped)
	upstream.Close()
	require.Equal(t, http.StatusBadGateway, f.do(t, http.MethodGet, "/", nil).status)
	require.EqualValues(t, 3, f.Gauge().Learned.Dropped)
	live, _ := f.metrics.Live()
	require.Equal(t, f.Gauge().Learned.Max, live.Gauge.Learned.Max)
}
