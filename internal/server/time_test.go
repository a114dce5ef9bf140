package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
)

// inVirtualTime runs the test with a service that is reached through pipes.
func inVirtualTime(t *testing.T, test func(t *testing.T, s *service, p *fronttest.Pipes), change ...func(*setup)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fronttest.NewPipes()
		s := serve(t, "fifo", append([]func(*setup){func(o *setup) {
			o.listener = p
			o.ReadTimeout, o.WriteTimeout, o.IdleTimeout = 10*time.Second, 10*time.Second, 60*time.Second
		}}, change...)...)
		test(t, s, p)
		s.stop()
	})
}

// requireEnds checks that the connection ends after exactly d, and returns what
// came before.
func requireEnds(t *testing.T, conn net.Conn, d time.Duration) string {
	t.Helper()
	begin := time.Now()
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, d, time.Since(begin))
	return string(got)
}

func TestIdleTimeout(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *service, p *fronttest.Pipes) {
		// A connection on which nothing comes ends silently.
		require.Empty(t, requireEnds(t, p.Dial(), time.Minute))

		// The time starts anew with each answer, and lone line ends are no
		// request.
		c := p.Dial()
		r := bufio.NewReader(c)
		for range 3 {
			time.Sleep(59 * time.Second)
			go func() { _, _ = io.WriteString(c, "\r\nGET /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n\r\n") }()
			a, err := readAnswer(r, "GET")
			require.NoError(t, err)
			require.Equal(t, 404, a.status)
		}
		require.Empty(t, requireEnds(t, c, time.Minute))
	})
}

// A request that begins has the read time-out to end, head and body together,
// wherever it stops, and however often something comes.
func TestReadTimeout(t *testing.T) {
	const put = "PUT /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n"
	for name, sent := range map[string]struct{ begin, later string }{
		"request line":            {"GE", "x"},
		"header":                  {"GET /v0/entity?id=a HTTP/1.1\r\nHost: x\r\nX", "x"},
		"body":                    {put + "Content-Length: 5000\r\n\r\nx", "x"},
		"body after a slow head":  {put + "Content-Length: 5000\r\n", "\r\nx"},
		"chunk":                   {put + "Transfer-Encoding: chunked\r\n\r\n1;", "x"},
		"chunk after a slow head": {put + "Transfer-Encoding: chunked\r\n", "\r\n1;"},
		"trailer":                 {put + "Transfer-Encoding: chunked\r\n\r\n0\r\nX", "x"},
		"dropped body":            {"GET /v0/entity?id=a HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\nx", "x"},
		"a body not wanted":       {put + "Content-Length: 5000\r\n\r\n", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, _ *service, p *fronttest.Pipes) {
				c := p.Dial()
				time.Sleep(30 * time.Second) // idle
				_, _ = io.WriteString(c, sent.begin)
				time.Sleep(9 * time.Second)
				_, _ = io.WriteString(c, sent.later)
				start := time.Now()
				a, err := readAnswer(bufio.NewReader(c), "GET")
				require.NoError(t, err)
				checkAnswer(t, "GET", a)
				require.Equal(t, 408, a.status)
				require.True(t, a.close)
				require.Equal(t, time.Second, time.Since(start))
				_ = c.Close()
			})
		})
	}
}

// Each request on a connection has the whole of that time, whatever the one
// before took of its own.
func TestReadTimeout_OfEachRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *service, p *fronttest.Pipes) {
		c := p.Dial()
		r := bufio.NewReader(c)
		for range 3 {
			for _, part := range []string{"PUT /v0/entity?id=a HTTP/1.1\r\n", "Host: x\r\nContent-Length: 2\r\n\r\n", "hi"} {
				time.Sleep(4 * time.Second)
				_, _ = io.WriteString(c, part)
			}
			a, err := readAnswer(r, "PUT")
			require.NoError(t, err)
			require.Equal(t, 201, a.status)
		}
		_ = c.Close()
	})
}

// A client that takes nothing of an answer is cut off; one that takes something
// now and then is not, however long it takes.
func TestWriteTimeout(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *service, p *fronttest.Pipes) {
		s.store.set("a", strings.Repeat("v", 64<<10))
		c := p.Dial()
		_, _ = io.WriteString(c, "GET /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n\r\n")
		buf := make([]byte, 16<<10)
		for range 4 {
			time.Sleep(9 * time.Second)
			_, err := io.ReadFull(c, buf)
			require.NoError(t, err)
		}
		time.Sleep(11 * time.Second)
		_, err := c.Read(buf)
		require.Error(t, err)
		synctest.Wait()
		require.Zero(t, s.Connections())
	})
}

