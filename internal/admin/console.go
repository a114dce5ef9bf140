package admin

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/metrics"
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
func greeting() []byte {
	type choice struct {
		Name    string `json:"name"`
		Summary string `json:"summary"`
	}
	var choices []choice
	for _, name := range strategies.Names() {
		if spec, err := strategies.Lookup(name); err == nil {
			choices = append(choices, choice{spec.Name, spec.Summary})
		}
	}
	reasons := make(map[string]string)
	for _, r := range strategies.Reasons() {
		reasons[r.String()] = explanations[r]
	}
	return event("about", map[string]any{"strategies": choices, "reasons": reasons})
}

// frame is the state of the service, as the console gets it. Times are in
// seconds, totals count from the start of the process.
type frame struct {
	Boot int64   `json:"boot"` // another one: the process is another one
	Time float64 `json:"time"` // since then

	Strategy string  `json:"strategy"`
	Workers  int     `json:"workers"`
	Busy     int     `json:"busy"`
	Depth    int     `json:"depth"`
	Capacity *int    `json:"capacity"` // null for no bound
	Limit    int     `json:"limit"`    // tasks that the strategy lets wait, 0 for none
	Pace     float64 `json:"pace"`     // between two tasks begun, as it has measured, 0 for not

	Ready       string  `json:"ready"` // why not, empty if it is
	Connections int     `json:"connections"`
	SLO         float64 `json:"slo"`

	Submitted float64            `json:"submitted"`
	Run       float64            `json:"run"`
	Good      float64            `json:"good"`
	Failed    float64            `json:"failed"`
	Shed      map[string]float64 `json:"shed"`
	Turned    float64            `json:"turnedAway"`
	Codes     map[int]float64    `json:"codes"`
	// By metrics.Distribution's keys.
	Latency metrics.Distribution `json:"latency"`
	Wait    metrics.Distribution `json:"wait"`

	Store   storeFrame  `json:"store"`
	Slowest []slowFrame `json:"slowest"`
}

type storeFrame struct {
	Unwritable string               `json:"unwritable"` // why, empty if it can write
	Get        metrics.Distribution `json:"get"`
	Commit     metrics.Distribution `json:"commit"`
	// The rest is of an embedded store alone.
	Embedded          bool                 `json:"embedded"`
	Fsync             metrics.Distribution `json:"fsync"`
	Compactions       uint64               `json:"compactions"`
	Debt              uint64               `json:"debt"`
	Stalls            uint64               `json:"stalls"`
	ReadAmplification int                  `json:"readAmplification"`
	CacheHits         uint64               `json:"cacheHits"`
	CacheMisses       uint64               `json:"cacheMisses"`
	Disk              uint64               `json:"disk"`
	Memtables         uint64               `json:"memtables"`
	Levels            []uint64             `json:"levels"` // bytes
}

type slowFrame struct {
	Age      float64 `json:"age"`
	Strategy string  `json:"strategy"`
	Method   string  `json:"method"`
	Code     int     `json:"code"`
	Shed     string  `json:"shed"`
	Key      int     `json:"key"`   // bytes
	Value    int     `json:"value"` // bytes
	Took     float64 `json:"took"`
	Received float64 `json:"received"`
	Waited   float64 `json:"waited"`
	Ran      float64 `json:"ran"`
}

// frame returns the present state as an event, or nil while there is none.
func (o *Options) frame(boot time.Time) []byte {
	live, ok := o.Live()
	if !ok {
		return nil
	}
	s := live.Store
	f := frame{
		Boot:        boot.UnixMilli(),
		Time:        time.Since(boot).Seconds(),
		Connections: live.Connections,
		SLO:         live.SLO,
		Submitted:   live.Submitted,
		Run:         live.Run,
		Good:        live.Good,
		Failed:      live.Failed,
		Shed:        live.Shed,
		Turned:      live.TurnedAway,
		Codes:       live.Codes,
		Latency:     live.Latency,
		Wait:        live.Wait,
		Store: storeFrame{
			Get:               live.Get,
			Commit:            live.Commit,
			Embedded:          live.Embedded,
			Fsync:             live.Fsync,
			Compactions:       s.Compactions,
			Debt:              s.CompactionDebtBytes,
			Stalls:            s.WriteStalls,
			ReadAmplification: s.ReadAmplification,
			CacheHits:         s.CacheHits,
			CacheMisses:       s.CacheMisses,
			Disk:              s.DiskBytes,
			Memtables:         s.MemtableBytes,
		},
		Slowest: []slowFrame{},
	}
	g := live.Gauge
	f.Strategy, f.Workers, f.Busy, f.Depth = g.Strategy, g.Workers, g.Busy, g.Depth
	f.Limit, f.Pace = g.Limit, g.Pace.Seconds()
	if g.Capacity != strategies.Unbounded {
		f.Capacity = &g.Capacity
	}
	if err := o.Ready(); err != nil {
		f.Ready = err.Error()
	}
	if live.Writable != nil {
		f.Store.Unwritable = live.Writable.Error()
	}
	for _, l := range s.Levels {
		f.Store.Levels = append(f.Store.Levels, l.Bytes)
	}
	requests, now := o.Slowest()
	for _, q := range requests {
		slow := slowFrame{
			Age: time.Duration(now - q.Answered).Seconds(), Strategy: q.Strategy, Method: q.Method, Code: q.Code, Shed: q.Shed,
			Key: q.KeyBytes, Value: q.ValueBytes,
			Took: q.Took.Seconds(), Received: q.Received.Seconds(), Waited: q.Waited.Seconds(), Ran: q.Ran.Seconds(),
		}
		if q.Range {
			slow.Method += " range"
		}
		f.Slowest = append(f.Slowest, slow)
	}
	return event("state", f)
}

// event returns v as a server-sent event.
func event(name string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings
	}
	return append(append([]byte("event: "+name+"\ndata: "), data...), "\n\n"...)
}
