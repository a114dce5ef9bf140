package dispatch

import "github.com/spillway-go/spillway/strategies"

// Resize changes the number of workers or places, at least 1. If more are in use, they stay
// in use until their turn ends or they are given back. Resize does not wait for that. It ends
// the learning of the number. It has no effect on split pools.
func (d *Dispatcher) Resize(n int) {
	if len(d.pools) == 1 {
		d.pools[0].resize(func() int {
			d.pools[0].learning.Store(nil)
			d.pools[0].stuck.none()
			return max(1, n)
		})
	}
}

// resize has as many workers, or places, as number says, which is asked under lines.mu: of
// several who resize at once the last to ask decides. There are none in a pause of a law.
func (p *pool) resize(number func() int) {
	p.lines.mu.Lock()
	n := number()
	former := p.width()
	if n == former {
		p.lines.mu.Unlock()
		return
	}
	if p.places != nil {
		p.places.allowLocked(int64(n))
	} else {
		p.allow(n)
	}
	if q := p.active.Load(); q != nil { // nil before the first
		q.resize(max(1, n))
	}
	p.lines.mu.Unlock()
	switch {
	case p.active.Load() == nil:
	case p.places != nil:
		p.grant(p.d.Now())
	case n < former:
		p.dismiss(former - n)
	default:
		p.wakeIfRunnable() // who is woken passes the word on
	}
	if p.active.Load() != nil && p.d.opts.Resized != nil {
		p.d.opts.Resized()
	}
}

// allow says how many workers there may be.
func (p *pool) allow(workers int) {
	writing := int64(workers)
	if workers > 1 && p.d.opts.MaxBatch > 1 && !p.d.opts.Split {
		writing-- // so that one is left for reads, whatever becomes of the writes
	}
	p.maxWriting.Store(writing)
	p.workers.Store(int64(workers))
}

// allowLocked says how many places there are. What was gathered is free again, as it may
// be more than can be needed now.
func (s *places) allowLocked(n int64) {
	s.free.Add(n - s.limit.Swap(n) + s.gathered)
	s.gathered = 0
}

// fit tells the discipline of q, which is active now, how many workers there are if that
// has changed since it was made.
func (p *pool) fit(q *queue, madeFor int) {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if n := p.width(); n != madeFor {
		q.resize(max(1, n))
	}
}

func (q *queue) resize(n int) {
	if r, ok := q.discipline.(strategies.Resizer); ok {
		r.Resize(n)
	}
}

// hire starts another worker if there may be one more, and reports whether it did.
func (p *pool) hire() bool {
	p.hiring.Lock()
	defer p.hiring.Unlock()
	if p.stopped.Load() || p.running.Load() >= p.workers.Load() {
		return false
	}
	w := &worker{wake: make(chan *Task, 1), stuck: p.stuck.times.Load()}
	p.running.Add(1)
	p.done.Go(func() { p.work(w) })
	return true
}

// tooMany reports whether there are more workers than there may be.
func (p *pool) tooMany() bool { return p.running.Load() > p.workers.Load() }

// leave reports whether the worker that calls it, with nothing in its hands, is one too
// many. It is none any more then.
//
// It may have been told to look, so it passes that word on.
func (p *pool) leave() bool {
	for n := p.running.Load(); n > p.workers.Load(); n = p.running.Load() {
		if p.running.CompareAndSwap(n, n-1) {
			p.wakeIfRunnable()
			return true
		}
	}
	return false
}

// dismiss has so many parked workers look whether they are too many. Those that are at
// work will when their turn ends, and those that are about to park once they have.
func (p *pool) dismiss(n int) {
	for range n {
		if !p.tooMany() {
			return
		}
		w := p.idle.take()
		if w == nil {
			return
		}
		w.wake <- nil
	}
}
