package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/socket"
	"github.com/spillway-go/spillway/internal/testenv"
)

// A client that waits for 100 gets it, unless it is refused.
func TestExpectContinue(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy)
		c := s.dial()
		for _, body := range []string{"Content-Length: 5\n\nhello", "Transfer-Encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n"} {
			head, rest, _ := strings.Cut(body, "\n\n")
			c.send("PUT /v0/entity?id=a" + host + "Expect: 100-Continue\n" + head + "\n\n")
			require.Equal(t, 100, mustRead(c).status)
			c.sendRaw(rest)
			require.Equal(t, 201, c.read("PUT").status)
			require.Equal(t, "hello", c.do(get("/v0/entity?id=a")).body)
		}
		// One that sends its body all the same needs none.
		require.Equal(t, 201, c.do("PUT /v0/entity?id=a"+host+"Expect: 100-continue\nContent-Length: 2\n\nhi").status)
		require.Equal(t, 201, c.do("PUT /v0/entity?id=a"+host+"Expect: 100-continue\nContent-Length: 0\n\n").status)
	})
}

func mustRead(c *client) answer {
	c.t.Helper()
	a, err := readAnswer(c.r, "PUT")
	require.NoError(c.t, err)
	return a
}

// A client that sends far too much sees why it is refused, as long as it stops
// within bounds.
func TestTooLarge_ClientStillSending(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	c := s.dial()
	begun := time.Now()
	c.send("PUT /v0/entity?id=a" + host + "Content-Length: 900000\n\n")
	_, err := io.WriteString(c.conn, strings.Repeat("x", 900_000))
	a := c.read("PUT")
	require.Equal(t, 413, a.status)
	require.True(t, a.close)
	err = errors.Join(err, c.conn.CloseWrite())
	c.requireClosed()
	require.True(t, err == nil || time.Since(begun) > time.Second, "%v", err) // so long it may take, and no longer
	_, ok := s.store.get("a")
	require.False(t, ok)
}

// A body that has no room in the budget is refused; the room comes back with
// the answer of whoever had it.
func TestBodyBudget(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo", func(o *setup) { o.MaxBodyBytes, o.queue.Workers = 70_000, 3 })
	unblock := s.store.block("a")
	defer unblock()
	first := s.dial()
	first.send(put("a", strings.Repeat("v", 60_000)))
	<-s.store.arrived

	for _, r := range []struct {
		request string
		closes  bool
	}{
		{"PUT /v0/entity?id=b" + host + "Content-Length: 20000\n\n", true},
		{"PUT /v0/entity?id=b" + host + "Content-Length: 20000\nExpect: 100-continue\n\n", true},
		{"PUT /v0/entity?id=b" + host + "Transfer-Encoding: chunked\n\n4000\r\n" + strings.Repeat("v", 10_000), true},
	} {
		c := s.dial()
		c.send(r.request)
		a := c.read("PUT")
		require.Equal(t, 503, a.status)
		require.Equal(t, "full", a.header.Get("Spillway-Shed"))
		require.Equal(t, "1", a.header.Get("Retry-After"))
		require.Equal(t, r.closes, a.close)
		_ = c.conn.Close()
	}
	s.requireEvents(slices.Repeat([]event{{"fifo", "PUT", 503, true}}, 3)...)
	small := s.dial()
	require.Equal(t, 201, small.do(put("b", strings.Repeat("v", 5000))).status)

	unblock()
	require.Equal(t, 201, first.read("PUT").status)
	require.Equal(t, 201, small.do(put("b", strings.Repeat("v", 20_000))).status)
}

// A budget that is smaller than the largest value turns away the bodies that
// have no room in it, and no others, whichever way they are sent.
func TestBodyBudget_BelowLargestValue(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo", func(o *setup) { o.MaxBodyBytes = 1000 })
	for size, status := range map[int]int{1: 201, 1000: 201, 1001: 503} {
		value := strings.Repeat("v", size)
		require.Equal(t, status, s.dial().do(put("a", value)).status, size)
		chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, value)
		a := s.dial().do("PUT /v0/entity?id=a" + host + "Transfer-Encoding: chunked\n\n" + chunk)
		require.Equal(t, status, a.status, size)
		if status == 503 {
			require.Equal(t, "full", a.header.Get("Spillway-Shed"))
			require.True(t, a.close)
		}
	}
}

