package admin

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// The page needs nothing but itself, and may run nothing else.
func TestConsole_Page(t *testing.T) {
	t.Parallel()
	p := open(t, Options{})
	a := p.do("GET", "/", "")
	require.Equal(t, 200, a.status)
	require.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
	require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
	require.NotContains(t, a.body, "{{", "every part is in its place")

	policy := a.header.Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'; connect-src 'self';")
	require.NotContains(t, policy, "unsafe")
	for _, element := range []string{"style", "script"} {
		content := regexp.MustCompile(`(?s)<` + element + `>(.*?)</` + element + `>`).FindStringSubmatch(a.body)
		require.NotNil(t, content, element)
		sum := sha256.Sum256([]byte(content[1]))
		require.Contains(t, policy, element+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	for _, reference := range regexp.MustCompile(`(?:src|href|url|import)\W{1,3}(\w+:)?//`).FindAllString(a.body, -1) {
		t.Errorf("the page refers to another place: %s", reference)
	}
}

// New strategies appear by themselves: none is named in the page.
func TestConsole_NamesNoStrategy(t *testing.T) {
	t.Parallel()
	for _, name := range strategies.Names() {
		named := regexp.MustCompile("[\"'`>]" + regexp.QuoteMeta(name) + "[\"'`<]")
		require.Empty(t, named.FindAll(consolePage, -1), name)
		require.Contains(t, string((&Options{}).greeting()), `"`+name+`"`)
	}
}

// Whatever a request is shed for, the console and the operator's handbook say what
// that means.
func TestConsole_ExplainsReasons(t *testing.T) {
	t.Parallel()
	handbook, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(handbook), "### Why requests are turned away")
	require.True(t, found)
	var about struct{ Reasons map[string]string }
	_, data, _ := strings.Cut(string((&Options{}).greeting()), "data: ")
	require.NoError(t, json.Unmarshal([]byte(data), &about))
	require.Len(t, about.Reasons, len(strategies.Reasons()))
	for _, r := range strategies.Reasons() {
		require.NotEmpty(t, about.Reasons[r.String()], r)
		require.Contains(t, section, "\n| `"+r.String()+"` | ", r)
	}
}

// Without the token a browser gets the page, which asks for it, but no data.
func TestConsole_Token(t *testing.T) {
	t.Parallel()
	p := open(t, Options{Token: secure.NewToken("secret")})
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	a := p.do("GET", "/", "", "Accept", browser)
	require.Equal(t, 401, a.status)
	require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
	require.Equal(t, string(consolePage), a.body)
	require.NotEmpty(t, a.header.Get("Content-Security-Policy"))
	requireProblem(t, p.do("GET", "/", ""), 401)
	requireProblem(t, p.do("GET", "/console/events", "", "Accept", browser), 401)
	requireProblem(t, p.do("GET", "/metrics", "", "Accept", browser), 401)
	p.token = "secret"
	require.Equal(t, 200, p.do("GET", "/", "", "Accept", browser).status)
}

// A page from elsewhere can neither switch nor read.
func TestConsole_OtherOrigins(t *testing.T) {
	t.Parallel()
	d := &switcher{status: dispatch.Gauge{Strategy: "fifo"}}
	p := open(t, Options{Dispatcher: d})
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://elsewhere.example"}} {
		requireProblem(t, p.do("PUT", "/strategy", `{"strategy":"lifo"}`, header...), 403, "origins")
	}
	require.Equal(t, "fifo", d.status.Strategy)
	require.Empty(t, p.do("HEAD", "/console/events", "", "Origin", "https://elsewhere.example").header.Get("Access-Control-Allow-Origin"))
}

