package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/backup"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/testenv"
	"github.com/spillway-go/spillway/internal/tuning"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// switcher is a dispatcher of which only the strategy matters.
type switcher struct {
	status    dispatch.Gauge
	objective strategies.Objective
	err       error // of Switch
	observing error // of SetObserve
	split     bool
}

func (s *switcher) Objective() *strategies.Objective { return &s.objective }

func (s *switcher) SetObserve(observe bool) error {
	if s.observing == nil {
		s.status.Observe = observe
	}
	return s.observing
}

func (s *switcher) SetWorkers(n int) error {
	if s.split {
		return tuning.ErrSplit
	}
	s.status.Workers = n
	return nil
}

func (s *switcher) SetCapacity(n int) error {
	s.status.Capacity = n
	return nil
}

func (s *switcher) Gauge() dispatch.Gauge { return s.status }

func (s *switcher) Pools() []dispatch.Gauge { return nil }

func (s *switcher) Switch(name string) error {
	if s.err != nil {
		return s.err
	}
	if _, err := strategies.Lookup(name); err != nil {
		return err
	}
	s.status.Strategy = name
	return nil
}

// plane is an admin plane under test.
type plane struct {
	*Server
	t      *testing.T
	client *http.Client
	token  string
}

// open starts an admin plane with the options given and harmless others.
func open(t *testing.T, o Options) *plane {
	t.Helper()
	o.Listen = "127.0.0.1:0"
	if o.MaxConnections == 0 {
		o.MaxConnections = 256
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dispatcher == nil {
		o.Dispatcher = &switcher{status: dispatch.Gauge{Strategy: "fifo", Workers: 4, Capacity: 256}}
	}
	if d, ok := o.Dispatcher.(*switcher); ok && o.Tuner == nil {
		o.Tuner = tuning.New(d, tuning.Settings{Strategy: d.status.Strategy, Mode: Mode(d.status), Workers: d.status.Workers, Capacity: d.status.Capacity}, o.Logger)
	}
	if o.Metrics == nil {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "some 1\n") })
	}
	if o.Live == nil {
		o.Live = func() (metrics.Live, bool) { return metrics.Live{}, true }
	}
	if o.Slowest == nil {
		o.Slowest = func() ([]slowest.Request, int64) { return nil, 0 }
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Config == nil {
		o.Config = func() any { return map[string]any{"a": 1} }
	}
	if o.Backup == nil {
		o.Backup = func(context.Context, string) (backup.Result, error) { return backup.Result{}, nil }
	}
	s, err := Open(o)
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(func() {
		s.Close()
		transport.CloseIdleConnections()
	})
	return &plane{Server: s, t: t, client: &http.Client{Transport: transport}}
}

// answer is an answer, read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

func (p *plane) do(method, path, body string, header ...string) answer {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.Addr().String()+path, strings.NewReader(body))
	require.NoError(p.t, err)
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := p.client.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return answer{resp.StatusCode, resp.Header, string(content)}
}

