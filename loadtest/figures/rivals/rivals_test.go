package main

import (
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
	for _, r := range rivals {
		for _, u := range upstreams {
			dir := t.TempDir()
			command, err := r.render(r.setting(&u, "20001", "20002", dir))
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
	s := half.setting(&gunicorn, "1", "2", "")
	require.Equal(t, setting{Port: "1", Upstream: "2", Objective: "0.2s", Queue: "100ms", Places: 4, Waiting: 20, Limit: 24, Told: true}, s)
	require.Equal(t, "1s", half.setting(&model, "1", "2", "").Objective)
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
			o := l.options(&u, 6*time.Second)
			o.URL = "http://127.0.0.1:20001"
			o = o.WithDefaults()
			require.NoError(t, generator.Check(&o), "%s before %s", l.id(), u.name)
			_, err := files.ReadFile("files/" + u.file)
			require.True(t, u.file == "" || err == nil, u.name)
			for _, r := range rivals {
				fits = fits || l.fits(&u, &r)
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
	require.Equal(t, []*upstream{&upstreams[0], &upstreams[2]}, two, "in the order of the table")
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
		{plain, steady, good(0, 50, 0, 50, 0, 50), -1},
		// Counted from the spike: in 8 s that is after 1.5 s.
		{plain, spike, good(50, 50, 50, 0, 0, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50), 1},
		// Counted from the last step, to half of the first capacity.
		{stepped, steady, good(50, 50, 50, 50, 50, 50, 0, 25, 25), 0.5},
	} {
		require.InDelta(t, tt.want, protected(tt.u, tt.l, 100, tt.r), 1e-9, "%+v", tt.r.Timeline)
	}
}

func TestRow_Judge(t *testing.T) {
	t.Parallel()
	below, above := &load{multiple: 0.5}, &load{multiple: 2}
	for _, tt := range []struct {
		load   *load
		rivals map[string]figures
		want   []string
	}{
		// Less than 2% is the same.
		{above, map[string]figures{"nothing": {Good: 10}, "caddy": {Good: 100}, "haproxy": {Good: 101}, "spillway-learned": {Good: 99}, "spillway-told": {Good: 99}}, nil},
		// Who is told nothing is compared with both kinds, who is told with his own.
		{above, map[string]figures{"caddy": {Good: 120}, "nginx": {Good: 110}, "spillway-learned": {Good: 99}, "spillway-told": {Good: 109}},
			[]string{"learned: 0.82 of caddy", "learned: 0.90 of nginx"}},
		{above, map[string]figures{"nginx": {Good: 110}, "spillway-told": {Good: 99}}, []string{"told: 0.90 of nginx"}},
		// A failure below the capacity counts if another has none, not otherwise, nor above it.
		{below, map[string]figures{"nothing": {Good: 99}, "spillway-learned": {Good: 99, Failed: 0.01}}, []string{"learned: fails 1.00% below the capacity, nothing none"}},
		{below, map[string]figures{"nothing": {Good: 99, Failed: 0.01}, "spillway-learned": {Good: 99, Failed: 0.01}}, nil},
		{above, map[string]figures{"nothing": {Good: 99}, "spillway-learned": {Good: 99, Failed: 0.01}}, nil},
	} {
		require.Equal(t, tt.want, (&row{Rivals: tt.rivals}).judge(tt.load))
	}
}

// Of an even number it is between the two in the middle; who is not protected in half of the rounds never is.
func TestMedian(t *testing.T) {
	t.Parallel()
	f := median([]figures{{Good: 90, Protected: 1}, {Good: 100, Protected: -1}, {Good: 10, Protected: 0.5}, {Good: 95, Protected: 0}})
	require.Equal(t, figures{Rounds: 4, Good: 92.5, Least: 10, Most: 100, Protected: 0.75}, f)
	require.InDelta(t, -1, median([]figures{{Protected: -1}, {Protected: 2}}).Protected, 0)
}

// A report is of all the cells that are there, names what is not, and takes the median of rounds.
func TestBench_Report(t *testing.T) {
	t.Parallel()
	b := &bench{dir: t.TempDir(), build: "b"}
	for round, good := range []float64{90, 100, 70} {
		r := &result.Result{Seconds: 4, Requests: 400, Status: map[string]int64{"200": 100, "503": 300}, GoodputRPS: good, OfferedRPS: 400, TimelineStep: 1}
		require.NoError(t, save(b.file(&upstreams[0], &loads[0], &rivals[0], round), cell{Capacity: 200, Build: "b", Cold: r, Warm: r}))
	}
	require.NoError(t, b.report())
	var w whole
	require.NoError(t, read(filepath.Join(b.dir, "report.json"), &w))
	require.Equal(t, []string{"b"}, w.Builds)
	require.Len(t, w.Rows, 2)
	f := w.Rows[1].Rivals["nothing"]
	require.Equal(t, figures{Rounds: 3, Good: 90, Least: 70, Most: 100, Failed: 0.75, Protected: -1}, f)
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