// A batch that the budget never has room for is too large: nobody is told to come again
// with it.
func TestBodyBudget_BelowLargestBatch(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo", func(o *setup) { o.MaxBodyBytes = 2000 })
	line := `{"op":"get","key":"YQ=="}` + "\n"
	for _, r := range []struct{ lines, padding, status int }{
		{1, 0, 200},
		{1, 2000, 413}, // the body
		{20, 0, 413},   // with what its lines take up beside
	} {
		body := strings.Repeat(line, r.lines) + strings.Repeat(" ", r.padding)
		head := "POST /v0/entities" + host + "Content-Type: application/x-ndjson\n"
		require.Equal(t, r.status, s.dial().do(fmt.Sprintf("%sContent-Length: %d\n\n%s", head, len(body), body)).status, r)
		c := s.dial()
		// Which leaves a buffer for the next body.
		require.Equal(t, 201, c.do("PUT /v0/entity?id=b"+host+fmt.Sprintf("Transfer-Encoding: chunked\n\n5dc\r\n%s\r\n0\r\n\r\n", strings.Repeat("v", 1500))).status)
		require.Equal(t, r.status, c.do(fmt.Sprintf("%sTransfer-Encoding: chunked\n\n%x\r\n%s\r\n0\r\n\r\n", head, len(body), body)).status, r)
	}
	eventually(t, func() bool { return s.Bodies() == 0 }, "all of it is given back")
}

// A connection beyond the limit is told so, and one that comes when another has
// gone is served.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo", func(o *setup) { o.MaxConnections = 2 })
	first, second := s.dial(), s.dial()
	first.requireOpen()
	second.requireOpen()
	served := s.eventsOf(2) // an answer is counted after it was sent
	for range 3 {
		c := s.dial()
		a := c.do(put("a", "value"))
		require.Equal(t, 503, a.status)
		require.Equal(t, "1", a.header.Get("Retry-After"))
		require.Empty(t, a.header.Get("Spillway-Shed"))
		require.True(t, a.close)
		_ = c.conn.Close()
	}
	s.requireEvents(append(served, slices.Repeat([]event{{"fifo", "other", 503, false}}, 3)...)...)
	require.Equal(t, 2, s.Connections())
	_ = first.conn.Close()
	eventually(t, func() bool { return s.Connections() == 1 }, "closed")
	s.dial().requireOpen()
	second.requireOpen()
}

// A client with as many connections as one may have is told so, others are served,
// and it is again when one of its own has gone.
func TestMaxConnectionsPerAddress(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo", func(o *setup) { o.MaxConnectionsPerAddress = 2 })
	first, second := s.dial(), s.dial()
	first.requireOpen()
	second.requireOpen()
	for range 3 {
		a := s.dial().do(put("a", "value"))
		require.Equal(t, 503, a.status)
		require.Contains(t, a.body, "too many connections are open from your address")
		require.True(t, a.close)
	}
	_ = first.conn.Close()
	eventually(t, func() bool { return s.Connections() == 1 }, "closed")
	s.dial().requireOpen()
	require.Equal(t, 503, s.dial().do(put("a", "value")).status)
	second.requireOpen()
}

// Beyond the limit of those that are refused with care, they still get the
// answer if they look at once.
func TestMaxConnections_ManyMore(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo", func(o *setup) { o.MaxConnections = 1 })
	s.dial().requireOpen()
	var all []*client
	for range 256 + 20 {
		all = append(all, s.dial())
	}
	for _, c := range all {
		require.Equal(t, 503, c.read("GET").status)
	}
}

