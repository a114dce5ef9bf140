package admin

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/strategies"
)

const (
	// sampleInterval is the time between two points.
	sampleInterval = time.Second
	// historyPoints is how many are kept: a quarter of an hour.
	historyPoints = 900
	// recentMoments is how many moments lie in what is said of "the last seconds".
	recentMoments = 10
)

// figure is a number as JSON, with no more digits than anybody looks at.
type figure float64

func (f figure) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(f), 'g', 5, 64), nil
}

// moment is the state of the service at one time, in which totals count from the
// start of the process.
type moment struct {
	at float64 // seconds since then
	metrics.Live
	// roomless are the requests that were turned away before they were a task, for
	// want of memory for their bodies.
	roomless float64
	cpu      time.Duration
	classes  [metrics.Classes]metrics.Tally
	clients  map[string]metrics.Tally
}

// point is what happened in the second before it, as rates, and how things stood at
// its end. Times are in seconds.
type point struct {
	time                                        float64 // since the start of the process
	strategy                                    string
	arrivals, good, late, unmet, failed, shed   figure
	latency                                     []figure // p50, p90, p99 of what was served; nil for nothing
	depth, capacity, workers, busy, connections int
	cpu                                         figure // CPUs in use
	memory                                      uint64
	reasons                                     map[string]figure // of shed, those that are not 0
}

// columns are what is in the rows of points.
var columns = []string{
	"time", "strategy", "arrivals", "good", "late", "failed", "shed", "p50", "p90", "p99",
	"depth", "capacity", "workers", "busy", "connections", "cpu", "memory", "reasons", "unmet",
}

// row returns the point in the order of columns. What is not known is null.
func (p *point) row() []any {
	row := []any{math.Round(10*p.time) / 10, p.strategy, p.arrivals, p.good, p.late, p.failed, p.shed}
	for i := range 3 {
		if p.latency == nil {
			row = append(row, nil)
		} else {
			row = append(row, p.latency[i])
		}
	}
	return append(row, p.depth, bound(p.capacity), p.workers, p.busy, p.connections, p.cpu, p.memory, p.reasons, p.unmet)
}

// history watches the service once a second, whether or not anybody looks.
type history struct {
	o    *Options
	boot time.Time

	mu struct {
		sync.Mutex
		points []point  // a ring once it is full
		next   int      // where the next point goes then
		recent []moment // the last ones, oldest first
		// quarters are moments a minute apart, oldest first: the first is about as
		// old as the oldest point.
		quarters []moment
	}
}

func newHistory(o *Options, boot time.Time) *history { return &history{o: o, boot: boot} }

// sample adds a point. It reports false while the service is starting. It must not
// be called by two goroutines at once.
func (h *history) sample() bool {
	live, ok := h.o.Live()
	if !ok {
		return false
	}
	now := moment{at: time.Since(h.boot).Seconds(), Live: live, cpu: cpuTime()}
	if h.o.Callers != nil {
		now.classes, now.clients = h.o.Callers()
	}
	memory := memoryUsed()
	h.mu.Lock()
	defer h.mu.Unlock()
	// An answer is counted after its task is shed, so that the difference may be too
	// small, but never too large.
	for _, n := range live.Shed {
		now.roomless -= n
	}
	now.roomless += live.TurnedAway
	if len(h.mu.recent) > 0 {
		before := &h.mu.recent[len(h.mu.recent)-1]
		now.roomless = max(now.roomless, before.roomless)
		if now.at <= before.at {
			return true
		}
		h.add(pointOf(before, &now, memory))
	}
	now.roomless = max(now.roomless, 0)
	if len(h.mu.recent) > recentMoments {
		copy(h.mu.recent, h.mu.recent[1:])
		h.mu.recent = h.mu.recent[:recentMoments]
	}
	h.mu.recent = append(h.mu.recent, now)
	if n := len(h.mu.quarters); n == 0 || now.at-h.mu.quarters[n-1].at >= 60 {
		h.mu.quarters = append(h.mu.quarters, now)
		for now.at-h.mu.quarters[0].at > (historyPoints * sampleInterval).Seconds() {
			h.mu.quarters = h.mu.quarters[1:]
		}
		if h.o.ForgetCallers != nil {
			h.o.ForgetCallers()
		}
	}
	return true
}

func (h *history) add(p point) {
	if len(h.mu.points) < historyPoints {
		h.mu.points = append(h.mu.points, p)
		return
	}
	h.mu.points[h.mu.next] = p
	h.mu.next = (h.mu.next + 1) % historyPoints
}

// cutCode is that of an answer whose client had left.
const cutCode = 499

// period is what happened between two moments.
type period struct {
	seconds                         float64
	arrivals, ran                   float64 // tasks, and requests that did not become one
	good, late, unmet, failed, shed float64 // answers
	reasons                         map[string]float64
	roomless                        float64
	latency, wait, left             metrics.Distribution
	cut                             float64 // of failed, answers whose client had left
	wouldShed, lateWrong            float64 // tasks
	cpu                             float64 // CPUs in use
}

