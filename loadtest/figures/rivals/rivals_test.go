package main

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/result"
)

// Every rival has a configuration for every upstream, with nothing in it left open.
func TestTables_Render(t *testing.T) {
	t.Parallel()
	require.Equal(t, "nothing", rivals[0].name)
	for _, u := range upstreams {
		dir := t.TempDir()
		command, err := render(u.file, u.command, setting{Port: "20002", Dir: dir, File: filepath.Join(dir, "file"), Self: "/self"})
		require.NoError(t, err, u.name)
		require.Contains(t, command, "20002", u.name)
		require.NotContains(t, command, "{", u.name)
		if u.file == "" {
			continue
		}
		require.Contains(t, command, filepath.Join(dir, "file"), u.name)
		want, err := files.ReadFile("files/" + u.file)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, "file"))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), u.name)
	}
	for _, r := range rivals {
		for _, u := range upstreams {
			dir := t.TempDir()
			command, err := render(r.file, r.command, r.setting(u, "20001", "20002", dir))
			require.NoError(t, err, "%s before %s", r.name, u.name)
			if r.command == "" {
				require.Empty(t, command)
				continue
			}
			require.NotEmpty(t, r.docs, r.name)
			text := command
			if r.file != "" {
				require.Contains(t, command, filepath.Join(dir, r.file))
				content, err := os.ReadFile(filepath.Join(dir, r.file))
				require.NoError(t, err)
				text += string(content)
				if strings.HasSuffix(r.file, ".yaml") {
					require.NoError(t, yaml.Unmarshal(content, new(any)))
				}
			}
			require.NotContains(t, text, "{{")
			require.NotContains(t, text, "<no value>")
			require.Contains(t, text, "20001", "%s listens", r.name)
			require.Contains(t, text, "20002", "%s knows the upstream", r.name)
		}
	}
}

// What is told is what the rules say.
func TestRival_Setting(t *testing.T) {
	t.Parallel()
	gunicorn, model := upstreams[0], upstreams[len(upstreams)-1]
	half := rival{queue: 0.5, told: true}
	s := half.setting(gunicorn, "1", "2", "")
	require.Equal(t, setting{Port: "1", Upstream: "2", Objective: "0.2s", Queue: "100ms", Places: 5, Waiting: 20, Limit: 25, Told: true}, s, "one more than it does at once")
	require.Equal(t, "1s", half.setting(model, "1", "2", "").Objective)
	require.Equal(t, 8, half.setting(model, "1", "2", "").Places)
}

// Every load of every upstream can be sent, and has a name of its own.
func TestTables_Loads(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, l := range loads {
		require.False(t, seen[l.id()], l.id())
		seen[l.id()] = true
		fits := false
		for _, u := range upstreams {
			o := l.options(u, 6*time.Second)
			o.URL = "http://127.0.0.1:20001"
			o = o.WithDefaults()
			require.NoError(t, generator.Check(&o), "%s before %s", l.id(), u.name)
			_, err := files.ReadFile("files/" + u.file)
			require.True(t, u.file == "" || err == nil, u.name)
			for _, r := range rivals {
				fits = fits || l.fits(u, r)
			}
		}
		require.True(t, fits, "nobody is measured under %s", l.id())
	}
	for _, r := range rivals {
		require.True(t, r.only == "" || seen[r.only+"-64"], r.name)
	}
}

func TestChosen(t *testing.T) {
	t.Parallel()
	name := func(u *upstream) string { return u.name }
	all, err := chosen("upstreams", " ", upstreams, name)
	require.NoError(t, err)
	require.Len(t, all, len(upstreams))
	two, err := chosen("upstreams", "php,gunicorn", upstreams, name)
	require.NoError(t, err)
	require.Equal(t, []*upstream{upstreams[0], upstreams[2]}, two, "in the order of the table")
	_, err = chosen("upstreams", "php apache", upstreams, name)
	require.ErrorContains(t, err, `there is no "apache"; there are gunicorn, go,`)
}