func TestHistory_Frame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live := metrics.Live{
			Objective: strategies.ObjectiveState{InForce: 100 * time.Millisecond, Why: "a test says so"}, Submitted: 7, Run: 5, Good: 4, Failed: 3, Shed: map[string]float64{"full": 2}, TurnedAway: 3,
			Codes: map[int]float64{201: 5}, Gauge: dispatch.Gauge{Strategy: "unbounded", Depth: 3, Capacity: strategies.Unbounded, Workers: 4, Busy: 2},
		}
		starting := true
		o := &Options{
			Dispatcher: &switcher{}, Ready: func() error { return errors.New("draining") },
			Live: func() (metrics.Live, bool) { return live, !starting },
			Slowest: func() ([]slowest.Request, int64) {
				return []slowest.Request{{
					Answered: int64(time.Second), Strategy: "fifo", Method: "GET", Range: true, Code: 200, KeyBytes: 3,
					Took: 30 * time.Millisecond, Waited: 10 * time.Millisecond, Ran: 20 * time.Millisecond,
				}}, int64(3 * time.Second)
			},
			Callers: func() (classes [metrics.Classes]metrics.Tally, clients map[string]metrics.Tally) {
				classes[1].Good = uint64(live.Good)
				return classes, map[string]metrics.Tally{"<b>a": {Shed: uint64(live.TurnedAway), Time: uint64(live.TurnedAway) * 1e9 / 6}}
			},
		}
		h := newHistory(o, time.Now())
		require.False(t, h.sample())
		require.Nil(t, h.frame(), "the service is starting")
		starting = false
		require.True(t, h.sample())
		require.NotNil(t, h.frame(), "there is something to show at once")

		time.Sleep(2 * time.Second)
		live.Submitted, live.Run, live.Good, live.Late, live.Failed, live.TurnedAway = 27, 15, 12, 2, 3, 9
		live.Shed = map[string]float64{"full": 6}
		live.Codes = map[int]float64{201: 15, 503: 6}
		live.Unmet = 4
		live.Latency, live.Wait = metrics.Distribution{-27: 10}, metrics.Distribution{-28: 10}
		live.Get, live.Commit = metrics.Distribution{-9: 1}, metrics.Distribution{-8: 2}
		live.Writable, live.Embedded = errors.New("no space"), true
		live.Store = metrics.StoreStats{
			Levels: []metrics.StoreLevel{{Bytes: 1}, {Bytes: 2}}, WriteStalls: 6,
			ValueCacheHits: 9, ValueCacheMisses: 3, ValueCacheBytes: 4096,
		}
		require.True(t, h.sample())
		data, ok := strings.CutPrefix(string(h.frame()), "event: state\ndata: ")
		require.True(t, ok)
		require.Equal(t, len(data)-2, strings.Index(data, "\n\n"), "one event, whose data is one line")
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(data), &got))
		for key, want := range map[string]any{
			"strategy": "unbounded", "depth": 3.0, "capacity": nil, "workers": 4.0, "busy": 2.0, "pools": nil,
			"ready": "draining", "slo": 0.1, "objective": map[string]any{"set": "", "in_force": "100ms", "why": "a test says so"}, "codes": map[string]any{"201": 5.0, "503": 3.0},
			"answered": 20.0, "roomless": 2.0, "depths": []any{3.0, 3.0},
			"classes": []any{
				map[string]any{"name": "1", "good": 4.0, "late": 0.0, "unmet": 0.0, "failed": 0.0, "shed": 0.0, "time": 0.0},
				map[string]any{"name": "3", "good": 0.0, "late": 1.0, "unmet": 2.0, "failed": 0.0, "shed": 3.0, "time": 0.0},
			},
			"clients": []any{map[string]any{"name": "<b>a", "good": 0.0, "late": 0.0, "unmet": 0.0, "failed": 0.0, "shed": 3.0, "time": 0.5}},
		} {
			require.Equal(t, want, got[key], key)
		}
		require.Equal(t, 6.0, got["reasons"].(map[string]any)["full"])
		require.Equal(t, levelBad, got["verdict"].(map[string]any)["level"])
		point := got["point"].([]any)
		require.Len(t, point, len(columns))
		for i, want := range []any{2.0, "unbounded", 11.0, 4.0, 1.0, 0.0, 3.0} {
			require.Equal(t, want, point[i], columns[i])
		}
		require.InDelta(t, 0.0923, point[7], 0.001)
		require.Equal(t, 2.0, point[len(columns)-1], "412 is no error")
		store := got["store"].(map[string]any)
		require.Equal(t, "no space", store["unwritable"])
		require.Equal(t, []any{1.0, 2.0}, store["levels"])
		require.Equal(t, true, store["embedded"])
		require.Len(t, store["get"], 3)
		require.Nil(t, store["fsync"])
		require.Equal(t, true, store["stallsLately"])
		require.Equal(t, map[string]any{"hits": 9.0, "misses": 3.0, "bytes": 4096.0}, store["values"])
		slow := got["slowest"].([]any)[0].(map[string]any)
		require.Equal(t, "GET range", slow["method"])
		require.InDelta(t, 2.0, slow["age"], 1e-9)
		require.InDelta(t, 0.03, slow["took"], 1e-9)

		time.Sleep(time.Second)
		live.Store.ValueCacheHits, live.Store.ValueCacheMisses, live.Store.ValueCacheBytes = 0, 0, 0
		require.True(t, h.sample())
		require.Contains(t, string(h.frame()), `"values":null`, "there is no such cache")
	})
}

