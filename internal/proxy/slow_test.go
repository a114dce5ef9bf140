package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
	"github.com/spillway-go/spillway/internal/served"
)

// virtual is a proxy and its upstream in virtual time, on connections in memory.
type virtual struct {
	*front
	pipes  *fronttest.Pipes
	trusts *tls.Config // of clients that speak TLS
	told   struct {
		sync.Mutex
		codes []int
	}
}

// inVirtualTime runs f before an upstream.
func inVirtualTime(t *testing.T, upstream http.HandlerFunc, f func(t *testing.T, v *virtual)) {
	t.Helper()
	inVirtualTimeUnder(t, nil, upstream, f)
}

// inVirtualTimeUnder does so with clients that speak TLS, if it is not nil.
func inVirtualTimeUnder(t *testing.T, under *tls.Config, upstream http.HandlerFunc, f func(t *testing.T, v *virtual)) {
	t.Helper()
	inVirtualTimeBefore(t, []http.HandlerFunc{upstream}, func(o *Options) { o.ReadTimeout, o.TLS = 10*time.Second, under }, f)
}

// inVirtualTimeBefore does so before several upstreams, of which those that are nil refuse connections.
func inVirtualTimeBefore(t *testing.T, upstreams []http.HandlerFunc, change func(*Options), f func(t *testing.T, v *virtual)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dials := map[string]func() net.Conn{}
		var urls []string
		var serving sync.WaitGroup
		defer time.Sleep(time.Minute) // the clients' goroutines notice
		defer serving.Wait()
		for i, upstream := range upstreams {
			address := fmt.Sprintf("upstream%d:1", i)
			urls = append(urls, "http://"+address)
			if upstream == nil {
				continue
			}
			behind := fronttest.NewPipes()
			server := &http.Server{Handler: upstream, ReadHeaderTimeout: time.Hour}
			serving.Go(func() { _ = server.Serve(behind) })
			defer func() { _ = server.Close() }()
			dials[address] = behind.Dial
		}
		v := &virtual{pipes: fronttest.NewPipes()}
		v.front = openAll(t, func(o *Options) {
			o.listener = v.pipes
			o.Epoch = o.Epoch.Add(-time.Second) // the moment 0 stands for none, and here no time passes by itself
			o.dial = func(_ context.Context, _, address string) (net.Conn, error) {
				if dial := dials[address]; dial != nil {
					return dial(), nil
				}
				return nil, syscall.ECONNREFUSED
			}
			o.Events.Answered = func(_, _ string, code int, _ served.Outcome, _, _ time.Duration) {
				v.told.Lock()
				defer v.told.Unlock()
				v.told.codes = append(v.told.codes, code)
			}
			change(o)
		}, urls...)
		defer v.Close()
		v.client = v.over(t, false)
		f(t, v)
	})
}

func (v *virtual) codes() []int {
	v.told.Lock()
	defer v.told.Unlock()
	return append([]int(nil), v.told.codes...)
}

// over returns a client of a protocol, HTTP/2 or HTTP/1.1.
func (v *virtual) over(t *testing.T, two bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!two)
	protocols.SetHTTP2(two)
	protocols.SetUnencryptedHTTP2(two)
	transport := &http.Transport{
		Protocols: protocols, DisableCompression: true, TLSClientConfig: v.trusts,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return v.pipes.Dial(), nil },
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// The idle time-out changes while the proxy runs: over HTTP/1.1 from the next request of a connection on, over HTTP/2
// for connections that come.
func TestProxy_IdleTimeoutLive(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		two  bool
		kept time.Duration // for how long a connection of before is kept once it was used again
	}{"HTTP/1.1": {false, 5 * time.Minute}, "HTTP/2": {true, time.Minute}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o Options
			inVirtualTimeBefore(t, []http.HandlerFunc{func(http.ResponseWriter, *http.Request) {}}, func(opened *Options) { o = *opened }, func(t *testing.T, v *virtual) {
				ask := func(c *http.Client) {
					resp, err := c.Get("http://proxy/")
					require.NoError(t, err)
					_ = resp.Body.Close()
				}
				// lasts requires that the only connection is closed after so much time.
				lasts := func(d time.Duration) {
					time.Sleep(d - time.Second)
					synctest.Wait()
					require.Equal(t, 1, v.Connections())
					time.Sleep(4 * time.Second) // HTTP/2 says goodbye
					synctest.Wait()
					require.Zero(t, v.Connections())
				}
				client := v.over(t, tt.two)
				ask(client)
				lasts(time.Minute)
				ask(client)
				o.IdleTimeout = 5 * time.Minute
				v.Change(o)
				ask(client)
				lasts(tt.kept)
				ask(client)
				lasts(5 * time.Minute)
				o.IdleTimeout = time.Second
				v.Change(o)
				ask(client)
				lasts(time.Second)
			})
		})
	}
}