// A request that waits is answered at its deadline.
func TestDeadline(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *service, p *fronttest.Pipes) {
		unblock := s.store.block("slow")
		c := p.Dial()
		_, _ = io.WriteString(c, "GET /v0/entity?id=slow HTTP/1.1\r\nHost: x\r\n\r\n")
		<-s.store.arrived
		for _, ms := range []string{"1", "1500", "3600000"} {
			d, err := time.ParseDuration(ms + "ms")
			require.NoError(t, err)
			waiting := p.Dial()
			start := time.Now()
			_, _ = io.WriteString(waiting, "GET /v0/entity?id=a HTTP/1.1\r\nHost: x\r\nSpillway-Timeout-Ms: "+ms+"\r\n\r\n")
			a, err := readAnswer(bufio.NewReader(waiting), "GET")
			require.NoError(t, err)
			require.Equal(t, 504, a.status)
			require.Equal(t, d, time.Since(start))
			_ = waiting.Close()
		}
		unblock()
		a, err := readAnswer(bufio.NewReader(c), "GET")
		require.NoError(t, err)
		require.Equal(t, 404, a.status)
		_ = c.Close()
	}, oneWorker)
}

// A connection that is refused is given a second to send its request.
func TestMaxConnections_SilentClient(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *service, p *fronttest.Pipes) {
		c := p.Dial()
		synctest.Wait()
		refused := p.Dial()
		start := time.Now()
		a, err := readAnswer(bufio.NewReader(refused), "GET")
		require.NoError(t, err)
		require.Equal(t, 503, a.status)
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, 1, s.Connections())
		_, _ = c.Close(), refused.Close()
	}, func(o *setup) { o.MaxConnections = 1 })
}

// When a drain runs out of time, it says so, and goes on in Close.
func TestDrain_OutOfTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *service, p *fronttest.Pipes) {
		unblock := s.store.block("slow")
		c := p.Dial()
		_, _ = io.WriteString(c, "GET /v0/entity?id=slow HTTP/1.1\r\nHost: x\r\n\r\n")
		<-s.store.arrived
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, s.Drain(ctx), context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(start))
		closed := make(chan struct{})
		go func() { s.Close(); close(closed) }()
		synctest.Wait()
		unblock()
		a, err := readAnswer(bufio.NewReader(c), "GET")
		require.NoError(t, err)
		require.Equal(t, 404, a.status)
		require.True(t, a.close)
		<-closed
	})
}

func TestSlowClients(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *service, p *fronttest.Pipes) {
		fronttest.Slow(t, "/v0/entity?id=a", 10*time.Second, p.Dial)
	})
}

// Whenever a client leaves, in whichever way, nothing is left of it.
func TestVanishingClients(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("v", 32<<20)
	fronttest.Vanish(t, func(t *testing.T) fronttest.Subject {
		t.Helper()
		const target = "/v0/entity?id=a"
		s := serve(t, "fifo", oneWorker)
		s.store.set("a", "value")
		s.store.set("long", long)
		return fronttest.Subject{
			Addr: s.Addr().String(), Quick: target, Long: "/v0/entity?id=long",
			Hold: func(t *testing.T, running bool) (_ string, there, release func()) {
				if running {
					return target, func() { <-s.store.arrived }, s.store.block("a")
				}
				worker, unblock := s.dial(), s.store.block("slow")
				t.Cleanup(unblock)
				worker.send("HEAD /v0/entity?id=slow" + host + "\n")
				<-s.store.arrived
				return target, func() { s.waiting(1) }, sync.OnceFunc(func() {
					unblock()
					_ = worker.conn.Close()
				})
			},
			Told: func() (told []int) {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, e := range s.events {
					if e.method != "HEAD" { // the worker's
						told = append(told, e.code)
					}
				}
				return told
			},
			Idle: func() bool { return s.Connections() == 0 && s.Bodies() == 0 && s.dispatcher.Gauge().Depth == 0 },
		}
	})
}
