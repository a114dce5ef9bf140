package admin

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/tuning"
	"github.com/spillway-go/spillway/strategies"
)

// assets are the parts of the console.
//
//go:embed console
var assets embed.FS

// consoleScripts are put into the page in this order.
var consoleScripts = []string{"format.js", "charts.js", "picture.js", "console.js"}

// The console is one document that holds its style and its script, so that a
// browser needs nothing else, also where it may load nothing else: without the
// admin token this page, which asks for it, is the body of a 401. The policy
// lets nothing run but them, by their hashes, and lets them talk to this plane
// alone.
var consolePage, consolePolicy = func() ([]byte, string) {
	part := func(name string) string {
		content, err := assets.ReadFile("console/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		return string(content)
	}
	style := part("console.css")
	var script strings.Builder
	script.WriteString("'use strict';\n")
	for _, name := range consoleScripts {
		script.WriteString(part(name))
	}
	page := strings.NewReplacer("{{style}}", style, "{{script}}", script.String()).Replace(part("index.html"))
	hash := func(content string) string {
		sum := sha256.Sum256([]byte(content))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return []byte(page), "default-src 'none'; connect-src 'self'; img-src data:; style-src " + hash(style) +
		"; script-src " + hash(script.String()) + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// writeConsole answers with the console.
func writeConsole(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", consolePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_, _ = w.Write(consolePage)
}

// wantsPage reports whether it is a browser that asks for the console.
func wantsPage(r *http.Request) bool {
	return r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// greeting is the event that a console gets first: what does not change.
func (o *Options) greeting() []byte {
	type choice struct {
		Name        string `json:"name"`
		Summary     string `json:"summary"`
		Recommended bool   `json:"recommended"`
	}
	var choices []choice
	for _, name := range strategies.Names() {
		if spec, err := strategies.Lookup(name); err == nil {
			choices = append(choices, choice{spec.Name, spec.Summary, spec.Name == recommended})
		}
	}
	reasons := make(map[string]string)
	for _, r := range strategies.Reasons() {
		reasons[r.String()] = explanations[r]
	}
	return event("about", map[string]any{
		"strategies": choices, "reasons": reasons, "columns": columns,
		"version": o.Version, "commit": o.Commit, "go": runtime.Version(), "cpus": runtime.GOMAXPROCS(0),
	})
}

// frame is the state of the service, as the console gets it. Times are in
// seconds, totals count from the start of the process. What is recent is of the
// last ten seconds.
type frame struct {
	Boot    int64   `json:"boot"` // another one: the process is another one
	Time    float64 `json:"time"` // since then
	Point   []any   `json:"point"`
	Verdict verdict `json:"verdict"`

	Strategy string      `json:"strategy"`
	Workers  int         `json:"workers"`
	Learned  *learned    `json:"learned"` // of workers, null if their number is given
	Busy     int         `json:"busy"`
	Depth    int         `json:"depth"`
	Capacity *int        `json:"capacity"` // null for no bound
	Limit    int         `json:"limit"`    // tasks that the strategy lets wait, 0 for none
	Pace     float64     `json:"pace"`     // between two tasks begun, as it has measured, 0 for not
	Pools    []poolFrame `json:"pools"`    // of reads and writes, if they are split

	Ready       string    `json:"ready"` // why not, empty if it is
	Connections int       `json:"connections"`
	SLO         float64   `json:"slo"` // in force, 0 for none
	Objective   objective `json:"objective"`

	Answered float64            `json:"answered"` // recent
	Reasons  map[string]float64 `json:"reasons"`  // recent, answers that were turned away
	Roomless float64            `json:"roomless"` // recent, of these for want of memory
	// WouldShed are recent tasks that would have been shed but for the mode observe.
	WouldShed map[string]float64 `json:"wouldShed"`
	Mode      string             `json:"mode"`
	Depths    [2]int             `json:"depths"` // recent, the least and the most
	Codes     map[int]figure     `json:"codes"`  // a second
	// p50, p90, p99; null for nothing.
	Percentiles []percentiles `json:"percentiles"`

	Classes []callerFrame `json:"classes"` // recent
	Clients []callerFrame `json:"clients"` // recent

	Proxy     bool            `json:"proxy"` // without a store
	Upstreams []upstreamFrame `json:"upstreams"`
	Store     storeFrame      `json:"store"`
	Slowest   []slowFrame     `json:"slowest"`
}

type upstreamFrame struct {
	Name   string  `json:"name"`
	Up     bool    `json:"up"`
	Busy   int     `json:"busy"`
	Limit  int     `json:"limit"`
	Good   figure  `json:"good"`   // answers a second
	Failed figure  `json:"failed"` // a second
	Unwell float64 `json:"unwell"` // for how long, 0 if it is well
}

type poolFrame struct {
	Name     string `json:"name"`
	Depth    int    `json:"depth"`
	Capacity *int   `json:"capacity"`
	Workers  int    `json:"workers"`
	Busy     int    `json:"busy"`
}

type percentiles struct {
	Of     string   `json:"of"`
	Recent []figure `json:"recent"`
	All    []figure `json:"all"` // of the last 15 minutes
}

// callerFrame is what became of requests, a second.
type callerFrame struct {
	Name   string `json:"name"`
	Good   figure `json:"good"`
	Late   figure `json:"late"`
	Unmet  figure `json:"unmet"`
	Failed figure `json:"failed"`
	Shed   figure `json:"shed"`
	Time   figure `json:"time"` // of workers, or places, in seconds
}

type storeFrame struct {
	Unwritable string   `json:"unwritable"` // why, empty if it can write
	Get        []figure `json:"get"`        // recent p50, p90, p99; null for none
	Commit     []figure `json:"commit"`
	// The rest is of an embedded store alone.
	Embedded          bool     `json:"embedded"`
	Fsync             []figure `json:"fsync"`
	Compactions       uint64   `json:"compactions"`
	Debt              uint64   `json:"debt"`
	Stalls            uint64   `json:"stalls"`
	StallsLately      bool     `json:"stallsLately"` // in the last 15 minutes
	ReadAmplification int      `json:"readAmplification"`
	CacheHits         uint64   `json:"cacheHits"` // recent
	CacheMisses       uint64   `json:"cacheMisses"`
	// Values is of the cache of values, null where there is none, or nothing has come to it yet.
	Values    *valuesFrame `json:"values"`
	Disk      uint64       `json:"disk"`
	Memtables uint64       `json:"memtables"`
	Levels    []uint64     `json:"levels"` // bytes
}

type valuesFrame struct {
	Hits   uint64 `json:"hits"` // recent
	Misses uint64 `json:"misses"`
	Bytes  uint64 `json:"bytes"`
}

type slowFrame struct {
	Age      float64 `json:"age"`
	Strategy string  `json:"strategy"`
	Method   string  `json:"method"`
	Route    string  `json:"route"` // of the proxy, empty if none has a name
	Code     int     `json:"code"`
	Shed     string  `json:"shed"`
	Key      int     `json:"key"`   // bytes
	Value    int     `json:"value"` // bytes
	Took     float64 `json:"took"`
	Received float64 `json:"received"`
	Waited   float64 `json:"waited"`
	Ran      float64 `json:"ran"`
}

// frame returns the present state as an event, and nothing while there is none.
func (h *history) frame() []byte {
	f := h.state()
	if f == nil {
		return nil
	}
	return event("state", *f)
}

// state returns what the console shows; nil while there is nothing.
func (h *history) state() *frame {
	h.mu.Lock()
	recent := slices.Clone(h.mu.recent)
	var last []any
	if n := len(h.mu.points); n > 0 {
		last = h.mu.points[(h.mu.next+n-1)%n].row()
	}
	var oldest moment
	if len(h.mu.quarters) > 0 {
		oldest = h.mu.quarters[0]
	}
	h.mu.Unlock()
	if len(recent) == 0 {
		return nil
	}
	o, now, before := h.o, &recent[len(recent)-1], &recent[0]
	lately, all := between(before, now), between(&oldest, now)
	s, g := now.Store, now.Gauge
	f := frame{
		Boot: h.boot.UnixMilli(), Time: now.at, Point: last, Connections: now.Connections, SLO: now.Objective.InForce.Seconds(), Objective: objectiveOf(now.Objective), Proxy: now.Proxy,
		Strategy: g.Strategy, Workers: g.Workers, Learned: learnedOf(g.Learned), Busy: g.Busy, Depth: g.Depth, Capacity: bound(g.Capacity),
		Limit: g.Limit, Pace: g.Pace.Seconds(),
		Answered: lately.answered(), Reasons: lately.reasons, Roomless: lately.roomless, WouldShed: make(map[string]float64), Mode: Mode(o.Dispatcher.Gauge()),
		Depths: [2]int{g.Depth, g.Depth}, Codes: make(map[int]figure),
		Percentiles: []percentiles{
			{"latency", quantiles(lately.latency), quantiles(all.latency)},
			{"waiting", quantiles(lately.wait), quantiles(all.wait)},
		},
		Store: storeFrame{
			Get:               quantiles(now.Get.Since(before.Get)),
			Commit:            quantiles(now.Commit.Since(before.Commit)),
			Embedded:          now.Embedded,
			Fsync:             quantiles(now.Fsync.Since(before.Fsync)),
			Compactions:       s.Compactions,
			Debt:              s.CompactionDebtBytes,
			Stalls:            s.WriteStalls,
			StallsLately:      s.WriteStalls > oldest.Store.WriteStalls,
			ReadAmplification: s.ReadAmplification,
			CacheHits:         s.CacheHits - before.Store.CacheHits,
			CacheMisses:       s.CacheMisses - before.Store.CacheMisses,
			Disk:              s.DiskBytes,
			Memtables:         s.MemtableBytes,
		},
		Upstreams: upstreamsOf(before, now),
		Slowest:   []slowFrame{},
	}
	for i := range recent {
		depth := recent[i].Gauge.Depth
		f.Depths = [2]int{min(f.Depths[0], depth), max(f.Depths[1], depth)}
	}
	if n := len(recent); n > 1 {
		second := &recent[n-2]
		for code, total := range now.Codes {
			f.Codes[code] = figure((total - second.Codes[code]) / (now.at - second.at))
		}
		f.Classes, f.Clients = callersOf(before, now, &lately)
	}
	for i, p := range o.Dispatcher.Pools() {
		f.Pools = append(f.Pools, poolFrame{[]string{"reads", "writes"}[i], p.Depth, bound(p.Capacity), p.Workers, p.Busy})
	}
	if err := o.Ready(); err != nil {
		f.Ready = err.Error()
	}
	if now.Writable != nil {
		f.Store.Unwritable = now.Writable.Error()
	}
	if s.ValueCacheHits+s.ValueCacheMisses+s.ValueCacheBytes > 0 {
		f.Store.Values = &valuesFrame{s.ValueCacheHits - before.Store.ValueCacheHits, s.ValueCacheMisses - before.Store.ValueCacheMisses, s.ValueCacheBytes}
	}
	for _, l := range s.Levels {
		f.Store.Levels = append(f.Store.Levels, l.Bytes)
	}
	for reason, n := range now.WouldShed {
		f.WouldShed[reason] = n - before.WouldShed[reason]
	}
	since := begun(recent)
	judged := between(since, now)
	situation := situationOf(&f, &judged, since, o.Dispatcher.Objective().Usual(), since != before)
	if n := len(recent); n > 1 {
		last := between(&recent[n-2], now)
		situation.Fallen = fallen(&last, &judged, f.Depth)
	}
	f.Verdict = judge(situation)
	requests, clock := o.Slowest()
	for _, q := range requests {
		slow := slowFrame{
			Age: time.Duration(clock - q.Answered).Seconds(), Strategy: q.Strategy, Method: q.Method, Route: q.Route, Code: q.Code, Shed: q.Shed,
			Key: q.KeyBytes, Value: q.ValueBytes,
			Took: q.Took.Seconds(), Received: q.Received.Seconds(), Waited: q.Waited.Seconds(), Ran: q.Ran.Seconds(),
		}
		if q.Range {
			slow.Method += " range"
		}
		f.Slowest = append(f.Slowest, slow)
	}
	return &f
}

// upstreamsOf tells of each upstream what happened between two moments.
func upstreamsOf(before, now *moment) (frames []upstreamFrame) {
	seconds := now.at - before.at
	for _, u := range now.Upstreams {
		var was metrics.Upstream // of a new one
		if i := slices.IndexFunc(before.Upstreams, func(b metrics.Upstream) bool { return b.Name == u.Name }); i >= 0 {
			was = before.Upstreams[i]
		}
		rate := func(now, was uint64) figure { return figure(share(max(0, float64(now)-float64(was)), seconds)) }
		frames = append(frames, upstreamFrame{
			Name: u.Name, Up: u.Up, Busy: u.InFlight, Limit: u.Limit, Good: rate(u.Answered, was.Answered), Failed: rate(u.Failed, was.Failed),
			Unwell: u.Unwell.Seconds(),
		})
	}
	return frames
}

// begun returns the first of the recent moments from which on the present strategy was
// active, and the present objective set: what was before says nothing of them.
func begun(recent []moment) *moment {
	now, first := &recent[len(recent)-1], len(recent)-1
	for first > 0 && recent[first-1].Gauge.Strategy == now.Gauge.Strategy && recent[first-1].Objective.Set == now.Objective.Set {
		first--
	}
	return &recent[first]
}

// situationOf returns what the verdict is given on: what happened in a period from a moment
// on. With switched that is when the strategy or the objective was changed.
func situationOf(f *frame, lately *period, before *moment, usual time.Duration, switched bool) *situation {
	rate := func(n float64) float64 { return share(max(0, n), lately.seconds) }
	s := &situation{
		Strategy: f.Strategy, NotReady: f.Ready, ReadOnly: f.Store.Unwritable,
		Settling: lately.seconds < settling.Seconds(), Switched: switched,
		Workers: f.Workers, Learned: f.Learned != nil, Busy: f.Busy, Depth: f.Depth, Growth: share(float64(f.Depth-before.Gauge.Depth), lately.seconds),
		Capacity: strategies.Unbounded, Split: len(f.Pools) > 0,
		Arrivals: rate(lately.arrivals), Ran: rate(lately.ran),
		Good: rate(lately.good), Late: rate(lately.late), Unmet: rate(lately.unmet), Failed: rate(lately.failed), Shed: rate(lately.shed),
		Reasons: make(map[string]float64), Roomless: rate(lately.roomless),
		Cut: rate(lately.cut), Left: rate(float64(lately.left.Count())), Patience: median(lately.left),
		SLO: f.SLO, Usual: usual.Seconds(), Wait: median(lately.wait), Latency: median(lately.latency), CPU: lately.cpu / float64(runtime.GOMAXPROCS(0)),
		Observe: f.Mode == tuning.Observe, WouldShed: rate(lately.wouldShed), Proxy: f.Proxy,
	}
	if late := lately.reasons[strategies.ReasonLate.String()]; lately.lateWrong >= fewWrong && late > 0 {
		s.Wrong = min(1, 100*lately.lateWrong/late)
	}
	if f.Learned != nil {
		s.Stuck, s.Paused = f.Learned.stuck, f.Learned.paused
	}
	if f.Capacity != nil {
		s.Capacity = *f.Capacity
	}
	for reason, n := range lately.reasons {
		s.Reasons[reason] = rate(n)
	}
	return s
}

// median returns that of durations in seconds, 0 if there are none.
func median(d metrics.Distribution) float64 {
	if q := d.Quantiles(0.5); q != nil {
		return q[0]
	}
	return 0
}

// maxCallers is how many clients a console shows.
const maxCallers = 12

// callersOf returns what became of the requests of each class and of the busiest
// clients, nil where none has said anything of itself.
func callersOf(before, now *moment, lately *period) (classes, clients []callerFrame) {
	frameOf := func(name string, before, now metrics.Tally) callerFrame {
		rate := func(before, now uint64) figure { return figure(float64(now-min(before, now)) / lately.seconds) }
		return callerFrame{name, rate(before.Good, now.Good), rate(before.Late, now.Late), rate(before.Unmet, now.Unmet), rate(before.Failed, now.Failed), rate(before.Shed, now.Shed), rate(before.Time, now.Time) / 1e9}
	}
	rest := callerFrame{
		Name: strconv.Itoa(metrics.OrdinaryClass),
		Good: figure(lately.good / lately.seconds), Late: figure(lately.late / lately.seconds), Unmet: figure(lately.unmet / lately.seconds),
		Failed: figure(lately.failed / lately.seconds), Shed: figure(lately.shed / lately.seconds),
	}
	for i := range now.classes {
		c := frameOf(strconv.Itoa(i), before.classes[i], now.classes[i])
		if c.sum() > 0 {
			classes = append(classes, c)
		}
		rest.Good, rest.Late, rest.Unmet = max(0, rest.Good-c.Good), max(0, rest.Late-c.Late), max(0, rest.Unmet-c.Unmet)
		rest.Failed, rest.Shed = max(0, rest.Failed-c.Failed), max(0, rest.Shed-c.Shed)
	}
	if len(classes) > 0 && rest.sum() > 0 {
		classes = append(classes, rest)
		slices.SortFunc(classes, func(a, b callerFrame) int { return cmp.Compare(a.Name, b.Name) })
	}
	for name, tally := range now.clients {
		if c := frameOf(name, before.clients[name], tally); c.sum() > 0 {
			clients = append(clients, c)
		}
	}
	slices.SortFunc(clients, func(a, b callerFrame) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.sum(), a.sum()), cmp.Compare(a.Name, b.Name))
	})
	return classes, clients[:min(len(clients), maxCallers)]
}

func (c *callerFrame) sum() figure { return c.Good + c.Late + c.Unmet + c.Failed + c.Shed }

// event returns v as a server-sent event.
func event(name string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings
	}
	return append(append([]byte("event: "+name+"\ndata: "), data...), "\n\n"...)
}
