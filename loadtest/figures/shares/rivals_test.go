//go:build !race

package shares

import (
	"slices"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// rival is a queue for each client, which are served by the keys of their next tasks. It is here to be compared with.
type rival struct {
	law
	capacity, places int
	flows            []*flow
	waiting          int
	now              int64
	virtual          float64
	served           float64 // the largest start tag of what has begun
	runs             map[uint64]*running
	last             uint64
	free             []int // places, the one that became free last at the end
}

// law is what rivals differ in. The place is the one that is free.
type law struct {
	// next returns which of those flows is served.
	next func(q *rival, waiting []*flow, place int) *flow
	// charge returns what a flow is charged for its first task when that begins.
	charge func(f *flow) float64
	// settles says that the difference is charged later.
	settles bool
	// starts returns where a flow begins at least that was not active; nil: where it ended.
	starts func(q *rival) float64
}

type flow struct {
	client string
	tasks  []*strategies.Task
	active bool    // from when something waits until something ends while nothing does
	time   float64 // what it was charged
	most   float64 // what its tasks take, as 2DFQ estimates it
	mean   float64 // what they take of late
}

type running struct {
	flow    *flow
	place   int
	began   int64
	charged float64
}

func told(t *strategies.Task) time.Duration {
	return t.Owner.(interface{ Work() time.Duration }).Work()
}

func least(key func(*flow) float64) func(*rival, []*flow, int) *flow {
	return func(_ *rival, waiting []*flow, _ int) *flow {
		first := waiting[0]
		for _, f := range waiting[1:] {
			if key(f) < key(first) {
				first = f
			}
		}
		return first
	}
}

func byTime(f *flow) float64 { return f.time }

// laws are the rivals by name.
var laws = map[string]law{
	// Whose late requests took least, but the one that has waited longest, each eighth time.
	"shortest": {next: func(q *rival, waiting []*flow, place int) *flow {
		if q.last%8 == 7 {
			return least(func(f *flow) float64 { return float64(f.tasks[0].Submitted) })(q, waiting, place)
		}
		return least(func(f *flow) float64 { return f.mean })(q, waiting, place)
	}, charge: func(*flow) float64 { return 0 }},
	// Deficit round robin with a quantum of one request.
	"DRR by count": {next: least(byTime), charge: func(*flow) float64 { return 1 }, starts: func(q *rival) float64 { return q.served }},
	// Weighted fair queueing, told beforehand how long each request takes.
	"WFQ, costs told": {next: least(func(f *flow) float64 { return f.time + float64(told(f.tasks[0])) }),
		charge: func(f *flow) float64 { return float64(told(f.tasks[0])) }, starts: func(q *rival) float64 { return q.virtual }},
	// Who has had least, ever.
	"least attained": {next: least(byTime), charge: func(*flow) float64 { return 0 }, settles: true},
	// 2DFQ^E (Mace et al., SIGCOMM 2016, figure 7), with the paper's 10 ms between charges of what runs. The paper leaves
	// open how much the estimate fades by, 1% a request here, and what runs if no flow is eligible: here the one that is
	// so first, as a place may not be idle. It has an estimate for each API of a tenant; the tenants here have one API.
	"2DFQ": {next: next2DFQ, charge: func(f *flow) float64 { return f.most }, settles: true, starts: func(q *rival) float64 { return q.virtual }},
}

// next2DFQ returns, of the flows that are eligible on that place, the one with the least finish tag. A flow is eligible
// on the place i of n from the virtual time on that is its start tag, less i/n of the estimate.
func next2DFQ(q *rival, waiting []*flow, place int) *flow {
	early := func(f *flow) float64 { return f.time - float64(place)/float64(q.places)*f.most }
	may := slices.DeleteFunc(slices.Clone(waiting), func(f *flow) bool { return early(f) > q.virtual })
	if len(may) == 0 {
		return least(early)(q, waiting, place)
	}
	return least(func(f *flow) float64 { return f.time + f.most })(q, may, place)
}

func (l law) discipline(c strategies.Config) strategies.Discipline {
	q := &rival{law: l, capacity: c.Capacity, places: c.Workers, runs: map[uint64]*running{}}
	for i := range c.Workers {
		q.free = append(q.free, i)
	}
	return q
}

func (q *rival) Len() int { return q.waiting }
func (q *rival) Cap() int { return q.capacity }

func (q *rival) flow(client string) *flow {
	i := slices.IndexFunc(q.flows, func(f *flow) bool { return f.client == client })
	if i < 0 {
		i = len(q.flows)
		q.flows = append(q.flows, &flow{client: client, most: float64(time.Millisecond)})
	}
	return q.flows[i]
}

func (q *rival) backlogged() (all []*flow) {
	for _, f := range q.flows {
		if len(f.tasks) > 0 {
			all = append(all, f)
		}
	}
	return all
}

// advance moves the virtual time on by what each active flow could have had, and charges those that run for what they
// have run, every 10 ms as in 2DFQ.
func (q *rival) advance(now int64) {
	active := 0
	for _, f := range q.flows {
		if f.active {
			active++
		}
	}
	if active > 0 {
		q.virtual += float64(now-q.now) * float64(q.places) / float64(active)
	}
	q.now = now
	for _, r := range q.runs {
		if over := float64(now-r.began) - r.charged; q.settles && over >= 1e7 {
			r.charged += over
			r.flow.time += over
		}
	}
}

func (q *rival) Push(t *strategies.Task, now int64) (v strategies.Verdict) {
	q.advance(now)
	q.add(t)
	if q.waiting++; q.waiting > q.capacity {
		longest := slices.MaxFunc(q.flows, func(a, b *flow) int { return len(a.tasks) - len(b.tasks) })
		v.Displaced, v.Reason = longest.tasks[0], strategies.ReasonFair
		longest.tasks = longest.tasks[1:]
		q.waiting--
	}
	return v
}

// add has t wait.
func (q *rival) add(t *strategies.Task) *flow {
	f := q.flow(t.Client)
	if !f.active && q.starts != nil {
		f.time = max(f.time, q.starts(q))
	}
	f.active = true
	f.tasks = append(f.tasks, t)
	return f
}

func (q *rival) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	q.advance(now)
	waiting := q.backlogged()
	if len(waiting) == 0 {
		return nil, strategies.Empty, strategies.ReasonNone
	}
	f := q.next(q, waiting, q.free[len(q.free)-1])
	t := f.tasks[0]
	t.Run = q.begin(f, q.charge(f))
	f.tasks = f.tasks[1:]
	q.waiting--
	return t, strategies.Run, strategies.ReasonNone
}

