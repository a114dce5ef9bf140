package dispatch

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// Options say how a Dispatcher works.
type Options struct {
	// Strategy is the name of the strategy to begin with. Spec, if set, is the strategy as a
	// value, instead of the name.
	Strategy string
	Spec     strategies.Spec
	// Capacity is how many tasks may wait in each pool, up to 2^24. 0 means what each
	// strategy has by default.
	Capacity int
	// Workers is the number of workers, at least 1, or 2 if Split is set. With Grant it
	// is the number of places. With Learn it is 0.
	Workers int
	// Learn, if not nil, has the number of workers or places learned within its bounds: see
	// package concurrency. A Min that is given holds in pauses too. Learn excludes Split. Under
	// Observe the number is the upper bound and holds nobody back, so nothing is learned.
	Learn *concurrency.Options
	// Split gives reads and writes a pool each, with a queue of the full
	// capacity. Reads get half the workers, rounded up.
	Split bool
	// MaxBatch is how many writes a worker may take at once, at least 1. MaxBatchBytes
	// bounds the sum of their Task.Size, unless a single one has more; 0 means no bound.
	MaxBatch      int
	MaxBatchBytes int64
	// Run runs the tasks of one turn of a worker: a single task, or several
	// writes. It calls done once for each, before or after it returns, and
	// returns when the worker may take more work. The slice is the worker's and
	// must not be kept. Run is called by many goroutines at once.
	Run func(tasks []*Task, done func(*Task))
	// Grant, if not nil, makes the dispatcher lend out places instead of running tasks: see
	// Dispatcher.Acquire. Then Run is nil, and Split, MaxBatch and Blocked have no meaning.
	// Grant is called once for each task that Acquire did not grant its places at once, when
	// it gets them. It must not block.
	Grant func(*Task)
	// Objective is within which time tasks should be answered. Nil means one that nobody has
	// set. The dispatcher tells it of answers.
	Objective *strategies.Objective
	// Timed has every task measured that is lent places, for Task.InTime: otherwise some are.
	Timed bool
	// Observe sheds tasks only for want of room, past their deadline or when they are
	// cancelled. Events.WouldShed is told of those that the strategy would shed: where it
	// goes by the objective, of those that were answered later. See SetObserve.
	Observe bool
	// Blocked reports whether no write should be begun at present: by a worker or, if inline
	// is set, by its submitter. Such writes wait without a worker until Unblock is called;
	// everything else goes on. Blocked is called often, by many goroutines at once, and
	// sometimes under locks. Nil means never. A write may still begin a moment after Blocked
	// has become true.
	Blocked func(inline bool) bool
	// Epoch is the zero of the dispatcher's clock. The zero value means now.
	Epoch time.Time
	// Events returns the hooks for the tasks of a strategy. It is called each time that a
	// strategy becomes active. It may be nil.
	Events func(strategies.Spec) Events
	// Switched is called after a switch. It may be nil. Like Events, it must not call Switch,
	// Drain or Close.
	Switched func(from, to string)
	// Resized is called after the number of workers or places has changed, by several
	// goroutines at once, with no lock held. It may be nil.
	Resized func()
	// Broken is called when a discipline breaks a rule of its interface, once for each time
	// that its strategy becomes active. The dispatcher goes on as well as it can. Broken is
	// called under locks: it must neither block nor use the dispatcher. It may be nil.
	Broken func(strategy, rule string)
}

// Events are called at the steps of a strategy's tasks, by many goroutines at
// once. They must not block. None may be nil, but WouldShed and LateWrong.
type Events struct {
	// Submitted: a task was submitted. Continuations do not count.
	Submitted func()
	// Started: a task is about to run, having waited that long in the queue: 0
	// if it was handed straight to a worker or is run by its submitter.
	Started func(waited time.Duration)
	// Shed: a task was shed. Continuations do not count.
	Shed func(strategies.Reason)
	// WouldShed: the strategy would have shed a task. Called at most once per task, and
	// only under Options.Observe.
	WouldShed func(strategies.Reason)
	// LateWrong: a task that the strategy would have refused as late, and served to see
	// whether that is right, was answered in time.
	LateWrong func()
}

