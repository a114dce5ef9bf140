package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/strategies"
)

// openAll opens a proxy in front of several upstreams.
func openAll(t *testing.T, change func(*Options), upstreams ...string) *front {
	t.Helper()
	urls, err := rules.Upstreams(strings.Join(upstreams, ","))
	require.NoError(t, err)
	return open(t, upstreams[0], func(o *Options) {
		o.Upstreams = urls
		if change != nil {
			change(o)
		}
	})
}

// replica starts an upstream that answers with its name.
func replica(t *testing.T, name string) string {
	t.Helper()
	return serve(t, says(name))
}

// says answers with a text.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

// absent is the URL of an upstream that refuses connections, until the end of the test.
func absent(t *testing.T) string {
	t.Helper()
	_, address := unheard(t)
	return "http://" + address
}

// ask asks so often, and returns how many answers there were of each kind.
func (f *front) ask(t *testing.T, times int) map[string]int {
	t.Helper()
	answers := map[string]int{}
	for range times {
		a := f.do(t, "POST", "/", strings.NewReader("a body"))
		if a.status != http.StatusOK {
			a.body = fmt.Sprint(a.status)
		}
		answers[a.body]++
	}
	return answers
}

func (f *front) state(url string) Upstream {
	for _, u := range f.Upstreams() {
		if u.Name == url {
			return u
		}
	}
	return Upstream{}
}

func TestUpstreams_ShareTheRequests(t *testing.T) {
	t.Parallel()
	a, b := replica(t, "a"), replica(t, "b")
	f := openAll(t, nil, a, b)
	require.Equal(t, map[string]int{"a": 10, "b": 10}, f.ask(t, 20))
	require.Equal(t, 8, f.Gauge().Workers, "4 each")
	require.EqualValues(t, 10, f.state(a).Answered)
	require.True(t, f.state(a).Up)
	require.NoError(t, f.Ready())
}

// What could not be sent goes elsewhere, whatever its method, and its client does not notice.
func TestUpstreams_OneIsDown(t *testing.T) {
	t.Parallel()
	down, up := absent(t), replica(t, "up")
	f := openAll(t, nil, down, up)
	require.Equal(t, map[string]int{"up": 20}, f.ask(t, 20))
	require.False(t, f.state(down).Up)
	require.NotZero(t, f.state(down).Failed)
	require.NoError(t, f.Ready(), "one is there")
	require.Zero(t, f.Gauge().Busy)
}

func TestUpstreams_AllAreDown(t *testing.T) {
	t.Parallel()
	f := openAll(t, nil, absent(t), absent(t))
	for range 5 {
		a := f.do(t, "POST", "/", strings.NewReader("a body"))
		requireProblem(t, a, http.StatusBadGateway, "cannot be reached")
		require.NotContains(t, a.header, "Spillway-Shed")
	}
	require.ErrorContains(t, f.Ready(), "none of 2 upstreams can be reached")
	require.Zero(t, f.Gauge().Busy)
}

// Three in a row from one that answers and fails, and the others do its work.
func TestUpstreams_OneFails(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			testOneFails(t, status)
		})
	}
}

func testOneFails(t *testing.T, status int) {
	var broken atomic.Bool
	broken.Store(true)
	bad := func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(status)
			return
		}
		_, _ = w.Write([]byte("bad"))
	}
	inVirtualTimeBefore(t, []http.HandlerFunc{bad, says("good")}, func(*Options) {}, func(t *testing.T, v *virtual) {
		const bad = "http://upstream0:1"
		require.Equal(t, 3, v.ask(t, 50)[fmt.Sprint(status)])
		require.Zero(t, v.state(bad).Allowed)
		time.Sleep(time.Millisecond) // that it is unwell
		require.NotZero(t, v.state(bad).Unwell)
		require.False(t, v.state(bad).Up)

		broken.Store(false)
		require.Eventually(t, func() bool { return v.ask(t, 1)["bad"] == 1 }, time.Minute, 10*time.Millisecond, "it is probed")
		require.Eventually(t, func() bool { return v.ask(t, 1)[fmt.Sprint(status)] == 0 && v.state(bad).Unwell == 0 }, time.Minute, time.Millisecond)
	})
}

func TestUpstreams_NoByteIsSentTwice(t *testing.T) {
	t.Parallel()
	var heard atomic.Int64
	half := speak(t, func(_ int, c net.Conn) { // it takes the request, and is gone
		if n, _ := c.Read(make([]byte, 1)); n > 0 {
			heard.Add(1)
		}
	})
	f := openAll(t, nil, half, replica(t, "good"))
	answers := f.ask(t, 20)
	require.EqualValues(t, answers["502"], heard.Load(), answers)
	require.Positive(t, heard.Load())
}