func (q *rival) begin(f *flow, charge float64) uint64 {
	last := len(q.free) - 1
	q.last++
	q.runs[q.last] = &running{flow: f, place: q.free[last], began: q.now, charged: charge}
	q.free = q.free[:last]
	q.served = max(q.served, f.time)
	f.time += charge
	return q.last
}

func (q *rival) Began(t *strategies.Task, now int64) {
	if t.Run != 0 {
		return
	}
	q.advance(now)
	f := q.add(t)
	t.Run = q.begin(f, q.charge(f))
	f.tasks = f.tasks[:len(f.tasks)-1]
}

func (q *rival) Ended(number uint64, _ int, now int64) {
	q.advance(now)
	r := q.runs[number]
	delete(q.runs, number)
	q.free = append(q.free, r.place)
	took := float64(now - r.began)
	if q.settles {
		r.flow.time += took - r.charged
	}
	r.flow.active = len(r.flow.tasks) > 0
	r.flow.most = max(0.99*r.flow.most, took)
	r.flow.mean += (took - r.flow.mean) / 16
}

func (q *rival) Remove(t *strategies.Task) bool {
	f := q.flow(t.Client)
	i := slices.Index(f.tasks, t)
	if i >= 0 {
		f.tasks = slices.Delete(f.tasks, i, i+1)
		q.waiting--
	}
	return i >= 0
}
