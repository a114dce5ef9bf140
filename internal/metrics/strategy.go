package metrics

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// strategy holds the series of one strategy.
type strategy struct {
	queue   dispatch.Events
	batches *histogram

	// What queue counts, for Live.
	submitted, run, within, lateWrong prometheus.Counter
	waits                             *histogram
	shed                              map[strategies.Reason]prometheus.Counter // the reasons of all strategies
	// late counts what was ok and not within the objective.
	late atomic.Uint64
	// otherShed holds the counters of reasons that strategies of others have declared,
	// and wouldShed those of what was spared.
	otherShed, wouldShed sync.Map // strategies.Reason to prometheus.Counter

	// Those below are created when they are first used: most of them never are.
	requests  [numMethods][maxCode - minCode + 1]atomic.Pointer[prometheus.Counter]
	durations [numMethods][served.Outcomes]atomic.Pointer[histogram]
}

// The status codes that HTTP knows.
const (
	minCode = 100
	maxCode = 599
)

// numMethods is the number of values of the label method.
const numMethods = 8

var methods = [numMethods]string{"GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "other"}

// methodIndex returns the place of a method in methods. PATCH and OPTIONS, which only the
// proxy knows, and anything else are other, so that clients cannot make series.
func (m *Metrics) methodIndex(method string) int {
	i := slices.Index(methods[:], method)
	if i < 0 || !m.proxy && (method == "PATCH" || method == "OPTIONS") {
		return numMethods - 1
	}
	return i
}

// strategy returns the series of a strategy, and creates them if they are new.
// There are few strategies, so that the map is copied to add one, and read
// without a lock.
func (m *Metrics) strategy(name string) *strategy {
	if s, ok := (*m.strategies.Load())[name]; ok {
		return s
	}
	m.adding.Lock()
	defer m.adding.Unlock()
	known := *m.strategies.Load()
	if s, ok := known[name]; ok {
		return s
	}
	s := m.newStrategy(name)
	next := maps.Clone(known)
	if next == nil {
		next = make(map[string]*strategy)
	}
	next[name] = s
	m.strategies.Store(&next)
	return s
}

func (m *Metrics) newStrategy(name string) *strategy {
	submitted := m.submitted.WithLabelValues(name)
	run := m.run.WithLabelValues(name)
	waits := m.waits.with(name)
	shed := make(map[strategies.Reason]prometheus.Counter)
	for _, r := range strategies.Reasons() {
		shed[r] = m.shed.WithLabelValues(name, r.String())
	}
	lateWrong := m.lateWrong.WithLabelValues(name)
	s := &strategy{
		within:    m.within.WithLabelValues(name),
		lateWrong: lateWrong,
		batches:   m.batches.with(name),
		submitted: submitted,
		run:       run,
		waits:     waits,
		shed:      shed,
		queue: dispatch.Events{
			Submitted: submitted.Inc,
			Started: func(waited time.Duration) {
				run.Inc()
				waits.observeDuration(waited)
			},
			LateWrong: lateWrong.Inc,
		},
	}
	s.queue.Shed = func(r strategies.Reason) {
		if c, ok := shed[r]; ok {
			c.Inc()
			return
		}
		counterOf(&s.otherShed, m.shed, name, r).Inc()
	}
	s.queue.WouldShed = func(r strategies.Reason) { counterOf(&s.wouldShed, m.wouldShed, name, r).Inc() }
	return s
}

// counterOf returns the counter of a reason, made when it is first asked for. There are
// no more reasons than strategies have declared, as the dispatcher sees to.
func counterOf(known *sync.Map, all *prometheus.CounterVec, strategy string, r strategies.Reason) prometheus.Counter {
	c, ok := known.Load(r)
	if !ok {
		c, _ = known.LoadOrStore(r, all.WithLabelValues(strategy, r.String()))
	}
	return c.(prometheus.Counter)
}

// Queue returns the hooks for the tasks of a strategy. From now on every reason
// for which it may shed is exported, at 0.
func (m *Metrics) Queue(spec strategies.Spec) dispatch.Events {
	s := m.strategy(spec.Name)
	for _, r := range spec.Reasons {
		if s.shed[r] == nil {
			counterOf(&s.otherShed, m.shed, spec.Name, r)
		}
	}
	// In every mode, as the mode can be changed.
	for _, r := range append(strategies.Reasons(), spec.Reasons...) {
		counterOf(&s.wouldShed, m.wouldShed, spec.Name, r)
	}
	return s.queue
}

// Switched counts a switch of the strategy.
func (m *Metrics) Switched(_, _ string) { m.switches.Inc() }

// Answered counts an answered request: the strategy and the method it was
// under, the status code, what became of it, and the time since it arrived.
func (m *Metrics) Answered(strategy, method string, code int, outcome served.Outcome, d time.Duration) {
	m.Forwarded(strategy, method, code, outcome, d, d)
}

// Forwarded is Answered for an answer that goes on for long after its head, by which it is
// in time or not.
func (m *Metrics) Forwarded(strategy, method string, code int, outcome served.Outcome, head, d time.Duration) {
	if code < minCode || code > maxCode { // none was sent, or nobody knows it
		code, outcome = 500, served.Error
	}
	s, verb := m.strategy(strategy), m.methodIndex(method)
	requests := &s.requests[verb][code-minCode]
	counter := requests.Load()
	if counter == nil {
		// Two may come here at once. They get the same series.
		c := m.requests.WithLabelValues(strategy, methods[verb], strconv.Itoa(code))
		counter = &c
		requests.Store(counter)
	}
	(*counter).Inc()
	switch {
	case outcome != served.OK:
	case m.inTime(head):
		s.within.Inc()
	default:
		s.late.Add(1)
	}

	durations := &s.durations[verb][outcome]
	h := durations.Load()
	if h == nil {
		h = m.durations.with(strategy, methods[verb], outcome.String())
		durations.Store(h)
	}
	h.observeDuration(d)
}

// Routed times an answered request by the name of its route, one of Options.Routes or other.
func (m *Metrics) Routed(route string, outcome served.Outcome, d time.Duration) {
	if of, ok := (*m.byRoute.Load())[route]; ok {
		of[outcome].observeDuration(d)
	}
}

// inTime reports whether an answer after d is within the objective in force.
func (m *Metrics) inTime(d time.Duration) bool {
	objective := m.objective.Load().InForce()
	return objective == 0 || d <= objective
}

// Committed counts a batch of that many writes, taken under that strategy.
func (m *Metrics) Committed(strategy string, writes int) {
	m.strategy(strategy).batches.observe(int64(writes))
}

// numOperations is the number of operations of the store that are timed.
const numOperations = 4

var operations = [numOperations]string{"get", "commit", "sync", "range"}

// Operated times an operation of the store: get, commit, sync or range. Others
// are ignored.
func (m *Metrics) Operated(operation string, d time.Duration) {
	if i := slices.Index(operations[:], operation); i >= 0 {
		m.operations[i].observeDuration(d)
	}
}

// ObserveFsync times a sync of the store's log.
func (m *Metrics) ObserveFsync(d time.Duration) { m.fsyncs.observeDuration(d) }

// Left times for how long a client waited that left before it had its answer.
func (m *Metrics) Left(after time.Duration) { m.left.observeDuration(after) }