func TestUpstreams_Change(t *testing.T) {
	t.Parallel()
	release, begun := make(chan struct{}), make(chan struct{}, 1)
	slow := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-release
		_, _ = w.Write([]byte("slow"))
	})
	f := openAll(t, nil, slow)
	answered := make(chan answer, 1)
	go func() { answered <- f.do(t, "POST", "/", strings.NewReader("a body")) }()
	<-begun
	require.NoError(t, f.SetUpstreams(replica(t, "a")+", "+replica(t, "b")))
	require.Equal(t, map[string]int{"a": 5, "b": 5}, f.ask(t, 10))
	close(release)
	require.Equal(t, "slow", (<-answered).body, "what was begun ends")
	require.Len(t, f.Upstreams(), 2)
	for _, bad := range []string{"", "ftp://a:1", "http://a:1,http://a:1", "http://a:80,http://A", "http://a:1/path", "http://a:0"} {
		require.Error(t, f.SetUpstreams(bad), bad)
	}
	require.Len(t, f.Upstreams(), 2)
}

// A name that has several addresses is an upstream at each, and follows them.
func TestUpstreams_Names(t *testing.T) {
	t.Parallel()
	var found atomic.Pointer[[]netip.Addr]
	is := func(addresses ...string) {
		var all []netip.Addr
		for _, a := range addresses {
			all = append(all, netip.MustParseAddr(a))
		}
		found.Store(&all)
	}
	is("10.0.0.1")
	log := new(syncBuffer)
	f := openAll(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		o.resolver = func(_ context.Context, _, host string) ([]netip.Addr, error) {
			require.Equal(t, "service", host)
			if all := *found.Load(); len(all) > 0 {
				return all, nil
			}
			return nil, errors.New("no such host")
		}
		o.dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("down") }
	}, "http://service:3000", "http://192.0.2.1:80")
	names := func() (all []string) {
		for _, u := range f.Upstreams() {
			all = append(all, u.Name)
		}
		return all
	}
	lookUp := func() []string {
		u := f.upstreams
		u.mu.Lock()
		defer u.mu.Unlock()
		require.NoError(t, u.set(u.urls))
		return names()
	}
	const other = "http://192.0.2.1:80"
	require.ElementsMatch(t, []string{"http://service:3000", other}, names(), "one address")
	is("10.0.0.1", "fd00::1")
	require.Equal(t, []string{"http://service:3000", other}, lookUp(), "one of each family")
	is("10.0.0.2", "10.0.0.1", "10.0.0.2", "fd00::1")
	require.Equal(t, []string{"http://10.0.0.1:3000", "http://10.0.0.2:3000", other}, lookUp())
	is()
	require.Equal(t, []string{"http://10.0.0.1:3000", "http://10.0.0.2:3000", other}, lookUp(), "it stands")
	is("10.0.0.3", "10.0.0.2")
	require.Equal(t, []string{"http://10.0.0.2:3000", "http://10.0.0.3:3000", other}, lookUp())
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("10.0.%d.%d", i/100, i%100))
	}
	is(many...)
	require.Len(t, lookUp(), rules.MostUpstreams)
	require.Len(t, lookUp(), rules.MostUpstreams)
	require.Equal(t, 1, strings.Count(log.String(), "taken=256"), "told once")
	is("fd00::2", "fd00::1")
	require.Equal(t, []string{"http://[fd00::1]:3000", "http://[fd00::2]:3000", other}, lookUp())
}

func TestUpstreams_Itself(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	self := "http://" + l.Addr().String()
	u, err := url.Parse(self)
	require.NoError(t, err)
	f := openAll(t, func(o *Options) { o.listener = l; o.Upstreams = []*url.URL{u} }, self)
	requireProblem(t, f.do(t, "GET", "/", nil), http.StatusBadGateway, "cannot be reached")
	require.ErrorContains(t, f.Ready(), "it is the proxy itself")
	require.NoError(t, f.SetUpstreams(self+","+replica(t, "another")))
	require.Equal(t, map[string]int{"another": 10}, f.ask(t, 10))

	admin := replica(t, "admin")
	u, err = url.Parse(admin)
	require.NoError(t, err)
	address, err := net.ResolveTCPAddr("tcp", u.Host)
	require.NoError(t, err)
	f.Own(address)
	require.NoError(t, f.SetUpstreams(admin))
	requireProblem(t, f.do(t, "GET", "/", nil), http.StatusBadGateway, "cannot be reached")
	require.ErrorContains(t, f.Ready(), "it is the proxy itself")
}