// Clients that send a byte a second, whatever of, are told so when the time-out is over, and
// never reach the upstream.
func TestProxy_SlowClients(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	upstream := func(http.ResponseWriter, *http.Request) { reached.Add(1) }
	// Over HTTP/2 it is the body that can be slow.
	slowBodies := func(t *testing.T, v *virtual, url string) {
		client := v.over(t, true)
		for _, length := range []int64{20, -1} {
			begun := time.Now()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, &steady{perSecond: 1, left: 1 << 20})
			require.NoError(t, err)
			r.ContentLength = length
			resp, err := client.Do(r)
			require.NoError(t, err)
			require.Equal(t, "HTTP/2.0", resp.Proto)
			require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
			require.InDelta(t, 10, time.Since(begun).Seconds(), 1)
			_ = resp.Body.Close()
		}
		client.CloseIdleConnections()
	}
	inVirtualTime(t, upstream, func(t *testing.T, v *virtual) {
		fronttest.Slow(t, "/", 10*time.Second, v.pipes.Dial)
		slowBodies(t, v, "http://proxy/")
	})
	certificate, roots := fronttest.SelfSigned(t)
	valid := time.Now() // the certificate is, in real time
	under := &tls.Config{Certificates: []tls.Certificate{certificate}}
	inVirtualTimeUnder(t, under, upstream, func(t *testing.T, v *virtual) {
		v.trusts = &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", Time: func() time.Time { return valid }}
		fronttest.Slow(t, "/", 10*time.Second, func() net.Conn { return tls.Client(v.pipes.Dial(), v.trusts) })
		slowBodies(t, v, "https://proxy/")
	})
	require.Zero(t, reached.Load())
}

// The time for an answer begins when the request has been sent, also where another answer has come over the connection.
func TestProxy_LongUploadOnAKeptConnection(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, func(t *testing.T, v *virtual) {
		client := v.over(t, false)
		for range 2 {
			resp, err := client.Get("http://proxy/")
			require.NoError(t, err)
			_ = resp.Body.Close()
			time.Sleep(20 * time.Second)
			resp, err = client.Post("http://proxy/", "", &steady{100 << 10, 2 << 10, 200 << 10})
			require.NoError(t, err)
			_ = resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		client.CloseIdleConnections()
	})
}

// An upstream that takes nothing of a body for a time, and then closes, has closed: what came of it tells more than why
// not all could be sent.
func TestProxy_ClosesAfterItTookNothing(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(90 * time.Second) // the time-out is a minute
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.Close()
		}
	}, func(t *testing.T, v *virtual) {
		for _, size := range []int{20 << 10, 200 << 10} { // within the buffer, and past it
			begun := time.Now()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://proxy/", strings.NewReader(strings.Repeat("b", size)))
			require.NoError(t, err)
			c := v.pipes.Dial()
			var sending sync.WaitGroup
			sending.Go(func() { _ = r.Write(c) }) // which fails if the answer comes before all is sent
			resp, err := http.ReadResponse(bufio.NewReader(c), r)
			require.NoError(t, err)
			require.Equal(t, http.StatusBadGateway, resp.StatusCode)
			require.Equal(t, 90*time.Second, time.Since(begun))
			require.NoError(t, c.Close())
			sending.Wait()
		}
	})
}

// steady gives so many bytes each second, after a number at once.
type steady struct{ atOnce, perSecond, left int }

func (s *steady) Read(p []byte) (n int, err error) {
	if s.left <= 0 {
		return 0, io.EOF
	}
	if n = min(len(p), s.atOnce); n > 0 {
		s.atOnce -= n
	} else {
		time.Sleep(time.Second)
		n = min(len(p), s.perSecond, s.left)
	}
	s.left -= n
	return n, nil
}