func (p *period) answered() float64 { return p.good + p.late + p.unmet + p.failed + p.shed }

func between(before, now *moment) period {
	p := period{
		seconds:  now.at - before.at,
		roomless: now.roomless - before.roomless,
		ran:      now.Run - before.Run,
		good:     now.Good - before.Good,
		late:     now.Late - before.Late,
		unmet:    now.Unmet - before.Unmet,
		failed:   max(0, now.Failed-before.Failed),
		latency:  now.Latency.Since(before.Latency),
		wait:     now.Wait.Since(before.Wait),
		left:     now.Left.Since(before.Left),
		cut:      now.Codes[cutCode] - before.Codes[cutCode],

		lateWrong: now.LateWrong - before.LateWrong,
		cpu:       share(max(0, (now.cpu-before.cpu).Seconds()), now.at-before.at),
		reasons:   make(map[string]float64),
	}
	p.arrivals = now.Submitted - before.Submitted + p.roomless
	for reason, n := range now.Shed {
		p.reasons[reason] = max(0, n-before.Shed[reason])
	}
	for reason, n := range now.WouldShed {
		p.wouldShed += max(0, n-before.WouldShed[reason])
	}
	p.reasons[strategies.ReasonFull.String()] += p.roomless
	for _, n := range p.reasons {
		p.shed += n
	}
	return p
}

func pointOf(before, now *moment, memory uint64) point {
	happened := between(before, now)
	rate := func(n float64) figure { return figure(max(0, n) / happened.seconds) }
	g := &now.Gauge
	p := point{
		time: now.at, strategy: g.Strategy,
		arrivals: rate(happened.arrivals), good: rate(happened.good), late: rate(happened.late), unmet: rate(happened.unmet), failed: rate(happened.failed), shed: rate(happened.shed),
		latency: quantiles(happened.latency),
		depth:   g.Depth, capacity: g.Capacity, workers: g.Workers, busy: g.Busy, connections: now.Connections,
		cpu: figure(happened.cpu), memory: memory,
	}
	for reason, n := range happened.reasons {
		if n > 0 {
			if p.reasons == nil {
				p.reasons = make(map[string]figure, 1)
			}
			p.reasons[reason] = rate(n)
		}
	}
	return p
}

// quantiles returns p50, p90 and p99; nil if there are none.
func quantiles(d metrics.Distribution) (figures []figure) {
	for _, q := range d.Quantiles(0.5, 0.9, 0.99) {
		figures = append(figures, figure(q))
	}
	return figures
}

// bound returns a capacity as JSON has it.
func bound(capacity int) *int {
	if capacity == strategies.Unbounded {
		return nil
	}
	return &capacity
}

// last returns the points of the last so many seconds, oldest first.
func (h *history) last(seconds int) []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	points := append(append([]point{}, h.mu.points[h.mu.next:]...), h.mu.points[:h.mu.next]...)
	for len(points) > 0 && points[0].time < points[len(points)-1].time-float64(seconds) {
		points = points[1:]
	}
	return points
}

// serve answers with the points, which the query may ask for fewer of.
func (h *history) serve(w http.ResponseWriter, r *http.Request) {
	seconds, err := wantedSeconds(r.URL.RawQuery)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	points := h.last(seconds)
	rows := make([][]any, len(points))
	for i := range points {
		rows[i] = points[i].row()
	}
	var now *verdict
	if f := h.state(); f != nil {
		now = &f.Verdict
	}
	answer, err := json.Marshal(struct {
		Boot     int64    `json:"boot"` // when the process started, in milliseconds of the epoch
		Interval float64  `json:"interval"`
		SLO      float64  `json:"slo"`
		Verdict  *verdict `json:"verdict"` // of now; null while the service is starting
		Columns  []string `json:"columns"`
		Points   [][]any  `json:"points"`
	}{h.boot.UnixMilli(), sampleInterval.Seconds(), h.o.Dispatcher.Objective().InForce().Seconds(), now, columns, rows})
	if err != nil {
		h.o.fail(w, "write the history", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// wantedSeconds reads the query: nothing, or seconds.
func wantedSeconds(query string) (int, error) {
	const most = int(historyPoints * sampleInterval / time.Second)
	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, fmt.Errorf("the query is malformed: %w", err)
	}
	for name, given := range values {
		if name != "seconds" {
			return 0, fmt.Errorf("there is no parameter %.40q, only seconds", name)
		}
		if n, err := strconv.Atoi(given[0]); err == nil && len(given) == 1 && n >= 1 && n <= most {
			return n, nil
		}
		return 0, fmt.Errorf("seconds is %.40q, want it once, a whole number from 1 to %d", given, most)
	}
	return most, nil
}