// The Go service does as many at once as it has places, and the others wait in it.
func TestService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(2, time.Second)
		ask := func(method, url string) int {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(method, url, http.NoBody))
			return w.Code
		}
		ended := make(chan time.Duration)
		begin := time.Now()
		for range 4 {
			go func() {
				ask(http.MethodGet, "/")
				ended <- time.Since(begin)
			}()
		}
		for _, want := range []int{1, 1, 2, 2} {
			require.Equal(t, time.Duration(want)*time.Second, <-ended)
		}
		require.Equal(t, http.StatusBadRequest, ask(http.MethodPut, "/places?n=0"))
		require.Equal(t, http.StatusOK, ask(http.MethodPut, "/places?n=1"))
		begin = time.Now()
		for range 2 {
			go func() {
				ask(http.MethodGet, "/")
				ended <- time.Since(begin)
			}()
		}
		require.Equal(t, time.Second, <-ended)
		require.Equal(t, 2*time.Second, <-ended)
	})
}

// An upstream whose processes start one after the other is awaited; one that never does as many at once as it should is
// named.
func TestUpstream_Await(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, u := newService(1, time.Second), &upstream{name: "twins", places: 2, takes: time.Second}
		ask := func(method, url string) error {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(method, url, http.NoBody))
			return nil
		}
		get := func(context.Context) error { return ask(http.MethodGet, "/") }
		require.EqualError(t, u.await(t.Context(), get), "twins does not do 2 requests at once in less than 2s, for 30s")

		begin := time.Now()
		second := time.AfterFunc(4500*time.Millisecond, func() { _ = ask(http.MethodPut, "/places?n=2") })
		defer second.Stop()
		require.NoError(t, u.await(t.Context(), get))
		require.Equal(t, 5500*time.Millisecond, time.Since(begin), "twice two, one after the other; then one that waited for half of its time")

		n := 0
		require.NoError(t, u.await(t.Context(), func(context.Context) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if n++; n == 1 {
				return errors.New("refused")
			}
			return nil
		}))
		require.Equal(t, 4, n, "once more after an error")

		ended, end := context.WithCancel(t.Context())
		end()
		require.ErrorIs(t, u.await(ended, get), context.Canceled)
	})
}

// Each sentence is that of the row below it.
func TestProtected(t *testing.T) {
	t.Parallel()
	plain, stepped := &upstream{}, &upstream{places: 8, steps: []int{8, 32, 4}}
	steady, spike := &load{multiple: 2}, &load{profile: "spike:5x,"}
	good := func(figures ...int64) (r *result.Result) {
		r = &result.Result{Seconds: float64(len(figures)) / 2, TimelineStep: 0.5}
		for _, f := range figures {
			r.Timeline = append(r.Timeline, result.Interval{Offered: 100, Good: f})
		}
		return r
	}
	for _, tt := range []struct {
		u    *upstream
		l    *load
		r    *result.Result
		want float64
	}{
		// At once, if the capacity is used from the start.
		{plain, steady, good(45, 50, 50, 50), 0},
		// From where on a whole second is good.
		{plain, steady, good(0, 50, 0, 45, 45, 50), 1.5},
		// Never, if no second is.
		{plain, steady, good(0, 50, 0, 50, 0, 50), math.Inf(1)},
		// Counted from the spike: in 8 s that is after 1.5 s.
		{plain, spike, good(50, 50, 50, 0, 0, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50), 1},
		// Counted from the last step, to half of the first capacity.
		{stepped, steady, good(50, 50, 50, 50, 50, 50, 0, 25, 25), 0.5},
	} {
		got := (&sample{tt.u, tt.l, &cell{Capacity: 100}, tt.r}).protected()
		require.True(t, got == tt.want || math.Abs(got-tt.want) < 1e-9, "%v, not %v: %+v", got, tt.want, tt.r.Timeline)
	}
}