// Past the buffer a client that sends less than 1 KiB a second over 10 s is cut off, and its
// place is free; one that sends more is served.
func TestProxy_PaceOfBodies(t *testing.T) {
	t.Parallel()
	for _, two := range []bool{false, true} {
		for perSecond, want := range map[int]int{500: http.StatusRequestTimeout, 2000: http.StatusOK} {
			t.Run(fmt.Sprint(two, perSecond), func(t *testing.T) {
				t.Parallel()
				inVirtualTime(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, func(t *testing.T, v *virtual) {
					begun := time.Now()
					atOnce, size := 70<<10, 200<<10
					client := v.over(t, two)
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://proxy/", &steady{atOnce, perSecond, size})
					require.NoError(t, err)
					r.ContentLength = int64(size)
					resp, err := client.Do(r)
					require.NoError(t, err)
					require.Equal(t, want, resp.StatusCode)
					_ = resp.Body.Close()
					if want == http.StatusRequestTimeout {
						require.LessOrEqual(t, time.Since(begun), 25*time.Second)
					} else {
						require.Greater(t, time.Since(begun), 30*time.Second)
					}
					client.CloseIdleConnections()
					synctest.Wait()
					require.Zero(t, v.Gauge().Busy)
					require.Equal(t, []int{want}, v.codes())
				})
			})
		}
	}
}

// Past the buffer a client that takes less than 1 KiB a second over 10 s of its answer is cut
// off, which is 499, and its place is free; one that takes more is served on.
func TestProxy_PaceOfAnswers(t *testing.T) {
	t.Parallel()
	for _, two := range []bool{false, true} {
		for _, perSecond := range []int{500, 2500} {
			t.Run(fmt.Sprint(two, perSecond), func(t *testing.T) {
				t.Parallel()
				inVirtualTime(t, func(w http.ResponseWriter, _ *http.Request) {
					for err := error(nil); err == nil; { // until it is cut off
						_, err = w.Write(make([]byte, 8<<10))
					}
				}, func(t *testing.T, v *virtual) {
					client := v.over(t, two)
					resp, err := client.Get("http://proxy/")
					require.NoError(t, err)
					begun := time.Now()
					for piece := make([]byte, perSecond); err == nil && time.Since(begun) < 2*time.Minute; {
						time.Sleep(time.Second)
						if len(v.codes()) > 0 { // what has left is still to be read
							piece = make([]byte, 1<<20)
						}
						_, err = io.ReadFull(resp.Body, piece)
					}
					if perSecond < 1<<10 {
						require.Error(t, err)
						require.LessOrEqual(t, time.Since(begun), 100*time.Second)
					} else {
						require.NoError(t, err)
						require.Empty(t, v.codes())
						require.Equal(t, 1, v.Gauge().Busy)
					}
					_ = resp.Body.Close()
					client.CloseIdleConnections()
					v.pipesIdle(t)
					require.Equal(t, []int{codeLeft}, v.codes())
				})
			})
		}
	}
}

// pipesIdle waits until nobody has a place.
func (v *virtual) pipesIdle(t *testing.T) {
	t.Helper()
	for range 100 {
		if synctest.Wait(); v.Gauge().Busy == 0 && len(v.codes()) > 0 {
			return
		}
		time.Sleep(time.Second)
	}
	require.Fail(t, "a place is held")
}

// Over HTTP/2, too, nothing is left of clients that leave, and it is 499.
func TestProxy_VanishingStreams(t *testing.T) {
	t.Parallel()
	for name, phase := range map[string]struct {
		path, body string
		held       bool // another has the place
	}{
		"queued":             {"/", "", true},
		"queued with a body": {"/", "hello", true},
		"running":            {"/hold", "", false},
		"answered":           {"/long", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan string, 10)
			var codes sync.Map
			f := open(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				arrived <- r.URL.Path
				if r.URL.Path == "/long" {
					for err := error(nil); err == nil; {
						_, err = w.Write(make([]byte, 64<<10))
					}
				}
				<-r.Context().Done()
			}), func(o *Options) {
				o.Concurrency = 1
				o.Events.Answered = func(_, method string, code int, _ served.Outcome, _, _ time.Duration) { codes.Store(method, code) }
			})
			client := h2c(t)
			var holder *raw
			if phase.held {
				holder = f.dial(t)
				holder.send(t, "HEAD /hold HTTP/1.1\r\nHost: a\r\n\r\n")
				<-arrived
			}
			ctx, leave := context.WithCancel(t.Context())
			var clients sync.WaitGroup
			clients.Go(func() {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+phase.path, strings.NewReader(phase.body))
				if err != nil {
					return
				}
				if resp, err := client.Do(r); err == nil {
					_, _ = bufio.NewReader(resp.Body).Peek(1)
					<-ctx.Done()
					_ = resp.Body.Close()
				}
			})
			if phase.held {
				eventually(t, func() bool { return f.Gauge().Depth == 1 }, "it waits")
			} else {
				<-arrived
			}
			leave()
			clients.Wait()
			eventually(t, func() bool { code, ok := codes.Load(http.MethodPost); return ok && code == codeLeft }, "it is 499")
			if holder != nil {
				require.NoError(t, holder.Close())
			}
			eventually(t, func() bool { g := f.Gauge(); return g.Busy == 0 && g.Depth == 0 && f.front.Bodies() == 0 }, "nothing is left")
		})
	}
}

