package dispatch

import (
	"slices"
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies/health"
)

// Resource is one of those whose places are lent: it has its own number of them, given or learned.
type Resource struct {
	// Name is what it was called in Places.SetResources.
	Name   string
	places *Places
	limit  limit

	_ [64]byte
	// free is how many of its places nobody has. It is less than 0 after the limit has fallen below what is in use.
	free atomic.Int64
	_    [64]byte
}

// Bound has no more than n tasks get places of r at once, whatever its number: 0 while it rests.
func (r *Resource) Bound(n int) { r.limit.change(func() { r.limit.most.Store(int64(n)) }) }

// Gauge returns the state of r: Depth and Capacity, which are of the queue, are 0.
func (r *Resource) Gauge() Gauge {
	r.places.mu.Lock()
	busy := r.InUse()
	r.places.mu.Unlock()
	return Gauge{Workers: r.limit.number(false), Busy: busy, Learned: r.limit.learned()}
}

// InUse returns how many of its places are in use. While their number changes it may be off by as much.
func (r *Resource) InUse() int { return r.limit.now() - int(r.free.Load()) }

func (r *Resource) running() int { return r.InUse() - int(r.gathered()) }

// gathered returns how many of its places a task has gathered that has not begun.
func (r *Resource) gathered() int64 {
	if g := &r.places.gathering; g.of == r {
		return g.has
	}
	return 0
}

// allow frees what was gathered as well, as it may be more than can be needed now.
func (r *Resource) allow(from, to int) {
	r.free.Add(int64(to - from))
	r.places.drop()
}

// claim takes n places, or as many as are free, and returns how many: none if they are fewer than least.
func (r *Resource) claim(least, n int64) int64 {
	for {
		free := r.free.Load()
		got := min(n, free)
		if got < least || got <= 0 {
			return 0
		}
		if r.free.CompareAndSwap(free, free-got) {
			return got
		}
	}
}

// Resources returns those of now, in the order in which they were given.
func (p *Places) Resources() []*Resource { return *p.resources.Load() }

// SetResources changes what the places are of, at least one and none twice. One whose name is there already goes on as it
// is. Who has places of one that is gone gives them back as ever.
func (p *Places) SetResources(names []string) {
	p.numbers.Lock()
	defer p.numbers.Unlock()
	former := p.Resources()
	resources, limits := p.change(former, names)
	p.mu.Lock()
	p.resources.Store(&resources)
	p.limits.Store(&limits)
	p.active.Load().resize(p.width())
	p.mu.Unlock()
	for _, r := range former {
		if !slices.Contains(resources, r) {
			r.Bound(0) // what was chosen before is not granted any more
			r.limit.close()
		}
	}
	p.wake()
	p.opts.Resized()
	if p.toDo() > 0 {
		p.watch()
	}
}

// change returns the resources of those names, with their limits, in place of the former ones, if there were any.
func (p *Places) change(former []*Resource, names []string) (resources []*Resource, limits []*limit) {
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		var r *Resource
		if i := slices.IndexFunc(former, func(r *Resource) bool { return r.Name == name }); i >= 0 {
			r = former[i]
		} else {
			r = &Resource{Name: name, places: p, limit: limit{unheld: unheld}}
			r.limit.init(&p.backlog, r, max(1, p.opts.Workers))
			r.free.Store(int64(r.limit.now()))
			if o := p.opts.Learn; o != nil && former != nil { // open looks after the first
				l, _ := newLearning(p.engine, *o) // which were allowed before
				r.limit.set(0, l)
			}
		}
		resources, limits = append(resources, r), append(limits, &r.limit)
	}
	return resources, limits
}

// need returns how many places t takes of r: at most as many as are not stuck, and one if there are several resources.
func (p *Places) need(t *Task, r *Resource) int64 {
	if len(p.Resources()) > 1 {
		return 1
	}
	return max(1, min(int64(t.Places()), r.limit.width.Load()-r.limit.stuck.Load()))
}

// freest returns the resource the largest share of whose places is free, nil if none is.
func (p *Places) freest() *Resource {
	all := p.Resources()
	if len(all) == 1 && all[0].free.Load() > 0 { // which costs less
		return all[0]
	}
	last := p.tie.Add(1) % uint32(len(all))
	i := health.Choose(int(last), len(all), func(i int) (free, limit int) { return int(all[i].free.Load()), all[i].limit.now() })
	if i < 0 {
		return nil
	}
	return all[i]
}

func (p *Places) anyFree() bool {
	for _, r := range p.Resources() {
		if r.free.Load() > 0 {
			return true
		}
	}
	return false
}

// Any returns a resource for what needs no place: each in its turn, of those that may have tasks.
func (p *Places) Any() *Resource {
	all := p.Resources()
	for n := 0; n < len(all) && len(all) > 1; n++ {
		if r := all[p.tie.Add(1)%uint32(len(all))]; r.limit.now() > 0 {
			return r
		}
	}
	return all[0]
}

// On returns the resource whose places t has.
func (t *Task) On() *Resource { return t.on.Load() }

// goesTo notes that t takes n places of r. It comes before they are in use.
func (t *Task) goesTo(r *Resource, n int64) {
	if t.on.Load() != r { // which costs less than to store it
		t.on.Store(r)
	}
	t.granted, t.found = n, r.limit.found.Load()
}

// Move has t, which has places and has done nothing with them, get others, ahead of all that waits. It reports whether it
// has them, as Acquire does.
func (p *Places) Move(t *Task) bool {
	on, now := t.on.Load(), p.Now()
	t.began.Store(0) // what it took says nothing of what does the work
	p.endRun(t, now)
	t.continued = true
	if n := t.granted; n > 0 {
		t.granted = 0
		p.giveBack(t, on, n, 0, now)
	}
	if inline := p.active.Load().spec.Inline; inline || p.take(t) {
		if inline {
			t.goesTo(p.Any(), 0)
		}
		t.queue.begins(t, now)
		t.measure(now)
		return true
	}
	t.Submitted = now
	p.setAside(t, &p.ahead)
	return false
}
