package report

// Results as the load lab writes them, made without running anything. Their figures come from a
// rough model of queues at their limits; nothing is to be learned from them but how they look.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/pprof/profile"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

// repetitions is how many runs each combination of a comparison has.
const repetitions = 4

var began = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// sender is the generator's machine.
var sender = machine.Machine{CPU: "Example 9000 at 3.0 GHz", CPUs: 2, Memory: 8 << 30, Kernel: "Linux 6.1.0", Go: "go1.26.0"}

// capacity is what the service of the model serves a second.
const capacity = 30_000

// writeMixes writes a comparison of strategies under two closed loops into a folder.
func writeMixes(dir string) error {
	return writeSample(dir, scenario.Scenario{
		Name: "pool-or-not", Title: "A pool of workers, or none?",
		Question:    "Does a pool of workers behind a queue serve more than connections that do the work themselves?",
		Expectation: "A pool served up to 18% more PUT and 13% more GET requests than none.",
	}, []string{"sync", "unbounded", "fifo", "lifo"}, []string{"max"}, []string{"put=100", "get=100"})
}

// writeSample makes a comparison of the product of its arguments.
func writeSample(dir string, s scenario.Scenario, strategies, rates, mixes []string) error {
	s.Duration, s.Warmup, s.Repetitions, s.Seed = 10*time.Second, 2*time.Second, repetitions, 1
	s.SLO, s.Timeout = 100*time.Millisecond, 10*time.Second
	c := &lab.Comparison{
		Machine: sender,
		Command: "loadtest compare " + s.Name + ".yaml --dir reports/" + s.Name,
		Version: "spillway v0.3.0 (1a2b3c4)", Started: began, Finished: began.Add(25 * time.Minute),
		Capacity: map[string]float64{},
	}
	if err := os.MkdirAll(filepath.Join(dir, "runs"), 0o755); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, mix := range mixes {
		for _, rate := range rates {
			for _, strategy := range strategies {
				combination := scenario.Combination{Strategy: strategy, Capacity: 256, Mix: mix, Rate: rate}
				s.Combinations = append(s.Combinations, combination)
				load := mix + ", 64 connections"
				g := lab.Group{
					Combination: combination, Label: strategy + ", " + mix + ", " + rate,
					Workload: load + ", " + rate, Load: load,
				}
				times := 1.0
				if _, err := fmt.Sscanf(rate, "%gx", &times); err == nil {
					c.Capacity[load] = capacity
				}
				var results []*result.Result
				for i := range repetitions {
					r := model{strategy, times, rate == "max", 1 + 0.02*random.NormFloat64()}.run(random)
					if i > 0 {
						r.Profiles = nil // one is enough to be drawn
					}
					name := fmt.Sprintf("runs/%d-%d.json", len(c.Groups), i)
					if err := r.Save(filepath.Join(dir, name)); err != nil {
						return err
					}
					g.Runs = append(g.Runs, name)
					results = append(results, r)
				}
				g.Metrics = lab.Summarize(results)
				c.Groups = append(c.Groups, g)
			}
		}
	}
	c.Scenario = s
	content, err := json.MarshalIndent(c, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "comparison.json"), content, 0o644)
}

// writeRun writes one result, with its profiles beside it.
func writeRun(path string) error {
	r := model{"fifo", 1.3, false, 1}.run(rand.New(rand.NewPCG(3, 4)))
	r.Command = "loadtest run --rate 39000 --admin http://127.0.0.1:6060"
	r.Errors = map[result.ErrorKind]int64{result.ErrorTimeout: 12}
	return r.Save(path)
}

// writeSaturation writes the result of a search for the breaking point.
func writeSaturation(path string) error {
	s := &lab.Saturation{
		Command: "loadtest saturate", URL: "http://127.0.0.1:8080", Machine: sender, Started: began, Seconds: 74, Share: 0.99, SLOMillis: 100,
		Strategy: "fifo", Workers: 2, BreakingPointRPS: 29_400, Low: 29_400, High: 30_300, Limit: lab.LimitServer,
	}
	random := rand.New(rand.NewPCG(5, 6))
	for i, rate := range []float64{8000, 16_000, 32_000, 24_000, 28_000, 30_300, 29_400, 30_300, 28_000, 29_400, 29_400, 30_300} {
		r := model{"fifo", rate / capacity, false, 1 + 0.02*random.NormFloat64()}.run(random)
		share := r.GoodputRPS / r.OfferedRPS
		s.Steps = append(s.Steps, lab.Step{
			Rate: rate, OfferedRPS: r.OfferedRPS, CompletedRPS: r.CompletedRPS, GoodputRPS: r.GoodputRPS,
			GoodShare: share, Sustained: share >= 0.99, GeneratorLate: i == 7, Latency: r.Latency,
		})
	}
	return result.SaveJSON(path, s)
}