// requireProblem asserts that a is an error in the form of RFC 9457.
func requireProblem(t *testing.T, a answer, status int, words ...string) {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	var p struct {
		Title, Detail string
		Status        int
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	require.Equal(t, status, p.Status)
	require.Equal(t, http.StatusText(status), p.Title)
	for _, word := range words {
		require.Contains(t, p.Detail, word)
	}
}

func TestServer_Routes(t *testing.T) {
	t.Parallel()
	p := open(t, Options{Version: "v1.2.3", Commit: "c0ffee"})
	for path, want := range map[string]string{
		"/":                              "<title>Spillway</title>",
		"/metrics":                       "some 1",
		"/livez":                         "ok",
		"/version":                       `{"version":"v1.2.3","commit":"c0ffee","go":"` + runtime.Version() + `"}`,
		"/healthz":                       "ok",
		"/readyz":                        "ok",
		"/config":                        `{"a":1}`,
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/cmdline":           "test",
		"/debug/pprof/mutex?debug=1":     "sampling period",
		"/debug/pprof/block?debug=1":     "cycles/second",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		a := p.do("GET", path, "")
		require.Equal(t, 200, a.status, path)
		require.Contains(t, a.body, want, path)
		require.Equal(t, "no-store", a.header.Get("Cache-Control"))

		a = p.do("HEAD", path, "")
		require.Equal(t, 200, a.status, path)
		require.Empty(t, a.body)
	}
	require.NotContains(t, p.do("GET", "/debug/pprof/cmdline", "").body, "-test.", "arguments may hold tokens")
	requireProblem(t, p.do("GET", "/nothing", ""), 404, "/nothing")
	requireProblem(t, p.do("GET", "/v0/entity?id=a", ""), 404)
	for path, allow := range map[string]string{
		"/": "GET, HEAD", "/console/events": "GET, HEAD", "/metrics": "GET, HEAD", "/livez": "GET, HEAD", "/version": "GET, HEAD", "/healthz": "GET, HEAD", "/readyz": "GET, HEAD", "/config": "GET, HEAD",
		"/debug/pprof/profile": "GET, HEAD", "/strategy": "GET, HEAD, PUT", "/backup": "POST",
	} {
		a := p.do("DELETE", path, "")
		requireProblem(t, a, 405, allow)
		require.Equal(t, allow, a.header.Get("Allow"), path)
	}
}

func TestServer_Readyz(t *testing.T) {
	t.Parallel()
	var reason error
	p := open(t, Options{Ready: func() error { return reason }})
	require.Equal(t, 200, p.do("GET", "/readyz", "").status)
	reason = errors.New("draining")
	requireProblem(t, p.do("GET", "/readyz", ""), 503, "draining")
	reason = errors.New("the store cannot write: open /var/lib/spillway/data/000001.log: no space left on device")
	a := p.do("GET", "/readyz", "")
	requireProblem(t, a, 503, "open 000001.log: no space left on device")
	require.NotContains(t, a.body, "/var", "it is told to everybody")
	require.Equal(t, 200, p.do("GET", "/healthz", "").status)
}

func TestServer_Strategy(t *testing.T) {
	t.Parallel()
	available, err := json.Marshal(strategies.Names())
	require.NoError(t, err)
	d := &switcher{status: dispatch.Gauge{Strategy: "fifo", Workers: 4, Capacity: 256}}
	p := open(t, Options{Dispatcher: d})

	const inForce = `"objective":{"set":"","in_force":"100ms","why":"none is set, so 100ms stand in until the usual service time is known"},`
	a := p.do("GET", "/strategy", "")
	require.Equal(t, 200, a.status)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.Equal(t, `{"strategy":"fifo","mode":"enforce","workers":4,"capacity":256,`+inForce+`"available":`+string(available)+"}\n", a.body)

	a = p.do("PUT", "/strategy", `{"strategy":"lifo"}`)
	require.Equal(t, 200, a.status)
	require.Equal(t, `{"strategy":"lifo","mode":"enforce","workers":4,"capacity":256,`+inForce+`"available":`+string(available)+"}\n", a.body)

	d.status.Capacity, d.status.Observe = strategies.Unbounded, true
	require.Contains(t, p.do("GET", "/strategy", "").body, `"mode":"observe"`)
	require.Contains(t, p.do("GET", "/strategy", "").body, `"capacity":null`)
	d.status.Workers, d.status.Capacity = 0, 0
	require.Contains(t, p.do("GET", "/strategy", "").body, `"workers":0,"capacity":0,`)
	d.status.Workers, d.status.Learned = 12, &dispatch.Learned{Limit: 12, Min: 1, Max: 50, Why: "a test says so"}
	require.Contains(t, p.do("GET", "/strategy", "").body, `"workers":12,"capacity":0,`)
	require.Contains(t, p.do("GET", "/strategy", "").body, `],"learned":{"limit":12,"min":1,"max":50,"why":"a test says so"}}`)

	for _, body := range []string{
		`{"strategy":"nonsense"}`, `{"strategy":""}`, `{}`, ``, `lifo`, `"lifo"`, `["lifo"]`, `{"strategy":7}`, `{"strategy":"fifo"`,
		`{"strategy":"fifo","more":1}`, `{"strategy":"fifo"} {}`, `null`,
		`{"strategy":null,"capacity":9}`, `{"strategy":"fifo","slo":null}`, `{"workers":null,"mode":"observe"}`,
	} {
		requireProblem(t, p.do("PUT", "/strategy", body), 400, strategies.Names()...)
		require.Equal(t, "lifo", d.status.Strategy, body)
	}
	requireProblem(t, p.do("PUT", "/strategy", `{"strategy":"`+strings.Repeat("x", maxBody)+`"}`), 413, "8192 bytes")
	require.Equal(t, "lifo", d.status.Strategy)

	d.err = errors.New("no more room")
	requireProblem(t, p.do("PUT", "/strategy", `{"strategy":"fifo"}`), 500, "no more room")
}

// Strategy, objective and mode change live, in any combination, as a whole or not at all.
func TestServer_Change(t *testing.T) {
	t.Parallel()
	type state struct{ strategy, set, mode string }
	before := state{"fifo", "", "enforce"}
	for _, tc := range []struct {
		body   string
		status int
		words  []string // of the problem
		want   state
		log    []string // lines
	}{
		{`{"slo":"200ms"}`, 200, nil, state{"fifo", "200ms", "enforce"}, []string{"objective changed from= to=200ms"}},
		{`{"slo":"none"}`, 200, nil, state{"fifo", "none", "enforce"}, []string{"objective changed from= to=none"}},
		{`{"mode":"observe"}`, 200, nil, state{"fifo", "", "observe"}, []string{"mode changed from=enforce to=observe"}},
		{
			`{"strategy":"auto","slo":"1s","mode":"observe"}`, 200, nil, state{"auto", "1s", "observe"},
			[]string{"mode changed from=enforce to=observe", "objective changed from= to=1s"},
		},
		// What is so already is no change.
		{`{"strategy":"fifo","slo":"","mode":"enforce"}`, 200, nil, before, nil},

		{`{"slo":"0"}`, 400, []string{`slo is "0"`, "from 100us to 1h", "none"}, before, nil},
		{`{"slo":"-200ms"}`, 400, []string{`slo is "-200ms"`}, before, nil},
		{`{"slo":"48h"}`, 400, []string{`slo is "48h"`}, before, nil},
		{`{"slo":200}`, 400, []string{"slo such as 250ms"}, before, nil},
		{`{"mode":"watch"}`, 400, []string{`mode is "watch"`, "enforce or observe"}, before, nil},
		{`{"mode":""}`, 400, []string{`mode is ""`}, before, nil},
		{`{"strategy":"lifo","slo":"1s","mode":"watch"}`, 400, []string{"mode"}, before, nil},
		{`{"strategy":"lifo","slo":"soon","mode":"observe"}`, 400, []string{"slo"}, before, nil},
		{`{"strategy":"nonsense","slo":"1s","mode":"observe"}`, 400, []string{`strategy is "nonsense"`, "adaptive-lifo, auto"}, before, nil},
	} {
		t.Run(tc.body, func(t *testing.T) {
			t.Parallel()
			d := &switcher{status: dispatch.Gauge{Strategy: "fifo", Workers: 4, Capacity: 256}}
			var log bytes.Buffer
			p := open(t, Options{Dispatcher: d, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
					return slog.Attr{}
				}
				return a
			}}))})
			a := p.do("PUT", "/strategy", tc.body)
			if tc.status == 200 {
				require.Equal(t, 200, a.status, a.body)
				require.Contains(t, a.body, `"set":"`+tc.want.set+`"`)
			} else {
				requireProblem(t, a, tc.status, tc.words...)
			}
			require.Equal(t, tc.want, state{d.status.Strategy, strategies.FormatObjective(d.objective.State().Set), Mode(d.status)})
			var lines []string
			for line := range strings.Lines(log.String()) {
				lines = append(lines, strings.NewReplacer(`msg=`, "", `"`, "", "\n", "").Replace(line))
			}
			require.Equal(t, tc.log, lines)
		})
	}

	// Workers and capacity too.
	many := &switcher{status: dispatch.Gauge{Strategy: "fifo", Workers: 4, Capacity: 256}}
	tuned := open(t, Options{Dispatcher: many})
	a := tuned.do("PUT", "/strategy", `{"strategy":"lifo","workers":8,"capacity":64}`)
	require.Equal(t, 200, a.status, a.body)
	require.Contains(t, a.body, `{"strategy":"lifo","mode":"enforce","workers":8,"capacity":64,`)
	require.Equal(t, 200, tuned.do("PUT", "/strategy", `{"workers":"auto","capacity":0}`).status)
	require.Equal(t, [2]int{0, 0}, [2]int{many.status.Workers, many.status.Capacity})
	for body, words := range map[string][]string{
		`{"workers":0,"strategy":"fifo"}`:           {"workers is 0", "1 to 65536", "auto"},
		`{"workers":"many","strategy":"fifo"}`:      {`workers is "many"`},
		`{"workers":65537,"strategy":"fifo"}`:       {"workers is 65537"},
		`{"capacity":-1,"strategy":"fifo"}`:         {"capacity is -1", "1 to 1048576", "0 for that of the strategy"},
		`{"capacity":1048577,"strategy":"fifo"}`:    {"capacity is 1048577"},
		`{"capacity":"many","strategy":"fifo"}`:     {"capacity"},
		`{"workers":1.5,"strategy":"fifo"}`:         {"workers is 1.5"},
		`{"workers":[],"strategy":"fifo"}`:          {"workers is []"},
		`{"workers":1e9,"strategy":"fifo"}`:         {"workers is 1e9"},
		`{"strategy":"fifo","capacity":1e30}`:       {"capacity"},
		`{"strategy":"fifo","upstream":"http://a"}`: {"upstream"},
	} {
		requireProblem(t, tuned.do("PUT", "/strategy", body), 400, words...)
		require.Equal(t, "lifo", many.status.Strategy, body)
	}
	// A value of another type is told in one sentence.
	const ofWorkers, ofCapacity = ", want 1 to 65536, or auto", ", want 1 to 1048576, or 0 for that of the strategy"
	for body, detail := range map[string]string{
		`{"workers":1.5}`:                              "workers is 1.5" + ofWorkers,
		`{"workers":-1}`:                               "workers is -1" + ofWorkers,
		`{"workers":"4"}`:                              `workers is "4"` + ofWorkers,
		`{"workers":70000}`:                            "workers is 70000" + ofWorkers,
		`{"capacity":1.5}`:                             "capacity is 1.5" + ofCapacity,
		`{"Capacity":1e99}`:                            "capacity is 1e99" + ofCapacity,
		`{"capacity":"64"}`:                            `capacity is "64"` + ofCapacity,
		`{"strategy":"fifo","capacity":[1,2]}`:         "capacity is [1,2]" + ofCapacity,
		`{"capacity":` + strings.Repeat("9", 99) + `}`: "capacity is " + strings.Repeat("9", 40) + ofCapacity,
		`{"slo":200}`:                                  "slo is 200, want an slo such as 250ms, none or nothing, in quotes",
		`{"mode":true}`:                                "mode is true, want enforce or observe",
		`{"upstreams":"x"}`:                            `upstreams is "x", want a list of upstreams such as ["http://HOST:PORT"]`,
		`{"upstreams":[3]}`:                            `upstreams is [3], want a list of upstreams such as ["http://HOST:PORT"]`,
	} {
		a := tuned.do("PUT", "/strategy", body)
		requireProblem(t, a, 400)
		var said struct{ Detail string }
		require.NoError(t, json.Unmarshal([]byte(a.body), &said))
		require.Equal(t, detail, said.Detail, body)
	}
	for _, body := range []string{"", "[]", "5", `{"workers":`} {
		require.NotRegexp(t, "EOF|json|Go ", tuned.do("PUT", "/strategy", body).body)
	}
	many.split = true
	requireProblem(t, tuned.do("PUT", "/strategy", `{"strategy":"fifo","workers":2}`), 400, "SPILLWAY_POOLS is split")
	require.Equal(t, "lifo", many.status.Strategy)

	// The strategy is not left changed alone.
	d := &switcher{status: dispatch.Gauge{Strategy: "fifo"}, observing: errors.New("no luck")}
	p := open(t, Options{Dispatcher: d})
	requireProblem(t, p.do("PUT", "/strategy", `{"strategy":"lifo","slo":"1s","mode":"observe"}`), 500, "no luck")
	require.Equal(t, "fifo", d.status.Strategy)
	require.Zero(t, d.objective.State().Set)
}

