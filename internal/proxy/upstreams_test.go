package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/proxy/rules"
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
	return serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(name)) })
}

// absent is the URL of an upstream that refuses connections.
func absent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return "http://" + l.Addr().String()
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
	var broken atomic.Bool
	broken.Store(true)
	bad := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("bad"))
	})
	f := openAll(t, nil, bad, replica(t, "good"))
	require.Equal(t, 3, f.ask(t, 50)["503"])
	require.Zero(t, f.state(bad).Allowed)
	require.NotZero(t, f.state(bad).Unwell)
	require.False(t, f.state(bad).Up)

	broken.Store(false)
	require.Eventually(t, func() bool { return f.ask(t, 1)["bad"] == 1 }, time.Minute, 10*time.Millisecond, "it is probed")
	require.Eventually(t, func() bool { return f.ask(t, 1)["503"] == 0 && f.state(bad).Unwell == 0 }, time.Minute, time.Millisecond)
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
	f := openAll(t, func(o *Options) {
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
}