// Drain closes the idle connections, lets the others finish, tells them that
// they are the last, and accepts nothing.
func TestDrain(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		l, err := httpfront.Listen("127.0.0.1:0")
		require.NoError(t, err)
		s := serve(t, strategy, func(o *setup) { o.listener = l })
		unblock := s.store.block("slow")
		defer unblock()
		idle, fresh, busy, partial := s.dial(), s.dial(), s.dial(), s.dial()
		idle.requireOpen()
		partial.sendRaw("GET /v0/entity?id=a HTTP/1.1\r\nHost")
		busy.send(get("/v0/entity?id=slow"))
		<-s.store.arrived
		eventually(t, func() bool { return s.Connections() == 4 }, "accepted")
		// The kernel may be slow to bring them.
		eventually(t, func() bool { return socket.Unsent(socket.Raw(partial.conn)) == 0 }, "the first bytes have arrived")

		drained := make(chan error, 1)
		go func() { drained <- s.Drain(context.Background()) }()
		idle.requireClosed()
		fresh.requireClosed()
		// What had begun to arrive is a request, unless its first bytes were not
		// read before the drain: they were, as the last try sees them too.
		partial.sendRaw(": x\r\n\r\n")
		a := partial.read("GET")
		require.Equal(t, 404, a.status)
		require.True(t, a.close)
		partial.requireClosed()

		_, err = l.Accept() // its port may be somebody else's by now
		require.ErrorIs(t, err, net.ErrClosed)
		require.Empty(t, drained)
		unblock()
		a = busy.read("GET")
		require.Equal(t, 404, a.status)
		require.True(t, a.close)
		busy.requireClosed()
		require.NoError(t, <-drained)
	})
}

// No request that was sent on an open connection before the drain goes without
// an answer.
func TestDrain_UnderLoad(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	var clients sync.WaitGroup
	begun := make(chan struct{}, 8)
	for range 8 {
		c := s.dial()
		clients.Go(func() {
			for i := 0; ; i++ {
				if _, err := io.WriteString(c.conn, strings.ReplaceAll(get("/v0/entity?id=a"), "\n", "\r\n")); err != nil {
					return // it was closed while idle
				}
				a, err := readAnswer(c.r, "GET")
				if err != nil {
					// Closed while idle, as the request was on its way.
					return
				}
				if a.status != 404 {
					t.Errorf("status %d", a.status)
				}
				if i == 100 {
					begun <- struct{}{}
				}
				if a.close {
					return
				}
			}
		})
	}
	for range 8 {
		<-begun
	}
	require.NoError(t, s.Drain(context.Background()))
	clients.Wait()
	require.Zero(t, s.Connections())
}

// Close ends connections in every state.
func TestClose(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	for i := range 1000 {
		s.store.set(string(rune('A'+i)), strings.Repeat("v", 60_000))
	}
	idle, partial, body, reading := s.dial(), s.dial(), s.dial(), s.dial()
	idle.requireOpen()
	partial.sendRaw("GET /v0/en")
	body.send("PUT /v0/entity?id=a" + host + "Content-Length: 60000\n\nhello")
	reading.send(get("/v0/entities?start=A"))
	_, err := reading.r.Peek(1)
	require.NoError(t, err)
	eventually(t, func() bool { return s.Connections() == 4 }, "accepted")
	s.Close()
	require.Zero(t, s.Connections())
	s.Close() // again
}

// Two servers cannot share an address.
func TestOpen_AddressInUse(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	o := s.opts
	o.Listen = s.Addr().String()
	_, err := Open(o)
	require.ErrorContains(t, err, "address already in use")
}

func TestOpen_BadOptions(t *testing.T) {
	t.Parallel()
	good := serve(t, "fifo").opts
	for _, change := range []func(*Options){
		func(o *Options) { o.AcceptLoops = 0 },
		func(o *Options) { o.MaxKeyBytes = 0 },
		func(o *Options) { o.MaxConnections = 0 },
		func(o *Options) { o.MaxConnectionsPerAddress = -1 },
		func(o *Options) { o.IdleTimeout = 0 },
		func(o *Options) { o.Dispatcher = nil },
		func(o *Options) { o.Listen = "nowhere" },
	} {
		o := good
		change(&o)
		_, err := Open(o)
		require.Error(t, err)
	}
}

