package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// Limiter says how many requests run at once. It is notified of each that has ended.
type Limiter interface {
	Limit() int
	Ended(Ended)
}

// Starter is a Limiter that is also notified of each request that begins, and when.
type Starter interface {
	Started(now int64)
}

// Pauser is a Limiter that may have nothing begin for so many nanoseconds after an end. Then
// one request begins.
type Pauser interface {
	Pause() int64
}

// Aimer is a Limiter that gets the objective of answers before it begins.
type Aimer interface {
	Aim(objective time.Duration)
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

// Told is an oracle: a Limiter that knows at each moment at how many at once the resource
// does most. The zero value is ready to use, for one experiment.
type Told struct{ n int }

// Limit returns that number.
func (t *Told) Limit() int { return max(1, t.n) }

// Ended learns nothing.
func (*Told) Ended(Ended) {}

// Unknown is an experiment: a resource of which nobody knows what it can do, a limiter
// that decides how many requests it gets at once, and auto in front, under open-loop
// load.
type Unknown struct {
	Resource Resource
	// Load is how many times what the resource can do at best arrives, at each moment.
	Load float64
	// Limiter decides how many run at once.
	Limiter Limiter
	// Beside are others that share the resource, each with a queue and a limiter of its own.
	// The load is divided evenly among those that have begun, but for their weights.
	Beside []Beside
	// Clients is what those do who send requests.
	Clients Clients
	// Objective is that of auto: by default that of the resource.
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
	// Watch, if not nil, is called for each of the first limiter's that has ended.
	Watch func(Ended, time.Duration)
	// Look, if not nil, is called some 2,000 times with what can be seen.
	Look func(Glance)
}

// Glance is what can be seen of an experiment at a moment.
type Glance struct {
	At time.Duration // since it began
	// Limit is the first limiter's, Running and Waiting how many requests of it do, and
	// Good how many of all were, of those that are measured.
	Limit, Running, Waiting, Good int
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
	// Each is the goodput of each limiter, the first first.
	Each []float64
}

// asideFaster is how many times as fast as the mean are requests that need nothing of the
// resource.
const asideFaster = 20

// job is a request of an Unknown.
type job struct {
	task    strategies.Task
	work    float64 // nanoseconds
	aside   bool    // needs nothing of the resource, or is refused by it
	failed  bool    // ends with an error
	queued  bool    // waits in front
	gone    bool    // its client has left, while it was in front
	front   *front
	began   int64
	gen     uint32
	over    bool // nobody waits for it any more
	waiting bool // inside, for a hand
}

// due is a job to which something happens.
type due struct {
	job *job
	gen uint32
}

// void says that it does not happen: the job has ended, and another may have its memory.
func (d due) void() bool { return d.gen != d.job.gen || d.job.over }

type dues = heap[float64, due]

// at has something happen to j then.
func (j *job) at(time float64) entry[float64, due] {
	return entry[float64, due]{at: time, value: due{j, j.gen}}
}

// trial is an Unknown that runs.
type trial struct {
	u          *Unknown
	fronts     []*front
	now        float64
	begin, end float64

	inside  int // not aside, whether somebody waits or not
	served  int // of these, in hands
	virtual float64
	wide    float64
	rate    float64 // arrivals per nanosecond at the present width
	tempo   float64 // how fast work goes, by what changes
	work    dues    // by virtual time
	asides  dues    // and refusals, by time
	timeups dues    // by time
	leaving dues    // clients, likewise
	line    backlog[*job]
	pool    []*job

	done           int
	latency        float64
	ended, dropped int
	limits         float64
	slo            int64
	works, clients *rand.Rand
}

// Run does the experiment.
func (u Unknown) Run() UnknownResult {
	spec, _ := strategies.Lookup("auto")
	if len(u.Phases) > 0 {
		u.Load = 1 // of the phase's
	}
	t := &trial{u: &u, wide: 1, tempo: 1}
	objective := min(max(cmp.Or(u.Objective, u.Resource.Objective()), strategies.ShortestObjective), strategies.LongestObjective)
	for i, b := range append([]Beside{{Limiter: u.Limiter}}, u.Beside...) {
		f := newFront(b, spec, objective, rand.New(rand.NewPCG(u.Seed, 1+9*uint64(i))))
		f.free = u.Clients.Connections
		t.fronts = append(t.fronts, f)
	}
	t.works, t.clients = rand.New(rand.NewPCG(u.Seed, 2)), rand.New(rand.NewPCG(u.Seed, 4))
	n, best := u.Resource.Best()
	warm := cmp.Or(float64(u.Warmup), max(2_000, 200*float64(n)))
	length := cmp.Or(float64(u.Length), max(20_000, 1000*float64(n)))
	if u.Resource.Change.Kind == Cold { // and can do less all that time
		warm *= u.Resource.Change.Factor
	}
	t.slo = int64(cmp.Or(u.Objective, u.Resource.Objective()))
	t.now = started
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
	each := make([]float64, len(t.fronts))
	for i, f := range t.fronts {
		each[i] = float64(f.done) / seconds
	}
	return UnknownResult{
		Each:    each,
		Goodput: float64(t.done) / seconds, Rate: best,
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
		wide, load = p.Wide, p.Load
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
		for _, f := range t.fronts {
			if told, ok := f.Limiter.(*Told); ok {
				aside := t.u.Resource.Aside
				told.n = int(math.Round(float64(n) * (1 + aside/asideFaster/(1-aside)) / float64(len(t.fronts))))
			}
		}
	}
	period := 1 / (t.rate * load * t.u.Load)
	weights := 0.
	for _, f := range t.fronts {
		if t.now >= started+float64(f.From) {
			weights += f.Weight
		}
	}
	for _, f := range t.fronts {
		f.period = period * weights / f.Weight
	}
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
	for _, f := range t.fronts {
		f.arrival = max(t.now, started+float64(f.From)) + f.arrivals.ExpFloat64()*f.period
	}
	for changed := t.now; t.now < t.end; {
		if t.now-changed > (t.end-t.begin)/2000 {
			t.change()
			changed = t.now
			t.fill()
			if f := t.fronts[0]; t.u.Look != nil {
				t.u.Look(Glance{At: time.Duration(t.now - t.begin), Limit: f.limit, Running: f.running, Waiting: f.queue.Len(), Good: t.done})
			}
		}
		pace := t.pace()
		var at *front
		next, what := math.Inf(1), 0
		for _, f := range t.fronts {
			if f.arrival < next {
				next, what, at = f.arrival, 0, f
			}
			if f.resume < next {
				next, what, at = f.resume, 4, f
			}
		}
		if len(t.work) > 0 {
			if at := t.now + max(0, t.work[0].at-t.virtual)/pace; at < next {
				next, what = at, 1
			}
		}
		for i, h := range []dues{t.asides, t.timeups, t.leaving} {
			if len(h) > 0 && h[0].at < next {
				next, what = h[0].at, [...]int{2, 3, 5}[i]
			}
		}
		if t.served > 0 {
			t.virtual += (next - t.now) * pace
		}
		t.now = next
		switch what {
		case 0:
			t.arrive(at)
			at.arrival = t.now + at.arrivals.ExpFloat64()*at.period
		case 1:
			t.finish(t.work.pop().value)
		case 2:
			if d := t.asides.pop().value; !d.void() {
				t.leave(d.job, d.job.outcome())
				t.free(d.job)
			}
		case 3:
			if d := t.timeups.pop().value; !d.void() {
				t.cut(d.job, dropped)
			}
		case 4:
			at.limit, at.resume = 1, math.Inf(1)
			t.next(at)
		case 5:
			if d := t.leaving.pop().value; !d.void() {
				t.goes(d.job)
			}
		}
	}
}

func (t *trial) arrive(f *front) {
	if !f.connected(t.u.Clients) {
		return
	}
	j := t.take()
	j.front = f
	j.aside = t.works.Float64() < t.u.Resource.Aside
	j.work = float64(t.u.Resource.Work.Draw(t.works))
	if j.aside {
		j.work = float64(t.u.Resource.Work.Mean()) / asideFaster
	}
	now := int64(t.now)
	j.task.Arrival, j.task.Submitted = now, now
	t.client(j)
	if f.running < f.limit && f.queue.Len() == 0 {
		t.start(j)
		return
	}
	j.queued = true
	v := f.queue.Push(&j.task, now)
	if v.Displaced != nil {
		t.shed(v.Displaced.Owner.(*job))
	}
	if v.Outcome != strategies.Queued {
		t.shed(j)
	}
	for f.running < f.limit && t.next(f) {
	}
}

// next starts what is next, and reports whether there was something.
func (t *trial) next(f *front) bool {
	for {
		task, what, _ := f.queue.Pop(int64(t.now))
		switch what {
		case strategies.Run:
			j := task.Owner.(*job)
			if j.queued = false; j.gone || task.Deadline != 0 && task.Deadline <= int64(t.now) {
				t.shed(j)
				continue
			}
			f.turns.TurnBegan(int64(t.now))
			t.start(j)
			return true
		case strategies.Shed:
			t.shed(task.Owner.(*job))
		default:
			return false
		}
	}
}

func (t *trial) start(j *job) {
	f := j.front
	f.running++
	j.began = int64(t.now)
	if f.starter != nil {
		f.starter.Started(j.began)
	}
	if d := t.u.Resource.Timeout; d > 0 {
		t.timeups.push(j.at(t.now + float64(d)))
	}
	if r := &t.u.Resource; !j.aside && r.Refusal > 0 && r.worked(t.inside+1, t.wide) <= t.inside {
		j.aside, j.failed, j.work = true, true, float64(r.Refusal)
	}
	if j.aside {
		t.asides.push(j.at(t.now + j.work))
		return
	}
	t.inside++
	j.waiting = true
	t.line.push(j)
	t.fill()
}

// fill gives hands that are free what waits inside.
func (t *trial) fill() {
	for !t.line.empty() && t.served < t.u.Resource.worked(t.inside, t.wide) {
		j := t.line.pop()
		if !j.waiting { // its time was up
			t.free(j)
			continue
		}
		j.waiting = false
		t.served++
		t.work.push(j.at(t.virtual + j.work))
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
		t.leave(j, j.outcome())
	}
	t.free(j)
}

// cut ends a request for which nobody waits any more.
func (t *trial) cut(j *job, how outcome) {
	switch {
	case t.u.Resource.Orphans && !j.aside: // it goes on
		j.over = true
	case j.waiting: // the line frees it
		j.over, j.waiting = true, false
		t.inside--
	default:
		j.gen++ // what is on the heap is void
		if !j.aside {
			t.served--
			t.inside--
			t.fill()
		}
	}
	t.leave(j, how)
	if !j.over {
		t.free(j)
	}
}

// leave gives the place back.
func (t *trial) leave(j *job, how outcome) {
	f := j.front
	now := int64(t.now)
	e := Ended{Now: now, Began: j.began, Running: f.running, Waiting: f.queue.Len() > 0, Dropped: how == dropped}
	f.running--
	latency := now - j.task.Arrival
	if how == good {
		f.good(float64(now - j.began))
	}
	if t.now >= t.begin && t.now < t.end {
		t.ended++
		t.limits += float64(f.limit)
		if how != good {
			t.dropped++
		} else {
			t.latency += float64(latency)
			if latency <= t.slo {
				t.done++
				f.done++
			}
		}
	}
	f.answered(t.now, t.u.Clients)
	if t.u.Watch != nil && f == t.fronts[0] {
		t.u.Watch(e, time.Duration(latency))
	}
	if how != ignored {
		f.Limiter.Ended(e)
	}
	limit := f.Limiter.Limit()
	if f.resume = math.Inf(1); f.pauser != nil {
		if pause := f.pauser.Pause(); pause > 0 {
			limit, f.resume = 0, t.now+float64(pause)
		}
	}
	if limit != f.limit {
		f.limit = limit
		f.resizer.Resize(max(1, limit))
	}
	for f.running < f.limit && t.next(f) {
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