// maxCapacity is where more could not be meant: some disciplines allocate it.
const maxCapacity = 1 << 24

func (o *Options) check() error {
	least := 1
	switch {
	case o.Learn != nil:
		least = 0
	case o.Split:
		least = 2
	}
	switch {
	case o.Learn != nil && (o.Split || o.Workers != 0):
		return fmt.Errorf("dispatch: Learn excludes Split and Workers")
	case o.Workers < least:
		return fmt.Errorf("dispatch: %d workers, need at least %d", o.Workers, least)
	case o.Capacity < 0 || o.Capacity > maxCapacity:
		return fmt.Errorf("dispatch: capacity %d, need 1 to %d, or 0 for the strategy's own", o.Capacity, maxCapacity)
	case o.Grant != nil && (o.Split || o.Blocked != nil || o.Run != nil):
		return fmt.Errorf("dispatch: Grant excludes Run, Split and Blocked")
	case o.Grant != nil:
		return nil
	case o.MaxBatch < 1:
		return fmt.Errorf("dispatch: batches of %d, need at least 1", o.MaxBatch)
	case o.Run == nil:
		return fmt.Errorf("dispatch: Run is nil")
	}
	return nil
}

// Dispatcher brings tasks to workers. All methods are safe for concurrent use.
type Dispatcher struct {
	opts     Options
	epoch    time.Time
	pools    []*pool     // one, or the readers' and the writers'
	complete func(*Task) // the method completed, made once
	batches  sync.Pool   // *[1]*Task, for tasks that run inline

	// refusing is set when a drain has run out of time.
	refusing atomic.Bool
	// draining is set once Drain was called, which is told through quiet when
	// inFlight falls to 0.
	draining atomic.Bool
	quiet    chan struct{}
	// observe is whether nothing is shed that need not be. It changes under mu.
	observe atomic.Bool
	// leaving is set when nothing new is granted a place any more.
	leaving atomic.Bool

	_ [64]byte
	// inFlight counts the tasks between Submit, or Continue, and the end of
	// Done.
	inFlight atomic.Int64
	_        [56]byte

	// mu serialises switches, and keeps them away while what waits is shed.
	mu sync.Mutex
}

// Open starts the workers. Close ends them.
func Open(o Options) (*Dispatcher, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	spec := o.Spec
	byName := spec.Name == "" && spec.New == nil
	if byName {
		var err error
		if spec, err = strategies.Lookup(o.Strategy); err != nil {
			return nil, err
		}
	}
	if o.Events == nil {
		silent := Events{Submitted: func() {}, Started: func(time.Duration) {}, Shed: func(strategies.Reason) {}}
		o.Events = func(strategies.Spec) Events { return silent }
	}
	if o.Switched == nil {
		o.Switched = func(string, string) {}
	}
	if o.Broken == nil {
		o.Broken = func(string, string) {}
	}
	if o.Blocked == nil {
		o.Blocked = func(bool) bool { return false }
	}
	if o.Grant != nil {
		o.MaxBatch = 1
		o.Run = func(tasks []*Task, _ func(*Task)) {
			tasks[0].granted = 0
			o.Grant(tasks[0])
		}
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = math.MaxInt64
	}
	if o.Epoch.IsZero() {
		o.Epoch = time.Now()
	}
	if o.Objective == nil {
		o.Objective = new(strategies.Objective)
	}
	d := &Dispatcher{opts: o, epoch: o.Epoch, quiet: make(chan struct{}, 1)}
	d.observe.Store(o.Observe)
	d.complete = d.completed
	d.batches.New = func() any { return new([1]*Task) }
	if o.Split {
		readers := (o.Workers + 1) / 2
		d.pools = []*pool{newPool(d, readers), newPool(d, o.Workers-readers)}
	} else {
		d.pools = []*pool{newPool(d, max(1, o.Workers))}
	}
	if o.Learn != nil {
		l, err := newLearning(d, *o.Learn)
		if err != nil {
			return nil, err
		}
		d.pools[0].learn(l)
	}
	if err := d.activateLocked(spec, byName); err != nil { // nobody else knows d yet
		return nil, err
	}
	for _, p := range d.pools {
		p.start()
	}
	return d, nil
}

