package metrics

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Live is the state of the process at one moment. Counts are since the start and over
// all strategies: the difference to an earlier state is what happened in between.
type Live struct {
	// Objective is the latency objective.
	Objective strategies.ObjectiveState
	// Submitted and Run are tasks, Shed are tasks by reason.
	Submitted, Run float64
	Shed           map[string]float64
	// WouldShed are tasks by the reason for which they would have been shed.
	WouldShed map[string]float64
	// TurnedAway are the requests that were answered as shed: tasks that were shed, once
	// they are answered, and requests whose bodies had no room, which never became a
	// task.
	TurnedAway float64
	// Codes are answered requests by status code.
	Codes map[int]float64
	// LateWrong are tasks that would have been refused as late, and were answered in time.
	LateWrong float64
	// Good are the requests whose outcome was ok within the objective in force, Late those
	// whose outcome was ok later, Unmet those whose own condition did not hold (412), Failed
	// those that were answered otherwise without having been shed.
	Good, Late, Unmet, Failed float64
	// Latency is of the requests whose outcome was ok, Wait of all tasks that
	// were run, Fsync of the store's log, Get and Commit of those operations of the
	// store, Left of clients that left before they had their answer.
	Latency, Wait, Fsync, Get, Commit, Left Distribution

	// Proxy says that there is no store of any kind.
	Proxy bool
	// Gauge, Connections, Writable, Store and Upstreams are what the Sources say; Embedded
	// that there is a store for Store to speak of.
	Gauge       dispatch.Gauge
	Connections int
	Writable    error
	Embedded    bool
	Store       StoreStats
	Upstreams   []Upstream
}

// Live returns the present state. It reports false while the service is
// starting.
func (m *Metrics) Live() (Live, bool) {
	sources := m.sources.Load()
	if sources == nil {
		return Live{}, false
	}
	l := Live{
		Objective:   m.objective.Load().State(),
		Shed:        make(map[string]float64),
		WouldShed:   make(map[string]float64),
		Codes:       make(map[int]float64),
		Latency:     make(Distribution),
		Wait:        make(Distribution),
		Fsync:       make(Distribution),
		Get:         make(Distribution),
		Commit:      make(Distribution),
		Left:        make(Distribution),
		Gauge:       sources.Gauge(),
		Connections: sources.Connections(),
		Proxy:       m.proxy,
	}
	if sources.Writable != nil {
		l.Writable = sources.Writable()
	}
	if sources.Upstreams != nil {
		l.Upstreams = sources.Upstreams()
	}
	if sources.Store != nil {
		l.Embedded, l.Store = true, sources.Store()
	}
	for _, s := range *m.strategies.Load() {
		l.add(s)
	}
	l.Failed = max(0, l.Failed-l.Unmet)
	l.Fsync.add(m.fsyncs)
	l.Left.add(m.left)
	for i, operation := range operations {
		switch operation {
		case "get":
			l.Get.add(m.operations[i])
		case "commit":
			l.Commit.add(m.operations[i])
		}
	}
	return l, true
}

// add adds what a strategy has counted.
func (l *Live) add(s *strategy) {
	l.Submitted += read(s.submitted).GetCounter().GetValue()
	l.Run += read(s.run).GetCounter().GetValue()
	l.Good += read(s.within).GetCounter().GetValue()
	l.Late += float64(s.late.Load())
	l.LateWrong += read(s.lateWrong).GetCounter().GetValue()
	l.Wait.add(s.waits)
	for verb := range s.requests {
		for i := range s.requests[verb] {
			if c := s.requests[verb][i].Load(); c != nil {
				n := read(*c).GetCounter().GetValue()
				l.Codes[i+minCode] += n
				if i+minCode == http.StatusPreconditionFailed && !l.Proxy {
					l.Unmet += n
				}
			}
		}
		if h := s.durations[verb][served.OK].Load(); h != nil {
			l.Latency.add(h)
		}
		if h := s.durations[verb][served.Error].Load(); h != nil {
			l.Failed += float64(h.count())
		}
		if h := s.durations[verb][served.Shed].Load(); h != nil {
			l.TurnedAway += float64(h.count())
		}
	}
	// After TurnedAway, since a task is shed before it is answered.
	for r, c := range s.shed {
		l.Shed[r.String()] += read(c).GetCounter().GetValue()
	}
	addByReason(l.Shed, &s.otherShed)
	addByReason(l.WouldShed, &s.wouldShed)
}

// addByReason adds what the counters of reasons hold.
func addByReason(sums map[string]float64, counters *sync.Map) {
	counters.Range(func(r, c any) bool {
		sums[r.(strategies.Reason).String()] += read(c.(prometheus.Counter)).GetCounter().GetValue()
		return true
	})
}

// read returns what a counter holds.
func read(c prometheus.Counter) *dto.Metric {
	var m dto.Metric
	_ = c.Write(&m) // fails for labels that are not valid, which have been in use
	return &m
}

// Distribution counts durations by ranges that grow by the eighth root of two:
// the key i is for those above 2^((i-1)/8) seconds, up to 2^(i/8).
type Distribution map[int]uint64

// noTime is the key for durations of 0, far below all others: that of the
// largest duration that Prometheus counts as such.
const noTime = -128 << schema

// add adds the counts of a histogram of durations.
func (d Distribution) add(h *histogram) {
	if n := h.zeros.Load(); n > 0 {
		d[noTime] += n
	}
	for i := range h.counts {
		if n := h.counts[i].Load(); n > 0 {
			d[h.bins.native[i]] += n
		}
	}
}

// Since returns what came to d after an earlier state of it.
func (d Distribution) Since(earlier Distribution) Distribution {
	fresh := make(Distribution)
	for i, n := range d {
		if n > earlier[i] {
			fresh[i] = n - earlier[i]
		}
	}
	return fresh
}

// Count returns how many durations there are.
func (d Distribution) Count() (n uint64) {
	for _, c := range d {
		n += c
	}
	return n
}

// Quantiles returns the durations, in seconds, below which these shares are, which
// must ascend; nil if there are none at all.
func (d Distribution) Quantiles(shares ...float64) []float64 {
	if len(d) == 0 {
		return nil
	}
	all := float64(d.Count())
	var quantiles []float64
	below := 0.0
	for _, i := range slices.Sorted(maps.Keys(d)) {
		n := float64(d[i])
		for len(quantiles) < len(shares) && shares[len(quantiles)]*all <= below+n {
			part := (shares[len(quantiles)]*all - below) / n
			quantiles = append(quantiles, math.Exp2((float64(i)-1+part)/(1<<schema)))
		}
		below += n
	}
	return quantiles
}