func TestServer_Backup(t *testing.T) {
	t.Parallel()
	var (
		dirs []string
		fail error
	)
	p := open(t, Options{Backup: func(_ context.Context, dir string) (backup.Result, error) {
		dirs = append(dirs, dir)
		return backup.Result{Dir: dir, Files: 3, Bytes: 1000, Took: 1500 * time.Millisecond}, fail
	}})
	a := p.do("POST", "/backup", `{"dir":"/some/where"}`)
	require.Equal(t, 200, a.status)
	require.Equal(t, `{"dir":"/some/where","files":3,"bytes":1000,"seconds":1.5}`+"\n", a.body)
	require.Equal(t, []string{"/some/where"}, dirs)

	for _, body := range []string{``, `{}`, `{"dir":""}`, `{"dir":"some/where"}`, `{"dir":"../x"}`, `{"dir":1}`, `{"path":"/x"}`} {
		requireProblem(t, p.do("POST", "/backup", body), 400, "folder to be made")
	}
	require.Len(t, dirs, 1)

	fail = fmt.Errorf("not at /x: %w", fs.ErrExist)
	requireProblem(t, p.do("POST", "/backup", `{"dir":"/x"}`), 409, "not at /x")
	fail = backup.ErrBusy
	requireProblem(t, p.do("POST", "/backup", `{"dir":"/x"}`), 409, "another backup")
	fail = fmt.Errorf("%w: in the data folder", fs.ErrInvalid)
	requireProblem(t, p.do("POST", "/backup", `{"dir":"/x"}`), 400, "in the data folder")
	fail = backup.ErrClosed
	requireProblem(t, p.do("POST", "/backup", `{"dir":"/x"}`), 503, "stopping")
	fail = fmt.Errorf("%w: no space", store.ErrUnwritable)
	requireProblem(t, p.do("POST", "/backup", `{"dir":"/x"}`), 503, "no space")
	fail = errors.New("no luck")
	requireProblem(t, p.do("POST", "/backup", `{"dir":"/x"}`), 500, "no luck")
}