func TestListensAt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		own, local, remote string
		is                 bool
	}{
		{"127.0.0.1:80", "127.0.0.1:5", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.1:5", "127.0.0.1:81", false},
		{"127.0.0.1:80", "127.0.0.1:5", "127.0.0.2:80", false},
		{"0.0.0.0:80", "127.0.0.1:5", "127.0.0.2:80", true},
		{"[::]:80", "[::1]:5", "[::1]:80", true},
		{"0.0.0.0:80", "10.0.0.1:5", "10.0.0.1:80", true},
		{"0.0.0.0:80", "10.0.0.1:5", "10.0.0.2:80", false},
	} {
		var addrs [3]net.Addr
		for i, text := range []string{test.own, test.local, test.remote} {
			addrs[i] = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))
		}
		require.Equal(t, test.is, listensAt(addrs[0], addrs[1], addrs[2]), "%+v", test)
	}
}

// hanging dials as long as it is let.
func hanging(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Upstreams whose connections neither open nor are refused hold up nobody longer than one of them would.
func TestUpstreams_DialsHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		urls, err := rules.Upstreams("http://192.0.2.1:1,http://192.0.2.2:1,http://192.0.2.3:1")
		require.NoError(t, err)
		began := time.Now()
		s := open(t, "http://192.0.2.1:1", func(o *Options) { o.listener, o.Upstreams, o.dial = fronttest.NewPipes(), urls, hanging })
		require.Equal(t, connectTimeout, time.Since(began))
		require.ErrorContains(t, s.Ready(), "none of 3 upstreams can be reached")

		changed := make(chan error)
		go func() { changed <- s.SetUpstreams("http://192.0.2.4:1,http://192.0.2.5:1") }()
		time.Sleep(time.Second)
		began = time.Now()
		s.Close()
		require.Error(t, <-changed)
		require.Zero(t, time.Since(began))
		require.Error(t, s.SetUpstreams("http://192.0.2.6:1"), "it is closed")
	})
}

// A resolver that hangs holds up the start and changes for a moment, and then the name stands for itself.
func TestUpstreams_ResolverHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		urls, err := rules.Upstreams("http://a:1,http://b:1")
		require.NoError(t, err)
		began := time.Now()
		s := open(t, "http://a:1", func(o *Options) {
			o.listener, o.Upstreams = fronttest.NewPipes(), urls
			o.dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("down") }
			o.resolver = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		require.Equal(t, lookUpTimeout, time.Since(began))
		require.Len(t, s.Upstreams(), 2)
		time.Sleep(lookUpEvery + time.Second) // it looks them up again
		began = time.Now()
		s.Close()
		require.Zero(t, time.Since(began))
	})
}

// What needs no place finds the one that is there as well.
func TestUpstreams_Exempt(t *testing.T) {
	t.Parallel()
	exempt := func(o *Options) { o.Exempt = []string{"/"} }
	inVirtualTimeBefore(t, []http.HandlerFunc{nil, nil, says("up"), nil}, exempt, func(t *testing.T, v *virtual) {
		var clients sync.WaitGroup
		var failed atomic.Int64
		for range 4 {
			clients.Go(func() {
				for range 50 {
					if a := v.do(t, "GET", "/", nil); a.body != "up" {
						failed.Add(1)
					}
				}
			})
		}
		clients.Wait()
		require.Zero(t, failed.Load())
	})
}

// Each failure counts once.
func TestUpstreams_Failed(t *testing.T) {
	t.Parallel()
	a, b := absent(t), absent(t)
	f := openAll(t, nil, a, b)
	for n := range 5 {
		requireProblem(t, f.do(t, "GET", "/", nil), http.StatusBadGateway, "cannot be reached")
		require.LessOrEqual(t, f.state(a).Failed+f.state(b).Failed, uint64(n+2), "one has failed before the other rested")
	}
}

