package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// Limiter says how many requests run at once. It is told of each that has ended.
type Limiter interface {
	Limit() int
	Ended(Ended)
}

// Starter is a Limiter that is also told of each request that begins, and when.
type Starter interface {
	Started(now int64)
}

// Pauser is a Limiter that may have nothing begin for so many nanoseconds after an end. Then
// one request begins.
type Pauser interface {
	Pause() int64
}

// Ended is a request that a resource has done, or that was dropped.
type Ended struct {
	Now, Began int64 // nanoseconds
	// Running is how many ran when it ended, itself included.
	Running int
	// Waiting says that work waited for a place.
	Waiting, Dropped bool
}

// Fixed is a Limiter that never changes its mind.
type Fixed int

// Limit returns the number.
func (f Fixed) Limit() int { return int(f) }

// Ended learns nothing.
func (Fixed) Ended(Ended) {}

// Told is a Limiter that is told at each moment at how many at once the resource does most,
// which is what one who knew it would choose. The zero value is ready to use, for one
// experiment.
type Told struct{ n int }

// Limit returns that number.
func (t *Told) Limit() int { return max(1, t.n) }

// Ended learns nothing.
func (*Told) Ended(Ended) {}

// Unknown is an experiment: a resource of which nobody told what it can do, a limiter
// that decides how many requests it gets at once, and auto in front, under open-loop
// load.
type Unknown struct {
	Resource Resource
	// Load is how many times what the resource can do at best arrives, at each moment.
	Load float64
	// Limiter decides how many run at once.
	Limiter Limiter
	// Objective is what auto is told: by default that of the resource.
	Objective time.Duration
	// Warmup is how many requests the resource could have done before it is measured,
	// and Length how many while it is: by default 2,000 and 20,000, or 200 and 1,000 times
	// as many as it does at once, if that is more. So a change in the midst, which a law may
	// take as long as the warm-up to follow, costs a fifth of what is measured at most.
	Warmup, Length int
	Seed           uint64
	// Phases, if any, replace Load, Warmup, Length and the change of the resource: they
	// follow each other, and all of it is measured.
	Phases []Phase
	// Watch, if not nil, is told of each that has ended.
	Watch func(Ended, time.Duration)
}

// Phase is a time in which nothing changes but by chance.
type Phase struct {
	For time.Duration
	// Wide is how many times as many the resource can do at once, and Load how many times
	// what it can do now arrives.
	Wide, Load float64
}

// UnknownResult is what came of it.
type UnknownResult struct {
	// Goodput is how many answers a second were good: not dropped, and in time.
	Goodput float64
	// Rate is what the resource can do at best.
	Rate float64
	// Latency is the mean from arrival to the end of those that were served.
	Latency time.Duration
	// Limit is the mean limit, by completions, and Dropped the part of them that were dropped.
	Limit, Dropped float64
	Events         int64
}

// asideFaster is how many times as fast as the mean are requests that need nothing of the
// resource.
const asideFaster = 20

// job is a request of an Unknown.
type job struct {
	task    strategies.Task
	work    float64 // nanoseconds
	aside   bool    // needs nothing of the resource
	refused bool
	began   int64
	gen     uint32
	over    bool // nobody waits for it any more
	waiting bool // inside, for a hand
}

type due struct {
	at  float64
	job *job
	gen uint32
}

type heap []due

func (h *heap) push(d due) {
	q := append(*h, d)
	i := len(q) - 1
	for i > 0 {
		p := (i - 1) / 2
		if q[p].at <= d.at {
			break
		}
		q[i] = q[p]
		i = p
	}
	q[i] = d
	*h = q
}

func (h *heap) pop() due {
	q := *h
	top, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	*h = q
	if len(q) == 0 {
		return top
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= len(q) {
			break
		}
		if c+1 < len(q) && q[c+1].at < q[c].at {
			c++
		}
		if last.at <= q[c].at {
			break
		}
		q[i] = q[c]
		i = c
	}
	q[i] = last
	return top
}

