package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/health"
)

// Replica is one of several resources that serve the same requests. The zero value works at all
// that is inside, and none fails.
type Replica struct {
	// Hands, if not 0, is how many requests it works at. What is given to it beyond that waits
	// inside, first come first served.
	Hands int
	// Took, if not nil, is how long a request takes that it begins to work at then, with so many
	// inside, itself included. Otherwise that is its work.
	Took func(now time.Duration, inside int, work time.Duration) time.Duration
	// Code, if not nil, is the status with which a request of a route ends that it began to work at
	// then, with so many inside at the end, itself included. Otherwise that is 200. What they say
	// is what they say to the proxy: those from 500 on are errors, 502 to 504 are dropped for the
	// limiter, and it does not learn from 429.
	Code func(began time.Duration, inside, route int) int
	// Refuses, if not nil, says when it accepts no connections.
	Refuses func(now time.Duration) bool
	// From is when it begins to be one of them.
	From time.Duration
}

// Replicas is an experiment: several replicas under open-loop load, with one queue before all of
// them, or with a load balancer that gives each request to one at once.
type Replicas struct {
	Of   []Replica
	Work Distribution
	// Balance says how the load balancer chooses: RoundRobin, Random, LeastOutstanding, PowerOfTwo
	// or Prequal. Without it one queue is before all replicas. Either way broken ones are found by
	// package health, and a request that was refused a connection goes to another.
	Balance string
	// Strategy is that of the queue, or of the queue before each replica behind the balancer, and
	// Capacity how many may wait, that of the strategy by default.
	Strategy string
	Capacity int
	// Limiter returns what decides how many requests a replica is given at once.
	Limiter func(replica int) Limiter
	// Objective is that of the strategy, and within which an answer is good.
	Objective time.Duration
	// Rate is how many requests a second arrive, by chance or, if Regular, evenly; from so many
	// clients and of so many routes, 1 by default, at random.
	Rate            float64
	Regular         bool
	Clients, Routes int
	// Those that arrive in Length, after Warmup, are measured. If they are not Regular more arrive
	// after it, until the experiment ends After later: by default the objective.
	Warmup, Length, After time.Duration
	Seed                  uint64
}

// ReplicasResult is what came of it.
type ReplicasResult struct {
	// Offered requests were measured, Answered of them got any answer but a refusal of the queue,
	// Succeeded a 200, and Good one in time.
	Offered, Answered, Succeeded, Good int
	// Latencies are of the good, the shortest first.
	Latencies []time.Duration
	// Mean is the mean latency of the answered, and Client that of the worst client.
	Mean, Client time.Duration
	// Each is how many each replica answered with 200.
	Each []int
}

// P returns a percentile of the latencies of the good.
func (r *ReplicasResult) P(percent float64) time.Duration {
	if len(r.Latencies) == 0 {
		return 0
	}
	return r.Latencies[min(len(r.Latencies)-1, int(percent/100*float64(len(r.Latencies))))]
}

// The statuses that make a difference, of HTTP.
const (
	codeGood      = 200
	codeTooMany   = 429
	codeError     = 500
	codeUnreached = 502
	codeTimeout   = 504
)

// call is a request of a Replicas. The job in it is for the heap.
type call struct {
	job
	at            *station
	client, route int
	tried         uint64 // the replicas that refused it
	sent          int64  // when a balancer chose
	served        int64  // when the replica began to work at it
	outstanding   int    // of the replica then
}

// line is a queue before some replicas.
type line struct {
	queue    strategies.Discipline
	stations []*station
	last     int // that was chosen
	// outstanding is how many wait in it or run.
	outstanding int
}

// station is a replica at work.
type station struct {
	Replica
	*line
	index   int
	member  *health.Member // nil before it is one of them
	limiter Limiter
	limit   int
	running int
	resume  int64 // the end of a pause of the limiter
	probe   int64 // the end of a rest
	inside  int   // given to it
	busy    int   // of them worked at
	waiting backlog[*call]
	times   timesByLoad
}

// group is a Replicas that runs.
type group struct {
	*Replicas
	now, begin, end int64
	set             health.Set
	stations        []*station
	some            []*station // that a balancer may choose
	heap            heap
	balancer        balancer
	prequal         prequal
	arrivals, works *rand.Rand
	result          ReplicasResult
	means           []clientMean
	total           clientMean
}

type clientMean struct {
	sum float64
	n   int
}

func (m *clientMean) mean() time.Duration { return time.Duration(m.sum / float64(max(1, m.n))) }