// model is a service with one strategy at a multiple of its capacity.
type model struct {
	strategy string
	times    float64
	closed   bool
	luck     float64
}

// run makes up what a run would measure.
func (m model) run(random *rand.Rand) *result.Result {
	const seconds, requests = 10, 20_000 // the histograms hold a sample
	limit := capacity * m.luck
	cost := 1e6 / capacity
	switch m.strategy {
	case "lifo":
		limit *= 1.04
	case "sync":
		limit, cost = limit*0.9, cost*0.93
	}
	offered := m.times * capacity
	if m.closed {
		offered = limit
	}
	served := min(offered, limit)
	over := max(0, offered-served)
	all, ok := hdrhistogram.New(1, 7_200_000_000, 3), hdrhistogram.New(1, 7_200_000_000, 3)
	good := 0
	wait := 0.3 + 0.4*min(m.times, 0.98)/(1.02-min(m.times, 0.98)) // ms
	if over > 0 {
		wait = map[string]float64{"fifo": 90, "lifo": 3, "drop-oldest": 45, "unbounded": 4000, "sync": 30}[m.strategy] * (1 + 0.1*(m.times-1))
	}
	if m.closed {
		wait = 2
	}
	for range requests {
		ms := 0.15 + wait*(0.4+random.ExpFloat64()*0.35)
		if random.Float64() < 0.002 {
			ms += 20 * random.ExpFloat64()
		}
		if random.Float64() < over/offered && m.strategy != "unbounded" {
			_ = all.RecordValue(int64(1e3*ms/3) + 80)
			continue
		}
		_, _ = all.RecordValue(int64(1e3*ms)+80), ok.RecordValue(int64(1e3*ms)+80)
		if ms <= 100 {
			good++
		}
	}
	share := float64(good) / requests
	r := &result.Result{
		URL: "http://127.0.0.1:8080", Started: began, Seconds: seconds, Seed: 1, TargetRPS: offered, OfferedRPS: offered,
		CompletedRPS: offered, ServedRPS: offered, GoodputRPS: share * offered, SLOMillis: 100, Requests: int64(offered * seconds),
		Operations: map[string]int64{"put": int64(offered * seconds / 2), "get": int64(offered * seconds / 2)},
		Status:     map[string]int64{"200": int64(served * seconds)}, Shed: map[string]int64{},
		Latency: sampled(all), ServedLatency: sampled(ok), UncorrectedLatency: sampled(ok),
		TimelineStep: 0.5, Machine: &sender, LatencyHDR: encode(all), ServedHDR: encode(ok), ClientCPUMicros: 7.5, Strategy: m.strategy, Workers: 2,
	}
	if m.closed {
		r.TargetRPS = 0
	}
	if over > 0 && m.strategy != "unbounded" {
		r.Status["503"], r.Shed["full"] = int64(over*seconds), int64(over*seconds)
	}
	for i := range seconds * 2 {
		noise := 1 + 0.05*random.NormFloat64()
		r.Timeline = append(r.Timeline, result.Interval{
			Offered: int64(offered / 2), Completed: int64(offered / 2 * noise), Good: int64(share * offered / 2 * noise), Shed: int64(over / 2 * noise),
			P50: r.Latency.P50 * noise, P99: r.Latency.P99 * (0.8 + 0.025*float64(i)) * noise, Max: r.Latency.Max * noise,
		})
	}
	cost *= m.luck
	whole := 1.12 * cost // of which the rest is not sampled
	r.ServerCPUMicros, r.ServerCPUServedMicros = &whole, &whole
	r.Profiles = map[profiles.Kind][]byte{}
	for _, kind := range profiles.Kinds {
		p := pprof(kind, cost*float64(r.Requests), m.strategy == "sync")
		var b bytes.Buffer
		if err := p.Write(&b); err == nil {
			r.Profiles[kind] = b.Bytes()
		}
		if kind == profiles.CPU {
			r.CPUByPart = profiles.Attribute(p)
		}
	}
	return r
}