// trial is an Unknown that runs.
type trial struct {
	u                  *Unknown
	queue              strategies.Discipline
	turns              strategies.TurnObserver
	starter            Starter // nil if the limiter is none
	pauser             Pauser  // likewise
	resume             float64 // the end of a pause
	resizer            strategies.Resizer
	limit              int
	running            int // have a place
	now                float64
	begin, end, period float64

	inside  int // not aside, whether somebody waits or not
	served  int // of these, in hands
	virtual float64
	wide    float64
	rate    float64 // arrivals per nanosecond at the present width
	tempo   float64 // how fast work goes, by what changes
	work    heap    // by virtual time
	asides  heap    // and refusals, by time
	timeups heap    // by time
	line    []*job
	head    int
	pool    []*job

	done            int
	latency         float64
	ended, dropped  int
	limits          float64
	events          int64
	slo             int64
	resultRate      float64
	arrivals, works *rand.Rand
}

// Run does the experiment.
func (u Unknown) Run() UnknownResult {
	spec, _ := strategies.Lookup("auto")
	if len(u.Phases) > 0 {
		u.Load = 1 // of the phase's
	}
	t := &trial{u: &u, limit: u.Limiter.Limit(), wide: 1, tempo: 1}
	objective := new(strategies.Objective)
	_ = objective.Set(min(max(cmp.Or(u.Objective, u.Resource.Objective()), strategies.ShortestObjective), strategies.LongestObjective))
	t.queue = spec.New(strategies.Config{Capacity: 4096, Workers: t.limit, Objective: objective})
	t.turns = t.queue.(strategies.TurnObserver)
	t.resizer = t.queue.(strategies.Resizer)
	t.starter, _ = u.Limiter.(Starter)
	t.pauser, _ = u.Limiter.(Pauser)
	t.resume = math.Inf(1)
	t.arrivals, t.works = rand.New(rand.NewPCG(u.Seed, 1)), rand.New(rand.NewPCG(u.Seed, 2))
	n, best := u.Resource.Best()
	t.resultRate = best
	warm, length := float64(u.Warmup), float64(u.Length)
	if warm == 0 {
		warm = max(2_000, 200*float64(n))
	}
	if length == 0 {
		length = max(20_000, 1000*float64(n))
	}
	if u.Resource.Change.Kind == Cold { // and can do less all that time
		warm *= u.Resource.Change.Factor
	}
	t.slo = int64(u.Resource.Objective())
	t.now = 1e9
	t.begin = t.now + warm/best*1e9
	t.end = t.begin + length/best*1e9
	if len(u.Phases) > 0 {
		t.begin = t.now
		t.end = t.begin
		for _, p := range u.Phases {
			t.end += float64(p.For)
		}
	}
	t.run()
	seconds := (t.end - t.begin) / 1e9
	return UnknownResult{
		Goodput: float64(t.done) / seconds, Rate: best, Events: t.events,
		Latency: time.Duration(t.latency / max(1, float64(t.ended))), Limit: t.limits / max(1, float64(t.ended)),
		Dropped: float64(t.dropped) / max(1, float64(t.ended)),
	}
}

// change sets what depends on the time.
func (t *trial) change() {
	c := t.u.Resource.Change
	through := (t.now - t.begin) / (t.end - t.begin) // below 0 before
	wide, load := 1., 1.
	t.tempo = 1
	if len(t.u.Phases) > 0 {
		c.Kind = Steady
		p := t.u.phase(time.Duration(t.now - t.begin))
		wide, load = p.Wide, p.Load/t.u.Load
	}
	switch c.Kind {
	case Wider:
		if through >= 0.5 {
			wide = c.Factor
		}
	case Faster:
		if through >= 0.5 {
			t.tempo, load = c.Factor, c.Factor
		}
	case Drifting:
		t.tempo = math.Pow(c.Factor, math.Sin(2*math.Pi*through))
		load = t.tempo
	case Idle:
		if through > 0.2 && through < 0.4 || through > 0.6 && through < 0.8 {
			load = 0.02
		}
	case Cold:
		t.tempo = 1 / (1 + (c.Factor-1)*math.Exp(-4*max(0, through+0.1)))
		load = t.tempo
	}
	if wide != t.wide || t.rate == 0 {
		t.wide = wide
		var n int
		n, t.rate = t.u.Resource.best(wide)
		t.rate /= 1e9
		if told, ok := t.u.Limiter.(*Told); ok {
			aside := t.u.Resource.Aside
			told.n = int(math.Round(float64(n) * (1 + aside/asideFaster/(1-aside))))
		}
	}
	t.period = 1 / (t.rate * load * t.u.Load)
}