// Run does the experiment. The replicas are at most 64.
func (u Replicas) Run() ReplicasResult {
	u.Clients, u.Routes, u.After = max(1, u.Clients), max(1, u.Routes), cmp.Or(u.After, u.Objective)
	r := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(u.Seed, n)) }
	f := &group{Replicas: &u, arrivals: r(1), works: r(2), means: make([]clientMean, u.Clients)}
	f.balancer = balancer{how: u.Balance, random: r(5)}
	f.prequal.random = f.balancer.random
	spec, _ := strategies.Lookup(u.Strategy)
	var shared *line
	for i := range u.Of {
		if shared == nil || u.Balance != "" {
			o := new(strategies.Objective)
			_ = o.Set(u.Objective) // which is the caller's care
			shared = &line{queue: spec.New(strategies.Config{Capacity: spec.CapacityOr(u.Capacity), Workers: 1, Objective: o})}
		}
		l := u.Limiter(i)
		if a, ok := l.(Aimer); ok {
			a.Aim(u.Objective)
		}
		s := &station{Replica: u.Of[i], line: shared, index: i, limiter: l, limit: l.Limit(), resume: math.MaxInt64, probe: math.MaxInt64}
		if s.From > 0 {
			s.probe = started + int64(s.From)
		} else {
			s.member = f.set.Add()
		}
		shared.stations = append(shared.stations, s)
		f.stations = append(f.stations, s)
	}
	f.now = started
	f.begin = f.now + int64(u.Warmup)
	f.end = f.begin + int64(u.Length)
	f.result.Each = make([]int, len(u.Of))
	f.settle()
	f.run()
	slices.Sort(f.result.Latencies)
	f.result.Mean = f.total.mean()
	for i := range f.means {
		f.result.Client = max(f.result.Client, f.means[i].mean())
	}
	return f.result
}

func (f *group) run() {
	next := f.now
	for over := f.end + int64(f.After); ; {
		at, what := int64(math.MaxInt64), (*station)(nil)
		for _, s := range f.stations {
			if w := min(s.resume, s.probe); w < at {
				at, what = w, s
			}
		}
		done := len(f.heap) > 0 && int64(f.heap[0].at) < at
		if done {
			at = int64(f.heap[0].at)
		}
		arrives := next <= at && (next < f.end || !f.Regular)
		if arrives {
			at = next
		}
		if at >= over {
			return
		}
		f.now = at
		switch {
		case arrives:
			gap := 1e9 / f.Rate
			if !f.Regular {
				gap *= f.arrivals.ExpFloat64()
			}
			next += int64(gap)
			f.arrive()
		case done:
			f.finish(f.heap.pop().job.task.Owner.(*call))
		default:
			f.wake(what)
		}
	}
}

func (f *group) since() time.Duration { return time.Duration(f.now - started) }

func (f *group) arrive() {
	c := &call{client: f.arrivals.IntN(f.Clients), route: f.arrivals.IntN(f.Routes)}
	c.work = float64(f.Work.Draw(f.works))
	c.task.Arrival, c.task.Submitted, c.task.Owner = f.now, f.now, c
	if f.measured(c) {
		f.result.Offered++
	}
	f.submit(c)
}

func (f *group) measured(c *call) bool { return c.task.Arrival >= f.begin && c.task.Arrival < f.end }

// submit gives a request to the queue, or to that of the replica that the balancer chooses.
func (f *group) submit(c *call) {
	l := f.stations[0].line
	if f.Balance != "" {
		s := f.choose(c)
		for s != nil && s.refuses(f) {
			f.unreached(c, s)
			s = f.choose(c)
		}
		if s == nil {
			f.ended(c, codeUnreached)
			return
		}
		l, c.sent, c.outstanding = s.line, f.now, s.outstanding
	}
	l.outstanding++
	if l.queue.Len() == 0 && f.start(l, c) {
		return
	}
	v := l.queue.Push(&c.task, f.now)
	if v.Displaced != nil {
		l.outstanding--
	}
	if v.Outcome != strategies.Queued {
		l.outstanding--
	}
	f.fill(l)
}

// places says how many places are free for a request that some replicas refused, and how many there are.
func (s *station) places(tried uint64) (free, limit int) {
	if s.member == nil || tried>>s.index&1 == 1 {
		return 0, 0
	}
	limit = min(s.limit, s.member.Allowed())
	return limit - s.running, limit
}

func (l *line) free() bool {
	return slices.ContainsFunc(l.stations, func(s *station) bool {
		free, _ := s.places(0)
		return free > 0
	})
}

func (s *station) refuses(f *group) bool { return s.Refuses != nil && s.Refuses(f.since()) }