// Now returns the time on the clock of Task.Arrival and Task.Deadline, in
// nanoseconds.
func (d *Dispatcher) Now() int64 { return int64(time.Since(d.epoch)) }

// Submit takes over t until it calls t.Done once, which may be before Submit returns. It
// runs the task itself if the strategy says so. It reports whether the task may have to
// wait: then Cancel may give it up when its time is over.
func (d *Dispatcher) Submit(t *Task) (waits bool) {
	d.inFlight.Add(1)
	t.reset()
	return d.poolOf(t).submit(t)
}

// Continue takes over t once more, to go on with what it began in an earlier turn. It is
// run in turns with the queue, and shed only if a drain runs out of time.
func (d *Dispatcher) Continue(t *Task) {
	d.inFlight.Add(1)
	t.Shed, t.continued = strategies.ReasonNone, true // its client takes part in the time from now on
	d.poolOf(t).resume(t)
}

// Unblock is called after Options.Blocked has become false. It never blocks.
func (d *Dispatcher) Unblock() {
	for _, p := range d.pools {
		p.wakeIfRunnable()
	}
}

// Cancel gives t up for the given reason if it still waits, and reports whether it did:
// t.Done has then been called. Otherwise t has been started or shed, or its discipline
// cannot give it up, and Done is called when t ends.
//
// Only the submitter of t may call Cancel, and only before it has submitted t
// again.
func (d *Dispatcher) Cancel(t *Task, reason strategies.Reason) bool {
	p := d.poolOf(t)
	if t.Strategy == "" || !p.remove(t) {
		return false // it was never submitted, or does not wait
	}
	if p.places != nil && p.places.gathering() {
		p.grant(d.Now()) // it may have gathered places
	}
	d.shed(t, reason)
	return true
}

func (d *Dispatcher) poolOf(t *Task) *pool {
	if t.Write {
		return d.pools[len(d.pools)-1]
	}
	return d.pools[0]
}

// runInline runs t on the goroutine of its submitter.
func (d *Dispatcher) runInline(t *Task) {
	batch := d.batches.Get().(*[1]*Task)
	batch[0] = t
	d.opts.Run(batch[:], d.complete)
	batch[0] = nil
	d.batches.Put(batch)
}

func (d *Dispatcher) shed(t *Task, reason strategies.Reason) {
	t.Shed = reason
	t.queue.eventsOf(t).Shed(reason)
	d.completed(t)
}

// completed gives t back to its submitter. Nobody here may touch it any more.
func (d *Dispatcher) completed(t *Task) {
	if t.Shed == strategies.ReasonNone && !t.continued && t.timed() {
		d.answered(t, t.Started, d.Now(), Good)
	}
	t.Done(t)
	d.left()
}

// answered tells what follows from when t, which began to run at that time, was answered.
func (d *Dispatcher) answered(t *Task, began, now int64, how Outcome) {
	p := t.queue.pool
	if how == Good && began != 0 && t.alone.Load() && p.calm() {
		d.opts.Objective.Answered(now - began)
	}
	inForce := int64(d.opts.Objective.InForce())
	late := inForce != 0 && now-t.Arrival > inForce
	t.InTime = how == Good && !late
	switch {
	case t.probe && t.InTime:
		t.LateWrong = true
		t.queue.eventsOf(t).LateWrong()
	case late && d.observe.Load() && t.queue.spec.ByObjective && t.Spared == strategies.ReasonNone:
		t.Spared = strategies.ReasonLate
		t.queue.eventsOf(t).WouldShed(strategies.ReasonLate)
	}
	t.probe = false
}

// calm reports whether nothing waits and at most half of the workers, or places, would be in
// use: what is measured then is what the work takes by itself. What runs without a place, as
// under a strategy without a queue, counts too. Where a learned number holds nobody back, it
// takes one alone.
func (p *pool) calm() bool {
	half := int64(p.width() / 2)
	if p.learning.Load() != nil && p.d.observe.Load() {
		half = 0
	}
	return p.d.inFlight.Load() <= max(1, half)
}