// While the list changes, every request is answered by one that is or was in it, and then nothing is left of the others.
func TestUpstreams_ChangeUnderLoad(t *testing.T) {
	t.Parallel()
	requests := 100
	if testing.Short() {
		requests = 40
	}
	for _, strategy := range []string{"auto", "fair", "sync"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			var all []string
			for _, name := range []string{"a", "b", "c", "d"} {
				all = append(all, replica(t, name))
			}
			f := openAll(t, func(o *Options) { o.Strategy, o.Concurrency, o.Objective = strategy, 0, strategies.NoObjective }, all...)
			var clients, changes sync.WaitGroup
			var bad atomic.Int64
			done := make(chan struct{})
			for range 8 {
				clients.Go(func() {
					for i := range requests {
						var a answer
						if i%2 == 0 {
							a = f.do(t, "GET", "/", nil)
						} else {
							a = f.do(t, "POST", "/", strings.NewReader("a body"))
						}
						if a.status != http.StatusOK {
							bad.Add(1)
						}
					}
				})
			}
			changes.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					_ = f.SetUpstreams(strings.Join(all[i%4:min(4, i%4+1+i%3)], ","))
					f.Upstreams()
				}
			})
			clients.Wait()
			close(done)
			changes.Wait()
			require.Zero(t, bad.Load())
			require.NoError(t, f.SetUpstreams(all[0]))
			require.Eventually(t, func() bool { return f.Gauge().Busy == 0 }, time.Minute, time.Millisecond)
			f.upstreams.each(func(u *upstream) {
				if u.name != all[0] {
					u.conns.Lock()
					u.conns.left = u.conns.left.Add(-time.Minute)
					u.conns.Unlock()
				}
			})
			require.NoError(t, f.SetUpstreams(all[0]))
			require.Len(t, *f.upstreams.known.Load(), 1, "nothing uses the others")
		})
	}
}

// One that takes requests and does not answer, or answers nonsense, rests.
func TestUpstreams_Mute(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"mute": "", "garbage": "SSH-2.0-OpenSSH_9.2\r\n", "half": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := func(w http.ResponseWriter, _ *http.Request) {
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, text)
				_, _ = io.Copy(io.Discard, c) // until the proxy closes it
				_ = c.Close()
			}
			short := func(o *Options) { o.Timeout = 100 * time.Millisecond }
			inVirtualTimeBefore(t, []http.HandlerFunc{bad, says("good")}, short, func(t *testing.T, v *virtual) {
				good := 0
				for range 30 {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.url, nil)
					require.NoError(t, err)
					if a, err := v.client.Do(r); err == nil {
						b, err := io.ReadAll(a.Body)
						_ = a.Body.Close()
						if err == nil && string(b) == "good" {
							good++
						}
					}
				}
				require.Zero(t, v.state("http://upstream0:1").Allowed)
				require.Greater(t, good, 15)
				require.Zero(t, v.Gauge().Busy)
			})
		})
	}
}

// An upgraded connection outlives its upstream's place in the list.
func TestUpstreams_TunnelOfOneThatIsGone(t *testing.T) {
	t.Parallel()
	echo := speak(t, func(_ int, c net.Conn) {
		r := bufio.NewReader(c)
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		_, _ = c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"))
		_, _ = io.Copy(c, r)
	})
	f := openAll(t, nil, echo)
	c, err := net.Dial("tcp", f.Addr().String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"))
	require.NoError(t, err)
	r := bufio.NewReader(c)
	a, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, a.StatusCode)
	require.NoError(t, f.SetUpstreams(replica(t, "another")))
	later := func() map[string]*upstream { // a minute after the change
		f.upstreams.each(func(u *upstream) {
			u.conns.Lock()
			defer u.conns.Unlock()
			if !u.conns.left.IsZero() {
				u.conns.left = u.conns.left.Add(-time.Minute)
			}
		})
		f.upstreams.mu.Lock()
		defer f.upstreams.mu.Unlock()
		require.NoError(t, f.upstreams.set(f.upstreams.urls))
		return *f.upstreams.known.Load()
	}
	require.Len(t, later(), 2)
	_, err = c.Write([]byte("still"))
	require.NoError(t, err)
	said := make([]byte, 5)
	_, err = io.ReadFull(r, said)
	require.NoError(t, err)
	require.Equal(t, "still", string(said))
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return len(later()) == 1 }, time.Minute, time.Millisecond)
}

// Whoever waits for another upstream has its deadline, and is turned away if the proxy stops.
func TestUpstreams_WaitElsewhere(t *testing.T) {
	t.Parallel()
	release, begun := make(chan struct{}), make(chan struct{}, 9)
	busy := serve(t, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-release
	})
	defer close(release)
	f := openAll(t, func(o *Options) { o.Concurrency, o.TrustHeaders = 1, true }, absent(t), busy)
	var others sync.WaitGroup
	defer others.Wait()
	for range 2 { // one has to wait elsewhere
		others.Go(func() {
			if a, err := f.client.Get(f.url); err == nil {
				_ = a.Body.Close()
			}
		})
	}
	<-begun
	a := f.do(t, "GET", "/", nil, "Spillway-Timeout-Ms", "50")
	requireProblem(t, a, http.StatusGatewayTimeout, "")
	require.Equal(t, "expired", a.header.Get("Spillway-Shed"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, f.Drain(ctx))
	require.Zero(t, f.Gauge().Depth)
}