func TestRow_Judge(t *testing.T) {
	t.Parallel()
	below, above := &load{multiple: 0.5}, &load{multiple: 2}
	of := func(rates map[string]float64) map[string]figures {
		all := map[string]figures{}
		for name, rate := range rates {
			all[name] = figures{good: rate}
		}
		return all
	}
	for _, tt := range []struct {
		load   *load
		rivals map[string]figures
		want   []string
	}{
		// Less than 2% is the same.
		{above, of(map[string]float64{"nothing": 10, "caddy": 100, "haproxy": 101, "spillway-learned": 99, "spillway-told": 99}), nil},
		// Who is not told the number is compared with both kinds, who is told it with his own.
		{above, of(map[string]float64{"caddy": 120, "nginx": 110, "spillway-learned": 99, "spillway-objective": 118, "spillway-told": 109, "spillway-half": 55}),
			[]string{"learned: 0.82 of caddy", "learned: 0.90 of nginx", "half: 0.50 of nginx"}},
		{above, of(map[string]float64{"nginx": 110, "spillway-told": 99}), []string{"told: 0.90 of nginx"}},
		// A class counts as all do; fair and priority are beside them.
		{&load{multiple: 2, of: "priority 0"}, map[string]figures{"haproxy": {good: 100, ofClass: 80}, "spillway-learned": {good: 100, ofClass: 60}, "spillway-priority": {}},
			[]string{"learned: 0.75 of haproxy in priority 0"}},
		// A failure below the capacity counts if another has none, not otherwise, nor above it.
		{below, map[string]figures{"nothing": {good: 99}, "spillway-half": {good: 99, failed: 1}}, []string{"half: fails 1.00% below the capacity, nothing none"}},
		{below, map[string]figures{"nothing": {good: 99, failed: 1}, "spillway-learned": {good: 99, failed: 1}}, nil},
		{above, map[string]figures{"nothing": {good: 99}, "spillway-learned": {good: 99, failed: 1}}, nil},
	} {
		require.Equal(t, tt.want, (&row{Rivals: tt.rivals}).judge(tt.load))
	}
}

// Of an even number it is between the two in the middle; who is not protected in half of the rounds never is.
func TestMedian(t *testing.T) {
	t.Parallel()
	round := func(goodput float64, protected int) *sample {
		r := &result.Result{CompletedGoodRPS: goodput, TimelineStep: 1, Timeline: make([]result.Interval, 4)}
		for i := range r.Timeline {
			r.Timeline[i].Offered = 1
			if i >= protected {
				r.Timeline[i].Good = 1
			}
		}
		return &sample{&upstream{}, loads[0], &cell{Capacity: 1}, r}
	}
	f := median([]*sample{round(90, 1), round(100, 4), round(10, 2), round(95, 0)})
	require.Equal(t, figures{"rounds": 4, good: 92.5, "good_rps_least": 10, "good_rps_most": 100, "served_p99_ms": 0, failed: 100, "seconds_to_protect": 1.5,
		"memory_mib": 0, "others_cpu_percent": 0}, f)
	require.NotContains(t, median([]*sample{round(90, 4), round(90, 2)}), "seconds_to_protect")
}

// A report is of all the cells that are there, names what is not, and takes the median of rounds.
func TestBench_Report(t *testing.T) {
	t.Parallel()
	b := &bench{dir: t.TempDir(), build: "b"}
	require.NoError(t, os.Mkdir(filepath.Join(b.dir, cells), 0o755))
	for round, good := range []float64{90, 100, 70} {
		r := &result.Result{Seconds: 4, Requests: 400, Status: map[string]int64{"200": 100, "503": 300}, CompletedGoodRPS: good, OfferedRPS: 400, TimelineStep: 1}
		require.NoError(t, result.SaveJSON(b.file(upstreams[0], loads[0], rivals[0], round), cell{Capacity: 200, Build: "b", Cold: r, Warm: r}))
	}
	require.NoError(t, b.report())
	var w whole
	require.NoError(t, result.LoadJSON(filepath.Join(b.dir, "report.json"), &w))
	require.Equal(t, []string{"b"}, w.Builds)
	require.Len(t, w.Rows, 2)
	f := w.Rows[1].Rivals["nothing"]
	require.Equal(t, figures{"rounds": 3, good: 90, "good_rps_least": 70, "good_rps_most": 100, failed: 75, "served_p99_ms": 0, "memory_mib": 0, "others_cpu_percent": 0}, f)
	require.Contains(t, w.NotRun[0], "gunicorn, 0.5x-64: envoy-adaptive, ")
	require.NotContains(t, w.NotRun[0], "nothing")
	require.NotContains(t, strings.Join(w.NotRun, "\n"), "gunicorn, step")
	text, err := os.ReadFile(filepath.Join(b.dir, "report.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), "| upstream | load | | s | offered | capacity | nothing |behind |\n|---|---|---|---|---|---|---|---|\n"+
		"| gunicorn | 0.5x-64 | cold | 4 | 400 | 200 | 90.0 |  |\n")
	require.Contains(t, string(text), "Not run:")
}

func TestLeftOut(t *testing.T) {
	t.Parallel()
	require.True(t, leftOut("a", "no-such-program"))
	require.False(t, leftOut("nothing", ""))
}