// left counts a task less in flight.
func (d *Dispatcher) left() {
	if d.inFlight.Add(-1) == 0 && d.draining.Load() {
		d.tellQuiet()
	}
}

func (d *Dispatcher) tellQuiet() {
	select {
	case d.quiet <- struct{}{}:
	default:
	}
}

// Switch makes the strategy of that name the active one, and moves what waits into
// it, in order of arrival and by its rules: see the package comment. New tasks go to the
// new strategy from the beginning, without waiting for the move. The error for an unknown
// name wraps strategies.ErrUnknown. Nothing happens if that strategy is active already,
// unless it was given as a value.
func (d *Dispatcher) Switch(name string) error {
	spec, err := strategies.Lookup(name)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if q := d.pools[0].active.Load(); q.byName && q.spec.Name == name {
		return nil
	}
	return d.switchLocked(spec, true)
}

// SwitchTo is Switch to a strategy that is given as a value, even if the active one has the
// same name. The error is that of Spec.Check.
func (d *Dispatcher) SwitchTo(spec strategies.Spec) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.switchLocked(spec, false)
}

func (d *Dispatcher) switchLocked(spec strategies.Spec, byName bool) error {
	former := d.pools[0].active.Load()
	if err := d.activateLocked(spec, byName); err != nil {
		return err
	}
	d.opts.Switched(former.spec.Name, spec.Name)
	return nil
}

// SetObserve changes whether the dispatcher only observes. The active strategy begins anew,
// with what waits; a learned number holds again, or holds nobody back. Switched is not told.
func (d *Dispatcher) SetObserve(observe bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.observe.Swap(observe) == observe {
		return nil
	}
	hold := func() {
		for _, p := range d.pools {
			if l := p.learning.Load(); l != nil {
				p.resize(func() int { return p.enforced(l) })
			}
		}
	}
	hold()
	q := d.pools[0].active.Load()
	if err := d.activateLocked(q.spec, q.byName); err != nil {
		d.observe.Store(!observe)
		hold()
		return err
	}
	return nil
}

// Objective returns the objective. Whoever sets it changes what is in force at once.
func (d *Dispatcher) Objective() *strategies.Objective { return d.opts.Objective }

func (d *Dispatcher) activateLocked(spec strategies.Spec, byName bool) error {
	if err := spec.Check(); err != nil {
		return err
	}
	disciplines := make([]strategies.Discipline, len(d.pools))
	widths := make([]int, len(d.pools))
	for i, p := range d.pools {
		widths[i] = p.width()
		disciplines[i] = spec.New(strategies.Config{
			Capacity: spec.CapacityOr(d.opts.Capacity), Workers: max(1, widths[i]), Objective: d.opts.Objective, Observe: d.observe.Load(),
		})
		if disciplines[i] == nil {
			return fmt.Errorf("strategy %q: New returned no discipline", spec.Name)
		}
	}
	events := d.opts.Events(spec)
	if events.WouldShed == nil {
		events.WouldShed = func(strategies.Reason) {}
	}
	if events.LateWrong == nil {
		events.LateWrong = func() {}
	}
	for i, p := range d.pools {
		q := newQueue(p, spec, disciplines[i], events)
		q.byName = byName
		p.activate(q, widths[i])
	}
	return nil
}

// Status describes the active strategy.
type Status struct {
	Strategy string
	// Workers is the number of workers, 0 if the strategy uses none.
	Workers int
	// Capacity is how many tasks may wait: the sum over split pools, 0 if none
	// ever waits, or strategies.Unbounded.
	Capacity int
	// Observe is whether the dispatcher only observes.
	Observe bool
	// Learned tells how Workers was learned, nil if it is set.
	Learned *Learned
}

// Status returns the active strategy with its workers and capacity.
func (d *Dispatcher) Status() Status {
	s := Status{Observe: d.observe.Load()}
	for _, p := range d.pools {
		q := p.active.Load()
		s.Strategy, s.Learned = q.spec.Name, p.learned()
		if !q.spec.Inline {
			s.Workers += p.number()
		}
		if c := q.discipline.Cap(); c == strategies.Unbounded {
			s.Capacity = c
		} else {
			s.Capacity += c
		}
	}
	return s
}

