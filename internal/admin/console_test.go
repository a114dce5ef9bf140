package admin

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
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
		require.Contains(t, string(greeting()), `"`+name+`"`)
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
	_, data, _ := strings.Cut(string(greeting()), "data: ")
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
	d := &switcher{status: dispatch.Status{Strategy: "fifo"}}
	p := open(t, Options{Dispatcher: d})
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://elsewhere.example"}} {
		requireProblem(t, p.do("PUT", "/strategy", `{"strategy":"lifo"}`, header...), 403, "origins")
	}
	require.Equal(t, "fifo", d.status.Strategy)
	require.Empty(t, p.do("HEAD", "/console/events", "", "Origin", "https://elsewhere.example").header.Get("Access-Control-Allow-Origin"))
}

func TestOptions_Frame(t *testing.T) {
	t.Parallel()
	o := Options{
		Ready: func() error { return errors.New("draining") },
		Live: func() (metrics.Live, bool) {
			return metrics.Live{
				SLO: 0.1, Submitted: 7, Run: 5, Good: 4, Failed: 3,
				Shed: map[string]float64{"full": 2}, TurnedAway: 3,
				Codes:    map[int]float64{201: 5, 503: 2},
				Latency:  metrics.Distribution{-27: 5},
				Gauge:    dispatch.Gauge{Strategy: "unbounded", Depth: 3, Capacity: strategies.Unbounded, Workers: 4, Busy: 2},
				Get:      metrics.Distribution{-9: 1},
				Commit:   metrics.Distribution{-8: 2},
				Writable: errors.New("no space"),
				Embedded: true,
				Store:    metrics.StoreStats{Levels: []metrics.StoreLevel{{Bytes: 1}, {Bytes: 2}}, WriteStalls: 6},
			}, true
		},
		Slowest: func() ([]slowest.Request, int64) {
			return []slowest.Request{{
				Answered: int64(time.Second), Strategy: "fifo", Method: "GET", Range: true, Code: 200, KeyBytes: 3,
				Took: 30 * time.Millisecond, Waited: 10 * time.Millisecond, Ran: 20 * time.Millisecond,
			}}, int64(3 * time.Second)
		},
	}
	data, ok := strings.CutPrefix(string(o.frame(time.Now())), "event: state\ndata: ")
	require.True(t, ok)
	require.Equal(t, len(data)-2, strings.Index(data, "\n\n"), "one event, whose data is one line")
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(data), &got))
	for key, want := range map[string]any{
		"strategy": "unbounded", "depth": 3.0, "capacity": nil, "workers": 4.0, "busy": 2.0,
		"ready": "draining", "slo": 0.1,
		"submitted": 7.0, "run": 5.0, "good": 4.0, "failed": 3.0, "shed": map[string]any{"full": 2.0}, "turnedAway": 3.0,
		"codes": map[string]any{"201": 5.0, "503": 2.0}, "latency": map[string]any{"-27": 5.0},
	} {
		require.Equal(t, want, got[key], key)
	}
	store := got["store"].(map[string]any)
	require.Equal(t, "no space", store["unwritable"])
	require.Equal(t, []any{1.0, 2.0}, store["levels"])
	require.Equal(t, true, store["embedded"])
	require.Equal(t, map[string]any{"-9": 1.0}, store["get"])
	require.Equal(t, map[string]any{"-8": 2.0}, store["commit"])
	slow := got["slowest"].([]any)[0].(map[string]any)
	require.Equal(t, "GET range", slow["method"])
	require.InDelta(t, 2.0, slow["age"], 1e-9)
	require.InDelta(t, 0.03, slow["took"], 1e-9)

	o.Live = func() (metrics.Live, bool) { return metrics.Live{}, false }
	require.Nil(t, o.frame(time.Now()), "the service is starting")
}
