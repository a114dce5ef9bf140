package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// workers are a set of goroutines and the backlog that feeds them.
type workers struct {
	backlog
	limit    limit
	complete func(*Task)    // the method completed of the engine, made once
	done     sync.WaitGroup // the workers' goroutines
	stopped  atomic.Bool

	count  atomic.Int64 // how many there are: fewer than the limit until they are needed, or more for a while after it fell
	hiring sync.Mutex   // held while one more is started, and when they are stopped

	// writing counts the turns of writes, of which maxWriting run at once.
	writing, maxWriting atomic.Int64 // the latter changes under mu
	// unwoken says that a submitter has woken nobody, as every write slot was taken, perhaps by a worker that scans.
	unwoken  atomic.Bool
	wrote    atomic.Int64 // when the last turn of writes began, on the dispatcher's clock
	watching atomic.Bool  // a timer runs: see watch
	// reads counts the tasks that are no writes and wait in the discipline or ahead of it. For a moment it may be too
	// high, never too low.
	reads atomic.Int64
	turns atomic.Uint64 // counts those that could have taken from the queue or a continuation

	_    [64]byte // idle.n is read by every Submit
	idle idleStack
	_    [64]byte

	// lingering counts the workers that have been handed a write and will look for others. ungrouped is how many
	// more writes may run in the place of a worker, since of late none has come together with others.
	lingering atomic.Int64
	ungrouped atomic.Int32
}

const (
	timedTurns   = 16 // how many turns go by between two that are timed
	ungroupedFor = 64 // how many writes that need not wait go by between two for which a worker gathers
)

func newWorkers(e *engine, n int) *workers {
	p := &workers{backlog: backlog{engine: e}}
	p.complete = e.completed
	p.allow(0, n)
	p.init(e, p, p.limit.init(&p.backlog, p, n))
	return p
}

func (p *workers) InUse() int { return max(0, int(p.count.Load()-p.idle.n.Load())) }

func (p *workers) running() int { return p.InUse() }

// stop is Dispatcher.Close.
func (p *workers) stop() {
	p.limit.release()
	p.hiring.Lock()
	p.stopped.Store(true)
	p.hiring.Unlock()
	for p.wakeOne() {
	}
	p.done.Wait()
	p.shedAll(strategies.ReasonDraining)
	p.limit.close()
}

// submit takes a new task: see Dispatcher.Submit.
func (p *workers) submit(t *Task) (waits bool) {
	now := p.Now()
	t.Submitted = now
	gathers := t.Write && p.opts.MaxBatch > 1
	q := p.active.Load()
	if q.spec.Inline && !p.refusing.Load() { // Push would answer CallerRuns, as Inline promises
		q.accept(t)
		return p.runInline(q, t, now)
	}
	// What waits goes first, also while a worker that has just entered the stack looks for it.
	if !p.refusing.Load() && p.idle.n.Load() > 0 && p.mayBegin(t) &&
		(!gathers || p.lingering.Load() == 0) && (!t.Write || p.beginWriting()) {
		w := p.idle.take()
		if w == nil && t.Write {
			p.endWriting()
		}
		if w != nil {
			q.accept(t)
			switch {
			case t.InPlace && w.asleep.Load() && (!gathers || p.ungrouped.Load() > 0):
				if gathers {
					p.ungrouped.Add(-1)
				}
				p.turn(w, t, inPlace, now)
				p.putBack(w)
				return false
			case gathers: // others may be about to submit a write
				p.lingering.Add(1)
			}
			// If the worker has found another task in this instant, it puts t ahead of the queue.
			waits = t.Deadline != 0
			w.wake <- t
			return waits
		}
	}
	return p.enqueue(t, now)
}

// came wakes nobody for a write while a worker looks for others.
func (p *workers) came(write bool) {
	if !write || p.opts.MaxBatch == 1 || p.lingering.Load() == 0 {
		p.wake()
	}
}