// phase returns the phase at a time since the begin.
func (u *Unknown) phase(at time.Duration) Phase {
	for _, p := range u.Phases {
		if at -= p.For; at < 0 {
			return p
		}
	}
	return u.Phases[len(u.Phases)-1]
}

func (t *trial) pace() float64 { return t.tempo * t.u.Resource.pace(t.inside, t.wide) }

func (t *trial) run() {
	t.change()
	arrival := t.now + t.arrivals.ExpFloat64()*t.period
	for changed := t.now; t.now < t.end; t.events++ {
		if t.now-changed > (t.end-t.begin)/2000 {
			t.change()
			changed = t.now
			t.fill()
		}
		pace := t.pace()
		next, what := arrival, 0
		if len(t.work) > 0 {
			if at := t.now + max(0, t.work[0].at-t.virtual)/pace; at < next {
				next, what = at, 1
			}
		}
		if len(t.asides) > 0 && t.asides[0].at < next {
			next, what = t.asides[0].at, 2
		}
		if len(t.timeups) > 0 && t.timeups[0].at < next {
			next, what = t.timeups[0].at, 3
		}
		if t.resume < next {
			next, what = t.resume, 4
		}
		if t.served > 0 {
			t.virtual += (next - t.now) * pace
		}
		t.now = next
		switch what {
		case 0:
			t.arrive()
			arrival = t.now + t.arrivals.ExpFloat64()*t.period
		case 1:
			t.finish(t.work.pop())
		case 2:
			if d := t.asides.pop(); d.gen == d.job.gen {
				t.leave(d.job, d.job.refused)
				t.free(d.job)
			}
		case 3:
			t.timeUp(t.timeups.pop())
		case 4:
			t.limit, t.resume = 1, math.Inf(1)
			t.next()
		}
	}
}

func (t *trial) arrive() {
	j := t.take()
	j.aside = t.works.Float64() < t.u.Resource.Aside
	j.work = float64(t.u.Resource.Work.Draw(t.works))
	if j.aside {
		j.work = float64(t.u.Resource.Work.Mean()) / asideFaster
	}
	now := int64(t.now)
	j.task.Arrival, j.task.Submitted = now, now
	if t.running < t.limit && t.queue.Len() == 0 {
		t.start(j)
		return
	}
	v := t.queue.Push(&j.task, now)
	if v.Displaced != nil {
		t.free(v.Displaced.Owner.(*job))
	}
	if v.Outcome != strategies.Queued {
		t.free(j)
	}
	for t.running < t.limit && t.next() {
	}
}

// next starts what is next, and reports whether there was something.
func (t *trial) next() bool {
	for {
		task, what, _ := t.queue.Pop(int64(t.now))
		switch what {
		case strategies.Run:
			t.turns.TurnBegan(int64(t.now))
			t.start(task.Owner.(*job))
			return true
		case strategies.Shed:
			t.free(task.Owner.(*job))
		default:
			return false
		}
	}
}

func (t *trial) start(j *job) {
	t.running++
	j.began = int64(t.now)
	if t.starter != nil {
		t.starter.Started(j.began)
	}
	if d := t.u.Resource.Timeout; d > 0 {
		t.timeups.push(due{t.now + float64(d), j, j.gen})
	}
	if r := &t.u.Resource; !j.aside && r.Refusal > 0 && r.worked(t.inside+1, t.wide) <= t.inside {
		j.refused = true
		t.asides.push(due{t.now + float64(r.Refusal), j, j.gen})
		return
	}
	if j.aside {
		t.asides.push(due{t.now + j.work, j, j.gen})
		return
	}
	t.inside++
	j.waiting = true
	t.line = append(t.line, j)
	t.fill()
}

