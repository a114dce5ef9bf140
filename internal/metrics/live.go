package metrics

import (
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"spillway/strategies"
	"spillway/strategies/dispatch"
)

// Live is the state of the process at one moment. What is counted is counted
// since the start and over all strategies, so that a reader who keeps an
// earlier state knows what happened in between.
type Live struct {
	// SLO is the latency objective, in seconds.
	SLO float64
	// Submitted and Run are tasks, Shed are tasks by reason.
	Submitted, Run float64
	Shed           map[string]float64
	// TurnedAway are the requests that were answered as shed: those tasks, once
	// they are answered, and requests for which there was no room before they
	// became one. It never exceeds the two together.
	TurnedAway float64
	// Codes are answered requests by status code.
	Codes map[int]float64
	// Good are the requests that were answered 2xx or 404 within the objective,
	// Failed those that were answered otherwise without having been shed.
	Good, Failed float64
	// Latency is of the requests answered 2xx or 404, Wait of all tasks that
	// were run, Fsync of the store's log.
	Latency, Wait, Fsync Distribution

	// Gauges, Connections, Writable and Store are what the Sources say.
	Gauges      []dispatch.Gauge
	Connections int
	Writable    error
	Store       StoreStats
}

// Live returns the present state. It reports false while the service is
// starting.
func (m *Metrics) Live() (Live, bool) {
	sources := m.sources.Load()
	if sources == nil {
		return Live{}, false
	}
	l := Live{
		SLO:         m.slo,
		Shed:        make(map[string]float64),
		Codes:       make(map[int]float64),
		Latency:     make(Distribution),
		Wait:        make(Distribution),
		Fsync:       make(Distribution),
		Gauges:      sources.Gauges(),
		Connections: sources.Connections(),
		Writable:    sources.Writable(),
		Store:       sources.Store(),
	}
	for _, s := range *m.strategies.Load() {
		l.add(s)
	}
	l.Fsync.add(read(m.fsyncs).GetHistogram())
	return l, true
}

// add adds what a strategy has counted.
func (l *Live) add(s *strategy) {
	l.Submitted += read(s.submitted).GetCounter().GetValue()
	l.Run += read(s.run).GetCounter().GetValue()
	l.Wait.add(read(s.waits).GetHistogram())
	for verb := range s.requests {
		for i := range s.requests[verb] {
			if c := s.requests[verb][i].Load(); c != nil {
				l.Codes[i+minCode] += read(*c).GetCounter().GetValue()
			}
		}
		if o := s.durations[verb][outcomeOK].Load(); o != nil {
			h := read(*o).GetHistogram()
			l.Latency.add(h)
			i := slices.IndexFunc(h.Bucket, func(b *dto.Bucket) bool { return b.GetUpperBound() == l.SLO })
			l.Good += float64(h.Bucket[i].GetCumulativeCount())
		}
		if o := s.durations[verb][outcomeError].Load(); o != nil {
			l.Failed += float64(read(*o).GetHistogram().GetSampleCount())
		}
		if o := s.durations[verb][outcomeShed].Load(); o != nil {
			l.TurnedAway += float64(read(*o).GetHistogram().GetSampleCount())
		}
	}
	// After TurnedAway, since a task is shed before it is answered.
	for _, r := range strategies.Reasons() {
		l.Shed[r.String()] += read(s.shed[r]).GetCounter().GetValue()
	}
}

// read returns what a series holds. All series of client_golang are metrics,
// also those that it hands out as observers.
func read(series any) *dto.Metric {
	var m dto.Metric
	_ = series.(prometheus.Metric).Write(&m) // fails for labels that are not valid, which have been in use
	return &m
}

// Distribution counts durations by ranges that grow by the eighth root of two:
// the key i is for those above 2^((i-1)/8) seconds, up to 2^(i/8).
type Distribution map[int]uint64

// distributionSchema is the schema of Prometheus' native histograms that has
// these bounds, which those here begin with.
const distributionSchema = 3

// add adds the counts of a native histogram. Those of one that had to make its
// ranges wider are put at the upper bounds.
func (d Distribution) add(h *dto.Histogram) {
	if n := h.GetZeroCount(); n > 0 {
		// At or below the threshold, as the time of tasks that did not wait.
		threshold := math.Max(h.GetZeroThreshold(), prometheus.DefNativeHistogramZeroThreshold)
		d[int(math.Ceil(math.Log2(threshold)*(1<<distributionSchema)))] += n
	}
	wider := distributionSchema - h.GetSchema()
	var index int32
	var count int64
	deltas := h.GetPositiveDelta()
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += deltas[0]
			deltas = deltas[1:]
			d[int(index<<wider)] += uint64(count)
			index++
		}
	}
}