func TestServer_Token(t *testing.T) {
	t.Parallel()
	p := open(t, Options{Token: secure.NewToken("secret")})
	for _, path := range []string{"/", "/metrics", "/debug/pprof/", "/strategy", "/config", "/backup", "/console/events", "/nothing"} {
		a := p.do("GET", path, "")
		requireProblem(t, a, 401)
		require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
		requireProblem(t, p.do("GET", path, "", "Authorization", "Bearer wrong"), 401)
	}
	requireProblem(t, p.do("PUT", "/strategy", `{"strategy":"lifo"}`), 401)
	require.Equal(t, 200, p.do("GET", "/healthz", "").status)
	require.Equal(t, 200, p.do("GET", "/livez", "").status)
	require.Equal(t, 200, p.do("GET", "/readyz", "").status)

	p.token = "secret"
	require.Equal(t, 200, p.do("GET", "/metrics", "").status)
	require.Equal(t, 200, p.do("PUT", "/strategy", `{"strategy":"lifo"}`).status)
}

// A page in the operator's browser must not change anything.
func TestServer_CrossOrigin(t *testing.T) {
	t.Parallel()
	p := open(t, Options{Backup: func(context.Context, string) (backup.Result, error) { panic("must not be called") }})
	requireProblem(t, p.do("POST", "/backup", `{"dir":"/x"}`, "Origin", "https://elsewhere.example"), 403, "origins")
	requireProblem(t, p.do("POST", "/backup", `{"dir":"/x"}`, "Sec-Fetch-Site", "cross-site"), 403, "origins")
	require.Equal(t, 200, p.do("PUT", "/strategy", `{"strategy":"lifo"}`, "Origin", "http://"+p.Addr().String()).status)

	// Nor have it do what costs more than the answer, which needs no script.
	for _, path := range []string{
		"/debug/pprof/", "/debug/pprof/heap?gc=1", "/debug/pprof/trace?seconds=30", "/debug/pprof/profile", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/console/events",
	} {
		for _, site := range []string{"cross-site", "same-site"} {
			requireProblem(t, p.do("GET", path, "", "Sec-Fetch-Site", site), 403, "origins")
		}
		requireProblem(t, p.do("GET", path, "", "Origin", "https://elsewhere.example"), 403, "origins")
	}
	for _, header := range [][]string{nil, {"Sec-Fetch-Site", "none"}, {"Sec-Fetch-Site", "same-origin"}} {
		require.Equal(t, 200, p.do("GET", "/debug/pprof/heap?gc=1", "", header...).status, header)
	}
	require.Equal(t, 200, p.do("GET", "/", "", "Sec-Fetch-Site", "cross-site").status, "links to the console work")
}

func TestServer_CloseWaits(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	p := open(t, Options{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-end
		_, _ = io.WriteString(w, "late")
	})})
	// The request ends only when Close has stopped listening.
	p.http.RegisterOnShutdown(sync.OnceFunc(func() { close(end) })) // closed again by the cleanup
	got := make(chan string)
	go func() { got <- p.do("GET", "/metrics", "").body }()
	<-begun
	p.Close()
	require.Equal(t, "late", <-got)
	_, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr().String())
	require.Error(t, err)
}

func TestOpen_AddressInUse(t *testing.T) {
	t.Parallel()
	p := open(t, Options{})
	_, err := Open(Options{Listen: p.Addr().String()})
	require.ErrorContains(t, err, p.Addr().String())
	require.NotContains(t, err.Error(), "\n")
}

func TestServer_OversizedHead(t *testing.T) {
	t.Parallel()
	p := open(t, Options{})
	a := p.do("GET", "/healthz", "", "X-Padding", string(bytes.Repeat([]byte("x"), 64<<10)))
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, a.status)
}