func (f *group) unreached(c *call, s *station) {
	c.tried |= 1 << s.index
	if s.member.Unreached(f.now, f.now) {
		f.settle()
	}
}

// start begins a request if there is a place, and reports whether there was.
func (f *group) start(l *line, c *call) bool {
	for {
		i := health.Choose(l.last, len(l.stations), func(i int) (int, int) { return l.stations[i].places(c.tried) })
		if i < 0 {
			return false
		}
		s := l.stations[i]
		l.last, c.at, c.began = i, s, f.now
		if s.refuses(f) {
			if f.Balance == "" {
				f.unreached(c, s)
				continue
			}
			l.outstanding-- // it was sent already
			f.ended(c, codeUnreached)
			return true
		}
		s.running++
		s.inside++
		s.waiting.push(c)
		f.serve(s)
		return true
	}
}

// serve has a replica work at what waits inside.
func (f *group) serve(s *station) {
	for !s.waiting.empty() && (s.Hands == 0 || s.busy < s.Hands) {
		c := s.waiting.pop()
		s.busy++
		c.served = f.now
		took := time.Duration(c.work)
		if s.Took != nil {
			took = s.Took(f.since(), s.inside, took)
		}
		f.heap.push(due{at: float64(f.now + int64(took)), job: &c.job})
	}
}

// fill begins what waits, as long as there are places.
func (f *group) fill(l *line) {
	for l.free() {
		task, what, _ := l.queue.Pop(f.now)
		switch what {
		case strategies.Run:
			if t, ok := l.queue.(strategies.TurnObserver); ok {
				t.TurnBegan(f.now)
			}
			if c := task.Owner.(*call); !f.start(l, c) { // it was refused by those that have a place
				l.outstanding--
				if l.free() {
					f.ended(c, codeUnreached) // the last one refuses
				} else {
					f.submit(c)
				}
			}
		case strategies.Shed:
			l.outstanding--
		default:
			return
		}
	}
}

// finish is the end of work.
func (f *group) finish(c *call) {
	s := c.at
	code := codeGood
	if s.Code != nil {
		code = s.Code(time.Duration(c.served-started), s.inside, c.route)
	}
	s.inside--
	s.busy--
	f.serve(s)
	began, running := c.began, s.running
	if f.Balance != "" {
		began, running = c.sent, s.outstanding
	}
	if f.Balance == Prequal {
		s.times.add(c.outstanding, f.now-c.sent)
	}
	if code != codeTooMany {
		s.limiter.Ended(Ended{
			Now: f.now, Began: c.began, Running: s.running, Waiting: s.queue.Len() > 0,
			Dropped: code >= codeUnreached && code <= codeTimeout,
		})
	}
	s.running--
	s.outstanding--
	if code == codeGood && f.measured(c) {
		f.result.Each[s.index]++
	}
	f.ended(c, code)
	limit := s.limiter.Limit()
	s.resume = math.MaxInt64
	if p, ok := s.limiter.(Pauser); ok && p.Pause() > 0 {
		limit, s.resume = 0, f.now+p.Pause()
	}
	if s.member.Ended(began, f.now, running, code >= codeError) || limit != s.limit {
		s.limit = limit
		f.settle()
	}
	f.fill(s.line)
}

// settle follows what members and limiters have changed.
func (f *group) settle() {
	for _, s := range f.stations {
		if s.member != nil {
			s.probe = cmp.Or(s.member.ProbeAt(), math.MaxInt64)
		}
		if r, ok := s.queue.(strategies.Resizer); ok {
			sum := 0
			for _, each := range s.stations {
				_, limit := each.places(0)
				sum += limit
			}
			r.Resize(max(1, sum))
		}
	}
}

// wake is the end of a pause or of a rest, or a replica that begins to be one of them.
func (f *group) wake(s *station) {
	switch {
	case s.resume <= f.now:
		s.limit, s.resume = 1, math.MaxInt64
	case s.member == nil:
		s.member = f.set.Add()
	case s.refuses(f):
		s.member.Unreached(f.now, f.now)
	default:
		s.member.Probe(f.now)
	}
	f.settle()
	f.fill(s.line)
}

// ended counts a request that has its answer.
func (f *group) ended(c *call, code int) {
	if !f.measured(c) {
		return
	}
	latency := time.Duration(f.now - c.task.Arrival)
	f.result.Answered++
	for _, m := range []*clientMean{&f.total, &f.means[c.client]} {
		m.sum += float64(latency)
		m.n++
	}
	if code != codeGood {
		return
	}
	f.result.Succeeded++
	if latency <= f.Objective || f.Objective <= 0 {
		f.result.Good++
		f.result.Latencies = append(f.result.Latencies, latency)
	}
}