// stacks are where the service of the model spends its time, from the root to
// the leaf, and how much of a thousandth part.
var stacks = []struct {
	share float64
	calls []string
}{
	{190, []string{"github.com/spillway-go/spillway/internal/server.(*Server).serve", "github.com/spillway-go/spillway/internal/server.(*conn).read", "net.(*conn).Read", "internal/poll.(*FD).Read", "syscall.Read", "syscall.read", "syscall.Syscall"}},
	{230, []string{"github.com/spillway-go/spillway/internal/server.(*Server).serve", "github.com/spillway-go/spillway/internal/server.(*conn).write", "net.(*conn).Write", "internal/poll.(*FD).Write", "syscall.Write", "syscall.write", "syscall.Syscall"}},
	{45, []string{"github.com/spillway-go/spillway/internal/server.(*Server).serve", "github.com/valyala/fasthttp.(*RequestHeader).Read", "github.com/valyala/fasthttp.(*RequestHeader).parse"}},
	{30, []string{"github.com/spillway-go/spillway/internal/server.(*Server).serve", "github.com/spillway-go/spillway/strategies/dispatch.(*Dispatcher).Submit", "github.com/spillway-go/spillway/strategies.(*fifo).Push"}},
	{40, []string{"github.com/spillway-go/spillway/strategies/dispatch.(*Dispatcher).work", "github.com/spillway-go/spillway/strategies.(*fifo).Pop"}},
	{60, []string{"github.com/spillway-go/spillway/strategies/dispatch.(*Dispatcher).work", "github.com/spillway-go/spillway/internal/executor.(*Executor).Run"}},
	{110, []string{"github.com/spillway-go/spillway/strategies/dispatch.(*Dispatcher).work", "github.com/spillway-go/spillway/internal/executor.(*Executor).Run", "github.com/cockroachdb/pebble/v2.(*DB).Get", "github.com/cockroachdb/pebble/v2.(*getIter).Next"}},
	{70, []string{"github.com/spillway-go/spillway/strategies/dispatch.(*Dispatcher).work", "github.com/spillway-go/spillway/internal/executor.(*Executor).Run", "github.com/cockroachdb/pebble/v2.(*DB).Apply", "github.com/cockroachdb/pebble/v2.(*memTable).apply"}},
	{60, []string{"github.com/cockroachdb/pebble/v2/record.(*LogWriter).flushLoop", "github.com/cockroachdb/pebble/v2/vfs.(*syncingFile).Write", "syscall.Write", "syscall.Syscall"}},
	{35, []string{"runtime.gcBgMarkWorker", "runtime.systemstack", "runtime.gcDrain", "runtime.scanobject"}},
	{90, []string{"runtime.mcall", "runtime.park_m", "runtime.schedule", "runtime.findRunnable", "runtime.netpoll"}},
	{40, []string{"runtime.main", "main.main"}},
}

// pprof makes up a profile of a kind, for so much CPU time in microseconds.
func pprof(kind profiles.Kind, micros float64, inline bool) *profile.Profile {
	types := map[profiles.Kind][2]string{
		profiles.CPU: {"cpu", "nanoseconds"}, profiles.Allocs: {"alloc_space", "bytes"},
		profiles.Mutex: {"delay", "nanoseconds"}, profiles.Block: {"delay", "nanoseconds"},
	}
	scale := map[profiles.Kind]float64{profiles.CPU: 1e3, profiles.Allocs: 9, profiles.Mutex: 11, profiles.Block: 400}
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: types[kind][0], Unit: types[kind][1]}}}
	locations := map[string]*profile.Location{}
	for i, stack := range stacks {
		if inline && len(stack.calls) < 4 && i > 2 && i < 5 || kind != profiles.CPU && i%3 == len(kind)%3 {
			continue
		}
		sample := &profile.Sample{Value: []int64{int64(stack.share / 1000 * micros * scale[kind])}}
		for j := len(stack.calls) - 1; j >= 0; j-- {
			name := stack.calls[j]
			if locations[name] == nil {
				f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name, SystemName: name}
				p.Function = append(p.Function, f)
				locations[name] = &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
				p.Location = append(p.Location, locations[name])
			}
			sample.Location = append(sample.Location, locations[name])
		}
		p.Sample = append(p.Sample, sample)
	}
	return p
}

func sampled(h *hdrhistogram.Histogram) result.Percentiles {
	at := func(p float64) float64 { return float64(h.ValueAtPercentile(p)) / 1e3 }
	return result.Percentiles{Mean: h.Mean() / 1e3, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), P9999: at(99.99), Max: float64(h.Max()) / 1e3, Count: h.TotalCount()}
}

func encode(h *hdrhistogram.Histogram) string {
	text, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		panic(err) // it is written to memory
	}
	return string(text)
}