// fill gives hands that are free what waits inside.
func (t *trial) fill() {
	for t.head < len(t.line) && t.served < t.u.Resource.worked(t.inside, t.wide) {
		j := t.line[t.head]
		t.line[t.head] = nil
		t.head++
		if t.head > 1024 && t.head > len(t.line)/2 {
			t.line = t.line[:copy(t.line, t.line[t.head:])]
			t.head = 0
		}
		if !j.waiting { // its time was up
			t.free(j)
			continue
		}
		j.waiting = false
		t.served++
		t.work.push(due{t.virtual + j.work, j, j.gen})
	}
}

// finish is the end of work.
func (t *trial) finish(d due) {
	j := d.job
	if j.gen != d.gen {
		return
	}
	t.served--
	t.inside--
	t.fill()
	if !j.over {
		t.leave(j, false)
	}
	t.free(j)
}

// timeUp drops a request that takes too long.
func (t *trial) timeUp(d due) {
	j := d.job
	if j.gen != d.gen || j.over {
		return
	}
	r := &t.u.Resource
	switch {
	case r.Orphans && !j.aside && !j.refused:
		j.over = true
		t.leave(j, true)
		return
	case j.aside, j.refused:
		j.gen++
	case j.waiting: // the line frees it
		j.over, j.waiting = true, false
		t.inside--
		t.leave(j, true)
		return
	default:
		j.gen++ // what is on the heap is void
		t.served--
		t.inside--
		t.fill()
	}
	t.leave(j, true)
	t.free(j)
}

// leave gives the place back.
func (t *trial) leave(j *job, dropped bool) {
	now := int64(t.now)
	e := Ended{Now: now, Began: j.began, Running: t.running, Waiting: t.queue.Len() > 0, Dropped: dropped}
	t.running--
	latency := now - j.task.Arrival
	if t.now >= t.begin && t.now < t.end {
		t.ended++
		t.limits += float64(t.limit)
		if dropped {
			t.dropped++
		} else {
			t.latency += float64(latency)
			if latency <= t.slo {
				t.done++
			}
		}
	}
	if t.u.Watch != nil {
		t.u.Watch(e, time.Duration(latency))
	}
	t.u.Limiter.Ended(e)
	limit := t.u.Limiter.Limit()
	if t.resume = math.Inf(1); t.pauser != nil {
		if pause := t.pauser.Pause(); pause > 0 {
			limit, t.resume = 0, t.now+float64(pause)
		}
	}
	if limit != t.limit {
		t.limit = limit
		t.resizer.Resize(max(1, limit))
	}
	for t.running < t.limit && t.next() {
	}
}

func (t *trial) take() *job {
	n := len(t.pool)
	if n == 0 {
		j := &job{}
		j.task.Owner = j
		return j
	}
	j := t.pool[n-1]
	t.pool = t.pool[:n-1]
	return j
}

func (t *trial) free(j *job) {
	gen := j.gen + 1
	*j = job{gen: gen}
	j.task.Owner = j
	t.pool = append(t.pool, j)
}

// BestFixed returns the fixed number under which the experiment has most goodput, of
// those that a search tries, and what it has.
func (u Unknown) BestFixed() (int, UnknownResult) {
	n, _ := u.Resource.Best()
	tried := map[int]UnknownResult{}
	best := 0
	try := func(i int) {
		i = max(1, i)
		if _, ok := tried[i]; ok {
			return
		}
		u.Limiter = Fixed(i)
		tried[i] = u.Run()
		if best == 0 || tried[i].Goodput > tried[best].Goodput {
			best = i
		}
	}
	for _, f := range []float64{0.5, 0.8, 1, 1.2, 1.5, 2.2, 4} {
		try(int(math.Ceil(float64(n) * f)))
	}
	for step := 1.12; step > 1.02; step = math.Sqrt(step) {
		from := float64(best)
		try(int(math.Ceil(from * step)))
		try(int(from / step))
	}
	return best, tried[best]
}