// The verdict is about the present strategy and objective alone, and not before there is
// enough to judge them by.
func TestHistory_JudgesWhatIsInForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live := metrics.Live{
			Objective: strategies.ObjectiveState{InForce: 100 * time.Millisecond}, Shed: map[string]float64{}, WouldShed: map[string]float64{}, Codes: map[int]float64{},
			Gauge: dispatch.Gauge{Strategy: "fifo", Capacity: 256, Workers: 8, Busy: 8, Depth: 256}, Latency: metrics.Distribution{}, Wait: metrics.Distribution{}, Left: metrics.Distribution{},
		}
		h := newHistory(&Options{
			Dispatcher: new(switcher), Ready: func() error { return nil },
			Live: func() (metrics.Live, bool) {
				l := live
				l.Latency, l.Wait, l.Left = maps.Clone(l.Latency), maps.Clone(l.Wait), maps.Clone(l.Left)
				l.Shed, l.Codes = maps.Clone(l.Shed), maps.Clone(l.Codes)
				return l, true
			},
			Slowest: func() ([]slowest.Request, int64) { return nil, 0 },
		}, time.Now())
		// seconds lets a service that does 2,000 a second have 3,000.
		seconds := func(n int, good, late float64, reason string) verdict {
			for range n {
				time.Sleep(time.Second)
				live.Submitted += 3000
				live.Run += 2000
				live.Good += good
				live.Late += late
				live.Shed[reason] += 1000
				live.Latency[-24] += 2000
				live.Wait[-24] += 2000
				require.True(t, h.sample())
			}
			_, data, _ := strings.Cut(string(h.frame()), "data: ")
			var f struct{ Verdict verdict }
			require.NoError(t, json.Unmarshal([]byte(data), &f))
			return f.Verdict
		}
		require.True(t, h.sample())
		require.Equal(t, "The service has just started: it is too early to judge.", seconds(4, 0, 2000, "full").Text)
		require.Contains(t, seconds(1, 0, 2000, "full").Text, "fifo makes everybody late")
		live.Gauge.Strategy = "auto"
		const changed = "The strategy or the objective has just been changed: it is too early to judge."
		require.Equal(t, changed, seconds(5, 2000, 0, "late").Text)
		require.Equal(t, "50% more arrives than 8 workers can do. auto turns 33% away and serves the others in time.", seconds(1, 2000, 0, "late").Text)
		live.Objective.Set = time.Second
		require.Equal(t, changed, seconds(5, 2000, 0, "late").Text)

		live.LateWrong += 40 // of 5,000 refusals, of which one in a hundred is served to see
		require.Contains(t, seconds(1, 2000, 0, "late").Text, "about 80% of these would have been in time")
		live.Objective.InForce = time.Second
		live.Codes[cutCode], live.Failed = 500, 500
		live.Left[-10] = 500
		require.Equal(t, verdict{
			levelBad, "3% of the clients leave after 403 ms (median), before the objective of 1.0 s.",
			"What is done for them is in vain. Set the objective below their patience: SPILLWAY_SLO of about 322 ms.", "",
		}, seconds(1, 2000, 0, "late"))
	})
}