// failing is a listener that fails a few times before each connection.
type failing struct {
	*fronttest.Pipes
	failures chan error
}

func (f *failing) Accept() (net.Conn, error) {
	select {
	case err := <-f.failures:
		return nil, err
	default:
		return f.Pipes.Accept()
	}
}

// counter counts log lines.
type counter struct {
	slog.Handler
	lines chan struct{}
}

func (c counter) Handle(context.Context, slog.Record) error { c.lines <- struct{}{}; return nil }
func (c counter) Enabled(context.Context, slog.Level) bool  { return true }

// An accept loop that has no descriptors left goes on, and does not fill the log.
func TestAccept_TransientErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &failing{fronttest.NewPipes(), make(chan error, 100)}
		for range 100 {
			p.failures <- errors.New("too many open files")
		}
		log := counter{slog.DiscardHandler, make(chan struct{}, 100)}
		s := serve(t, "fifo", func(o *setup) {
			o.listener, o.AcceptLoops, o.Logger = p, 1, slog.New(log)
		})
		c := p.Dial()
		_, _ = io.WriteString(c, "\r\n")
		require.Len(t, log.lines, 2, "100 failures in 92 seconds")
		_ = c.Close()
		s.stop()
	})
}

// Under TLS, everything but noticing clients that go works as without.
func TestTLS(t *testing.T) {
	t.Parallel()
	certificate, roots := fronttest.SelfSigned(t)
	s := serve(t, "fifo", func(o *setup) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		o.MaxConnections = 2
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	hc := &http.Client{Transport: transport}
	url := "https://" + s.Addr().String() + "/v0/entity?id=a"
	big := strings.Repeat("v", 60_000)
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(big))
		require.NoError(t, err)
		resp, err := hc.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 201, resp.StatusCode)
		req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		resp, err = hc.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, big, string(body))
	}
	eventually(t, func() bool { return s.Connections() == 1 }, "it is kept")

	// Plain text is not answered, and ends.
	plain := s.dial()
	plain.send(get("/v0/entity?id=a"))
	_, err := readAnswer(plain.r, "GET")
	require.Error(t, err)
	_ = plain.conn.Close()
	eventually(t, func() bool { return s.Connections() == 1 }, "ended")

	// Refusals are seen.
	second, err := tls.Dial("tcp", s.Addr().String(), transport.TLSClientConfig)
	require.NoError(t, err)
	eventually(t, func() bool { return s.Connections() == 2 }, "two")
	other := &http.Client{Transport: &http.Transport{TLSClientConfig: transport.TLSClientConfig, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	begun := time.Now()
	resp, err := other.Do(req)
	for ; err != nil && time.Since(begun) > time.Second; resp, err = other.Do(req) {
		begun = time.Now() // who takes longer to shake hands is hung up on
	}
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	_ = second.Close()

	require.NoError(t, s.Drain(context.Background()), "idle connections do not hold up a drain")
}

// A drain does not wait longer than that for those who send no request.
func TestDrain_SilentClients(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *service, p *fronttest.Pipes) {
		c := p.Dial()
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, s.Drain(context.Background()))
		require.Equal(t, time.Second, time.Since(begun))
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// A page whose name was made to point at this machine gets and changes nothing.
// Other clients, and browsers under names of our own, notice nothing.
func TestRebinding(t *testing.T) {
	t.Parallel()
	marks := []string{"Origin: http://rebound.example:8080", "sec-fetch-site: same-origin", "Accept-Language: en", "Accept-Language:"}
	ask := func(s *service, method, host, mark string) int {
		return s.dial().do(method + " /v0/entity?id=k HTTP/1.1\nHost: " + host + "\n" + mark + "\nContent-Length: 0\n\n").status
	}
	s := serve(t, "fifo", func(o *setup) { o.AllowedHosts = []string{"kv.example"} })
	s.store.set("k", "v")
	for _, mark := range marks {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
			require.Equal(t, 403, ask(s, method, "rebound.example:8080", mark), "%s %s", method, mark)
		}
		for _, own := range []string{"127.0.0.1:8080", "[::1]:8080", "localhost", "KV.example:8080"} {
			require.Equal(t, 200, ask(s, "GET", own, mark), "%s %s", own, mark)
		}
	}
	v, ok := s.store.get("k")
	require.True(t, ok && v == "v", "nothing has changed")
	for _, program := range []string{"User-Agent: curl/7.88.1\nAccept: */*", "Expectx: y", "X-Forwarded-For: 10.0.0.1"} {
		require.Equal(t, 200, ask(s, "GET", "rebound.example", program))
	}

	// A token is not known to such a page, and a listener that others reach has
	// names that are not known here.
	s = serve(t, "fifo", func(o *setup) { o.Token = secure.NewToken("secret") })
	s.store.set("k", "v")
	require.Equal(t, 401, ask(s, "GET", "rebound.example", marks[0]))
	require.Equal(t, 200, ask(s, "GET", "spillway.example", marks[0]+"\nAuthorization: Bearer secret"))
	s = serve(t, "fifo", func(o *setup) { o.Listen = ":0" })
	s.store.set("k", "v")
	require.Equal(t, 200, ask(s, "GET", "spillway.example", marks[0]))
}