// runInline runs t on the goroutine of its submitter, unless it is a write and none can be run: then it waits for a worker.
func (p *workers) runInline(q *queue, t *Task, now int64) (waits bool) {
	switch {
	case t.expired(now):
		p.shed(t, strategies.ReasonExpired)
	case !t.Write || !p.opts.Blocked(true):
		p.beganAtOnce(q, t, now)
		p.run(t)
	case p.full(0):
		p.shed(t, strategies.ReasonFull)
	default:
		waits = p.setAside(t, &p.held)
		p.makeRoom(now) // others may have come meanwhile
	}
	return waits
}

// run runs t, which has begun, on the goroutine of its submitter.
func (p *workers) run(t *Task) {
	q, run := t.queue, t.Run
	t.Run = 0 // when its turn ends, it may be its submitter's again
	if t.alone[0] == nil {
		t.alone[0] = t
	}
	p.opts.Run(t.alone[:], p.complete)
	if run != 0 {
		q.ends(run, 1, p.Now())
	}
}

// wake wakes a parked worker, if there is one, and it is wanted, or starts another. Who is woken passes the word on.
func (p *workers) wake() {
	if p.idle.n.Load() == 0 {
		// A parked worker sets the timer of watch for reads behind writes.
		if p.count.Load() < p.limit.width.Load() && (p.ready() || p.reads.Load() > 0) {
			p.hire()
		}
		return
	}
	wanted := p.wanted()
	if !wanted && p.waiting() > 0 {
		// A worker that holds a write slot may have scanned the queue before the task came.
		if !p.unwoken.Load() {
			p.unwoken.Store(true)
		}
		if wanted = p.ready(); !wanted {
			p.watch() // its timer may have found no read, while a switch had them all
		}
	}
	if wanted {
		p.wakeOne()
	}
}

// wakeOne wakes a parked worker, and reports whether there was one.
func (p *workers) wakeOne() bool {
	w := p.idle.take()
	if w != nil {
		w.wake <- nil
	}
	return w != nil
}

// wanted reports whether there is something to run, or workers are too many.
func (p *workers) wanted() bool { return p.ready() || p.tooMany() }

// putBack puts w back on the stack, after a submitter has run a task in its place, or wakes it if it is wanted.
func (p *workers) putBack(w *worker) {
	if !p.wanted() {
		p.idle.push(w)
		// Look again, now that submitters can see w, as it would itself: see the package comment.
		if !p.wanted() && !p.stopped.Load() || !p.idle.remove(w) {
			return
		}
	}
	w.wake <- nil
}

func (p *workers) counted(t *Task, by int64) {
	if !t.Write {
		counts(p.reads.Add(by), "reads wait")
	}
}

// allow says how many turns of writes may run at once.
func (p *workers) allow(_, n int) {
	if n > 1 && p.opts.MaxBatch > 1 && !p.opts.Split {
		n-- // so that one worker is left for reads, whatever becomes of the writes
	}
	p.maxWriting.Store(int64(n))
}

// hire starts another worker if there may be one more, and reports whether it did.
func (p *workers) hire() bool {
	p.hiring.Lock()
	defer p.hiring.Unlock()
	if p.stopped.Load() || p.count.Load() >= p.limit.width.Load() {
		return false
	}
	w := &worker{wake: make(chan *Task, 1), found: p.limit.found.Load()}
	p.count.Add(1)
	p.done.Go(func() { p.work(w) })
	return true
}

func (p *workers) tooMany() bool { return p.count.Load() > p.limit.width.Load() }

// leave is called by a worker that holds no task. If there is one worker too many it reports so, and the caller is
// counted no more. It may have been woken for a task, so it wakes another.
func (p *workers) leave() bool {
	for n := p.count.Load(); n > p.limit.width.Load(); n = p.count.Load() {
		if p.count.CompareAndSwap(n, n-1) {
			p.wake()
			return true
		}
	}
	return false
}
