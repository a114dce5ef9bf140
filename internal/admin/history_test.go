package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// told is the answer of /history.
type told struct {
	Boot     int64
	Interval float64
	SLO      float64
	Verdict  verdict
	Columns  []string
	Points   [][]any
}

func (h *history) told(t *testing.T, target string) (answer told) {
	t.Helper()
	w := httptest.NewRecorder()
	h.serve(w, httptest.NewRequest(http.MethodGet, target, http.NoBody))
	require.Equal(t, 200, w.Code, w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	require.Less(t, w.Body.Len(), 160<<10, "compact")
	return answer
}

// A quarter of an hour is remembered, whoever looked, and no more.
func TestHistory_Remembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		live := metrics.Live{Latency: metrics.Distribution{}, Gauge: dispatch.Gauge{Strategy: "fifo", Capacity: 256}}
		d := new(switcher)
		require.NoError(t, d.objective.Set(70*time.Millisecond))
		o := &Options{Dispatcher: d, Live: func() (metrics.Live, bool) {
			n++
			l := live
			l.Submitted, l.Run, l.Good = float64(2*n), float64(2*n), float64(2*n)
			l.Latency = metrics.Distribution{-30: uint64(2 * n)}
			return l, true
		}, Ready: func() error { return nil }, Slowest: func() ([]slowest.Request, int64) { return nil, 0 }}
		feed, h := newFeed(), newHistory(o, time.Now())
		require.Empty(t, h.last(900))
		go watch(h, feed)
		defer func() {
			feed.close()
			synctest.Wait()
		}()
		time.Sleep(10*time.Second + time.Millisecond)
		answer := h.told(t, "/history")
		require.Equal(t, columns, answer.Columns)
		require.InDelta(t, 0.07, answer.SLO, 1e-12)
		require.Equal(t, levelGood, answer.Verdict.Level, answer.Verdict)
		require.Len(t, answer.Points, 10)
		for i, p := range answer.Points {
			require.Equal(t, []any{float64(i + 1), "fifo", 2.0, 2.0, 0.0, 0.0, 0.0}, p[:7])
		}
		time.Sleep(2000 * time.Second)
		answer = h.told(t, "/history")
		require.Len(t, answer.Points, historyPoints)
		require.InDelta(t, 2010, answer.Points[historyPoints-1][0], 0)
		require.InDelta(t, 1111, answer.Points[0][0], 0)
		require.Len(t, h.told(t, "/history?seconds=60").Points, 61)
		require.LessOrEqual(t, len(h.mu.quarters), 17)
		require.LessOrEqual(t, len(h.mu.recent), recentMoments+1)
	})
}

// Nonsense is refused, and said to be.
func TestHistory_Nonsense(t *testing.T) {
	t.Parallel()
	p := open(t, Options{})
	require.Equal(t, 200, p.do("GET", "/history", "").status)
	require.Equal(t, 200, p.do("GET", "/history?seconds=1", "").status)
	for query, want := range map[string]string{
		"seconds=0": "1 to 900", "seconds=901": "1 to 900", "seconds=-1": "1 to 900", "seconds=": "1 to 900", "seconds=1e2": "1 to 900",
		"seconds=5&seconds=6": "once", "minutes=5": "minutes", "seconds=%zz": "malformed", "<b>": "only seconds", "seconds=99999999999999999999": "1 to 900",
	} {
		requireProblem(t, p.do("GET", "/history?"+query, ""), 400, want)
	}
	requireProblem(t, p.do("POST", "/history", ""), 405)
}

func BenchmarkHistory_Sample(b *testing.B) {
	m := metrics.New(metrics.Options{})
	m.Watch(metrics.Sources{Gauge: func() dispatch.Gauge { return dispatch.Gauge{Strategy: "fifo"} }, Connections: func() int { return 1 }, Writable: func() error { return nil }, Dropped: func() uint64 { return 0 }})
	for i := range 100000 {
		m.Answered(fmt.Sprint("s", i%3), "GET", 200, served.OK, time.Duration(i*1000))
	}
	h := newHistory(&Options{Live: m.Live}, time.Now())
	for b.Loop() {
		h.sample()
	}
}