// Under TLS, too, a client that takes something now and then gets all of an answer,
// and one that is cut off is counted as such.
func TestTLS_SlowReader(t *testing.T) {
	t.Parallel()
	certificate, roots := fronttest.SelfSigned(t)
	for !readSlowly(t, certificate, roots) {
		continue
	}
}

// readSlowly reports false if the client was held up, so that it was cut off rightly.
func readSlowly(t *testing.T, certificate tls.Certificate, roots *x509.CertPool) (inTime bool) {
	t.Helper()
	const timeout, size = time.Second, 32 << 20
	s := serve(t, "fifo", func(o *setup) {
		o.WriteTimeout = timeout
		o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	})
	s.store.set("large", strings.Repeat("v", size))
	conn := s.dial().conn
	require.NoError(t, conn.SetReadBuffer(256<<10)) // the kernel must not take all of it
	c := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
	const request = "GET /v0/entity?id=large HTTP/1.1\r\nHost: x\r\n\r\n"
	require.NoError(t, c.Handshake())
	from := testenv.NewPunctual(c)
	_, err := io.WriteString(c, request)
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(from), nil)
	left := int64(size)
	for begun := time.Now(); err == nil && time.Since(begun) < 4*timeout; left -= 64 << 10 {
		_, err = io.ReadFull(answer.Body, make([]byte, 64<<10))
		time.Sleep(timeout / 10)
	}
	var n int64
	if err == nil {
		n, err = io.Copy(io.Discard, answer.Body)
	}
	if err != nil && from.Longest() > timeout/2 {
		return false
	}
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, left, n)
	s.requireEvents(event{"fifo", "GET", 200, false})

	_, err = io.WriteString(c, request) // and nothing is read
	require.NoError(t, err)
	s.requireEvents(event{"fifo", "GET", 200, false}, event{"fifo", "GET", statusCut, false})
	return true
}

// An answer that was cut off is no success, whether its client stops reading or goes.
func TestCutAnswers(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{"a value": "/v0/entity?id=large", "a range": "/v0/entities?start=a"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "fifo", func(o *setup) { o.WriteTimeout = time.Second })
			s.store.set("large", strings.Repeat("v", 32<<20))
			s.dial().send(get(target))
			want := event{"fifo", "GET", statusCut, false}
			s.requireEvents(want)
			c := s.dial()
			c.send(get(target))
			_, err := c.r.Peek(1)
			require.NoError(t, err)
			require.NoError(t, c.conn.Close())
			s.requireEvents(want, want)
		})
	}
}