// A trusted field that does not fit is told, and those that nobody trusts are the upstream's.
func TestProxy_BadQoSHeaders(t *testing.T) {
	t.Parallel()
	upstream := serve(t, func(http.ResponseWriter, *http.Request) {})
	trusts := open(t, upstream, func(o *Options) { o.TrustHeaders = true })
	not := open(t, upstream, nil)
	for _, tt := range []struct {
		name, value string
		status      int
	}{
		{"Spillway-Timeout-Ms", "60000", 200}, {"Spillway-Timeout-Ms", "0", 400}, {"Spillway-Timeout-Ms", "3600001", 400}, {"Spillway-Timeout-Ms", "soon", 400},
		{"Spillway-Priority", "7", 200}, {"Spillway-Priority", "8", 400}, {"Spillway-Priority", "", 400},
		{"Spillway-Client", strings.Repeat("c", 128), 200}, {"Spillway-Client", strings.Repeat("c", 129), 400},
		{"Priority", "u=9", 200}, // which RFC 9218 wants ignored
	} {
		for _, two := range []bool{false, true} {
			if trusts.client = not.client; two {
				trusts.client = h2c(t)
			}
			a := trusts.do(t, "GET", "/", nil, tt.name, tt.value)
			require.Equal(t, tt.status, a.status, tt)
			if tt.status == 400 {
				requireProblem(t, a, 400, tt.name)
			}
		}
		require.Equal(t, 200, not.do(t, "GET", "/", nil, tt.name, tt.value).status)
	}
	requireProblem(t, trusts.do(t, "GET", "/", nil, "Spillway-Priority", "1", "Spillway-Priority", "2"), 400, "more than once")
}

// A body for which the budget has no room is 503, and costs nobody else anything: what had come
// of it is dropped, so that the next request of its connection is one, or its connection ends.
func TestProxy_BodiesWithoutRoom(t *testing.T) {
	t.Parallel()
	url, held, release, others := holding(t)
	f := open(t, url, func(o *Options) { o.Concurrency, o.MaxBodyBytes = 1, 1000 })
	holder := f.dial(t)
	holder.send(t, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
	<-held
	body := strings.Repeat("GET /smuggled HTTP/1.1\r\n\r\n", 36) // of 936 bytes
	waiting := f.dial(t)
	waiting.send(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	eventually(t, func() bool { return f.Gauge().Depth == 1 }, "it waits")
	for name, text := range map[string]string{
		"a length": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
		"chunks":   fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
		"in part":  fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 2*len(body), body),
	} {
		c := f.dial(t)
		c.send(t, "POST / HTTP/1.1\r\nHost: a\r\n"+text)
		resp, err := http.ReadResponse(c.in, nil)
		require.NoError(t, err, name)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, name)
		require.Equal(t, "full", resp.Header.Get("Spillway-Shed"), name)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err, name)
		if !resp.Close {
			c.send(t, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") // which does not wait
			status, _ := c.answer(t, "GET")
			require.Equal(t, 200, status, name)
			others.Add(-1)
		}
	}
	resp, err := h2c(t).Post(f.url, "", strings.NewReader(body))
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "full", resp.Header.Get("Spillway-Shed"))
	require.NoError(t, resp.Body.Close())
	release()
	status, _ := waiting.answer(t, "POST")
	require.Equal(t, 200, status)
	require.EqualValues(t, 1, others.Load(), "the upstream got the one that waited")
	eventually(t, func() bool { return f.front.Bodies() == 0 }, "all is given back")
}

// lastDeadline is a writer of HTTP/2 that knows until when its request may be read.
type lastDeadline struct {
	http.ResponseWriter
	at time.Time
}

func (w *lastDeadline) SetReadDeadline(t time.Time) error { w.at = t; return nil }

// Who stops the reading of a body before it has begun to wait has it end at once all the same.
func TestStream_StoppedBefore(t *testing.T) {
	t.Parallel()
	s := new(Server)
	s.live.Store(&Options{ReadTimeout: time.Hour})
	w := new(lastDeadline)
	c := &stream{turn: turn{s: s}, control: http.NewResponseController(w), r: &http.Request{Body: http.NoBody}}
	c.stopBody()
	_, _ = c.readBody(nil)
	require.True(t, w.at.Before(time.Now()), w.at)
}