// Gauge is the state of the queue, summed over split pools.
type Gauge struct {
	Strategy string
	// Depth is how many tasks wait.
	Depth int
	// Capacity is how many may wait, or strategies.Unbounded.
	Capacity int
	// Workers and Busy are how many workers there are and how many of them are
	// at work, 0 if the strategy uses none.
	Workers, Busy int
	// Limit is how many tasks the strategy lets wait at present, 0 if it has no such limit.
	// Pace is the time from one task begun to the next, as the strategy measures it, 0 if it
	// does not; of split pools it is the longer one.
	Limit int
	Pace  time.Duration
	// Learned tells how Workers was learned, nil if it is set.
	Learned *Learned
}

// Gauge returns the state of the queue.
func (d *Dispatcher) Gauge() Gauge {
	g := d.pools[0].gauge()
	for _, p := range d.pools[1:] {
		other := p.gauge()
		g.Depth += other.Depth
		g.Workers += other.Workers
		g.Busy += other.Busy
		g.Limit += other.Limit
		g.Pace = max(g.Pace, other.Pace)
		if g.Capacity != strategies.Unbounded {
			g.Capacity += other.Capacity
		}
	}
	return g
}

// Pools returns the state of each of split pools: that of the readers and that of
// the writers. It is nil if they are not split.
func (d *Dispatcher) Pools() []Gauge {
	if len(d.pools) == 1 {
		return nil
	}
	gauges := make([]Gauge, len(d.pools))
	for i, p := range d.pools {
		gauges[i] = p.gauge()
	}
	return gauges
}

func (p *pool) gauge() Gauge {
	q := p.active.Load()
	g := Gauge{Strategy: q.spec.Name, Depth: p.waiting() + p.move.inHand(), Capacity: q.discipline.Cap()}
	if !q.spec.Inline {
		g.Workers, g.Busy = p.number(), p.busy()
	}
	g.Learned = p.learned()
	if m, ok := q.discipline.(strategies.Measurer); ok {
		measured := m.Measured()
		g.Limit, g.Pace = measured.Limit, time.Duration(measured.Pace)
	}
	return g
}

// DrainTime estimates how long the workers need for all that waits: the mean
// time that they spend on a task, times the tasks of each pool over its
// workers. It is the longer of two pools.
func (d *Dispatcher) DrainTime() time.Duration {
	var longest int64
	for _, p := range d.pools {
		waiting := p.waiting() + p.lines.continuations.len()
		longest = max(longest, drainTime(p.service.Load(), int64(waiting), int64(max(1, p.width()))))
	}
	return time.Duration(longest)
}

// drainTime returns service*waiting/width, or the longest there is.
func drainTime(service, waiting, width int64) int64 {
	high, low := bits.Mul64(uint64(max(0, service)), uint64(max(0, waiting)))
	if high >= uint64(width) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(width))
	return int64(min(quotient, math.MaxInt64))
}

// Drain waits until no task is in flight. If ctx ends before, it sheds all that
// waits and returns the error of ctx; tasks that have been started may still be
// running then. Once ctx has ended, all that is submitted is shed.
func (d *Dispatcher) Drain(ctx context.Context) error {
	d.draining.Store(true)
	for d.inFlight.Load() != 0 {
		select {
		case <-d.quiet:
		case <-ctx.Done():
			d.refusing.Store(true)
			for _, p := range d.pools {
				p.shedWaiting(strategies.ReasonDraining)
			}
			return ctx.Err()
		}
	}
	if ctx.Err() != nil {
		d.refusing.Store(true) // also what is between two turns now
	}
	d.tellQuiet() // for others who wait
	return nil
}

// Leave has whatever comes from now on shed as draining, where places are lent. What
// waits goes on.
func (d *Dispatcher) Leave() { d.leaving.Store(true) }

// Close ends the workers, once they have run what waits. Writes that are blocked
// by then are shed. Nothing may be submitted any more. Where places are lent, all that
// waits or comes is shed, and what is held may still be given back.
func (d *Dispatcher) Close() {
	if d.opts.Grant != nil {
		d.refusing.Store(true)
	}
	for _, p := range d.pools {
		p.stop()
	}
}
