package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Mode says what becomes of requests that a strategy would turn away.
type Mode uint8

const (
	// Enforce has them turned away.
	Enforce Mode = iota
	// Observe serves them all the same, and calls Options.Shed for them. The order is the
	// strategy's. The capacity and the deadlines of contexts still hold.
	Observe
)

// String returns enforce or observe.
func (m Mode) String() string {
	if m == Observe {
		return "observe"
	}
	return "enforce"
}

// NoObjective is the Objective of those who want nobody turned away for being late.
const NoObjective = strategies.NoObjective

// Options say how a Controller works. The zero value of each field is its default.
type Options struct {
	// Strategy is the name of the strategy, auto by default: see strategies.Names.
	Strategy string
	// Spec is a strategy as a value, instead of Strategy: your own, or one with options,
	// such as strategies.CoDel returns.
	Spec strategies.Spec
	// Concurrency is how many places there are, 1 to 1,048,576: that many requests of cost
	// 1 run at once. With 0 the number is learned from how long requests take while others
	// wait, see package concurrency. Under Observe a learned number holds nobody back, and
	// nothing is learned.
	Concurrency int
	// MinConcurrency and MaxConcurrency bound a learned number: 1 and 10,000 by default. A
	// MinConcurrency that is given is never undercut. Without one, nobody is let through for
	// some seconds if all time out, see docs/concurrency.md.
	MinConcurrency, MaxConcurrency int
	// InitialConcurrency is what a learned number begins with: 4, or the nearest bound, by
	// default. Give it where requests take seconds, or the number takes minutes to grow.
	InitialConcurrency int
	// Capacity is how many requests may wait, 1 to 16,777,216. The default is that of the
	// active strategy: 4,096 for auto, 256 for the others.
	Capacity int
	// Mode is Enforce by default.
	Mode Mode
	// Objective is within which time requests should be answered, counted from Acquire: 100µs
	// to an hour. auto turns away what would be later. By default it is 100 ms or, if that is
	// longer, a multiple of the usual time that requests take: see strategies.Objective. With
	// NoObjective nobody is turned away for being late.
	Objective time.Duration

	// Weight returns the share of a client in proportion to the others under fair, 1 to 1,000. It is called under a
	// lock: it should be quick and must not panic. Nil means 1 for all.
	Weight func(client string) int

	// Admitted is called for each request that gets its places, Shed for each that is
	// turned away (under Observe: would be), and Released for each that gives its places
	// back. They run on the goroutine that calls Acquire or Done, with no lock held.
	// They may be nil.
	Admitted, Shed, Released func(Event)
	// LimitChanged is called when the number of places has changed, as Stats.Concurrency
	// has it, because another was learned or set. It is called soon after, on a goroutine of
	// its own, one call after the other. Of several changes at once it may get only the
	// last. It may be nil.
	LimitChanged func(from, to int)
	// Broken is called when a strategy breaks a rule of strategies.Discipline, once for
	// each time that it becomes active. The controller goes on as well as it can. Broken
	// is called under locks: it must neither block nor use the controller. It may be nil.
	Broken func(strategy, rule string)
}

// Event is what became of a request.
type Event struct {
	// Strategy is the name of the strategy that was active when the request came.
	Strategy string
	Request  Request
	// Waited is how long the request waited for its places, 0 if it had them at once.
	Waited time.Duration
	// Held is how long it had them; only for Released.
	Held time.Duration
	// Reason says why it was turned away; only for Shed.
	Reason strategies.Reason
	// Observed says that Observe has kept it from being turned away; only for Shed. Of a
	// request that is late that is known, and Shed called, when it gives its places back.
	Observed bool
	// InTime says that it was Good, and answered within the objective, and LateWrong that it
	// was so although the strategy would have turned it away as late: of a hundred of those,
	// one is let through to see. Only for Released.
	InTime, LateWrong bool
}

// Request describes a request for places. The zero value is an ordinary request.
type Request struct {
	// Priority is how important it is: 1 to 7, 1 being more important, as the urgencies
	// of RFC 9218. 0 is ordinary, which is 3, and urgency 0 is strategies.MostImportant.
	Priority strategies.Priority
	// Client is whose request it is, for strategies that are fair to clients.
	Client string
	// Route says what kind of request it is: fair expects what no client has asked for yet to take as long as others of
	// its route. It may be empty.
	Route string
	// Cost is how many places it takes: 1 if it is 0, and at most all there are.
	Cost int
}

const (
	maxConcurrency = 1 << 20
	maxCapacity    = 1 << 24
)

func (o *Options) setDefaults() {
	if o.Strategy == "" && o.Spec.Name == "" && o.Spec.New == nil {
		o.Strategy = "auto"
	}
}

func (o *Options) check() error {
	least := max(o.MinConcurrency, 1)
	most := cmp.Or(o.MaxConcurrency, max(concurrency.DefaultMax, least))
	switch {
	case o.Strategy != "" && (o.Spec.Name != "" || o.Spec.New != nil):
		return fmt.Errorf("admission: Strategy is %q although Spec is given, one of them is allowed", o.Strategy)
	case checkCapacity(o.Capacity) != nil:
		return checkCapacity(o.Capacity)
	case o.MinConcurrency < 0 || o.MinConcurrency > maxConcurrency:
		return fmt.Errorf("admission: MinConcurrency is %d, 1 to %d is allowed, or 0 for 1", o.MinConcurrency, maxConcurrency)
	case o.MaxConcurrency < 0 || o.MaxConcurrency > maxConcurrency:
		return fmt.Errorf("admission: MaxConcurrency is %d, 1 to %d is allowed, or 0 for %d", o.MaxConcurrency, maxConcurrency, concurrency.DefaultMax)
	case o.MaxConcurrency != 0 && o.MinConcurrency > o.MaxConcurrency:
		return fmt.Errorf("admission: MinConcurrency is %d, which is more than MaxConcurrency, %d", o.MinConcurrency, o.MaxConcurrency)
	case o.InitialConcurrency != 0 && (o.InitialConcurrency < least || o.InitialConcurrency > most):
		return fmt.Errorf("admission: InitialConcurrency is %d, %d to %d is allowed, or 0 for the default", o.InitialConcurrency, least, most)
	}
	return cmp.Or(checkMode(o.Mode), checkObjective(o.Objective), checkConcurrency(o.Concurrency))
}

func checkCapacity(n int) error {
	if n < 0 || n > maxCapacity {
		return fmt.Errorf("admission: Capacity is %d, 1 to %d is allowed, or 0 for the default", n, maxCapacity)
	}
	return nil
}

func checkMode(m Mode) error {
	if m > Observe {
		return fmt.Errorf("admission: Mode is %d, Enforce (%d) and Observe (%d) are allowed", m, Enforce, Observe)
	}
	return nil
}

func checkObjective(d time.Duration) error {
	if strategies.CheckObjective(d) != nil {
		return fmt.Errorf("admission: Objective is %v, %v to %v is allowed, 0 for the default, or NoObjective", d, strategies.ShortestObjective, strategies.LongestObjective)
	}
	return nil
}

func checkConcurrency(n int) error {
	if n < 0 || n > maxConcurrency {
		return fmt.Errorf("admission: Concurrency is %d, 1 to %d is allowed, or 0 to have it learned", n, maxConcurrency)
	}
	return nil
}

func (o *Options) bounds() *concurrency.Options {
	return &concurrency.Options{Min: o.MinConcurrency, Max: o.MaxConcurrency, Initial: o.InitialConcurrency}
}

// Controller lets requests through. All methods are safe for concurrent use.
type Controller struct {
	opts    Options
	engine  *dispatch.Places
	epoch   time.Time // the zero of the engine's clock
	waiters sync.Pool // *waiter
	closed  atomic.Bool
	// resized counts the changes of the number of places that LimitChanged has to be called for.
	// Whoever counts the first starts the goroutine that calls it for all. places is what that
	// has passed last, or the first number.
	resized atomic.Int64
	places  int
	group   *Group // nil if there is one resource
}

// New returns a controller. An error names the option, its value and what is allowed.
func New(o Options) (*Controller, error) { return open(o, nil) }

// open is New before these resources.
func open(o Options, resources []string) (*Controller, error) {
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	c := &Controller{opts: o, epoch: time.Now()}
	c.waiters.New = func() any { return c.newWaiter() }
	engine := dispatch.Options{
		Strategy: o.Strategy, Spec: o.Spec, Capacity: o.Capacity, Workers: o.Concurrency,
		Grant: granted, Observe: o.Mode == Observe, Epoch: c.epoch, Broken: o.Broken,
		Objective: new(strategies.Objective), Timed: o.Released != nil, Weight: o.Weight, Resources: resources,
	}
	_ = engine.Objective.Set(o.Objective) // has been checked
	if o.Concurrency == 0 {
		engine.Learn = o.bounds()
	}
	if o.LimitChanged != nil {
		engine.Resized = c.limitChanged
	}
	var err error
	c.engine, err = dispatch.Lend(engine)
	if err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	c.places = c.engine.Gauge().Workers
	return c, nil
}

// limitChanged has LimitChanged called on a goroutine of its own: whoever changes the number is
// about to hand places on.
func (c *Controller) limitChanged() {
	if c.resized.Add(1) == 1 {
		go c.callLimitChanged()
	}
}

// callLimitChanged calls LimitChanged until nobody has counted another change.
func (c *Controller) callLimitChanged() {
	for seen := int64(1); ; {
		from := c.places
		if c.places = c.engine.Gauge().Workers; c.places != from {
			c.opts.LimitChanged(from, c.places)
		}
		if c.resized.CompareAndSwap(seen, 0) {
			return
		}
		seen = c.resized.Load()
	}
}

// Acquire waits until r has its places, and returns the permit, which has to be given back.
// The context's deadline is when the request stops waiting.
//
// If ctx belongs to a request that has places of c already, see Permit.Context, r is part of
// that: Acquire returns at once, with a permit that holds none.
//
// The error is a *ShedError, or says what is wrong with r. If the context ends while r waits,
// it also wraps the context's. If the places come at that very moment, Acquire may return the
// permit instead.
func (c *Controller) Acquire(ctx context.Context, r Request) (Permit, error) {
	if r.Cost < 0 {
		return Permit{}, fmt.Errorf("admission: Cost is %d, at least 1 is allowed, or 0 for 1", r.Cost)
	}
	if held, ok := ctx.Value(c).(Permit); ok && held.valid() {
		return Permit{}, nil
	}
	if err := ctx.Err(); err != nil {
		return Permit{}, c.refused(Event{Strategy: c.engine.Gauge().Strategy, Request: r, Reason: reasonOf(err)}, err)
	}
	w := c.waiter(r)
	var deadline int64
	if d, ok := ctx.Deadline(); ok {
		deadline = max(1, int64(d.Sub(c.epoch)))
		w.task.Deadline = deadline
	}
	if c.engine.Acquire(&w.task) {
		return c.admitted(w), nil
	}
	if e, ended := c.await(ctx, w, r, deadline); e.Reason != strategies.ReasonNone {
		return Permit{}, c.refused(e, ended)
	}
	return c.admitted(w), nil
}

// await waits until w has its places, or has been turned away: then it returns why, and with which error of ctx, and w
// is another's.
func (c *Controller) await(ctx context.Context, w *waiter, r Request, deadline int64) (e Event, ended error) {
	e = Event{Strategy: w.task.Strategy, Request: r}
	select {
	case <-w.decided:
	case <-ctx.Done():
		ended = ctx.Err()
		e.Reason, e.Waited = reasonOf(ended), c.waited(w)
		if !c.engine.Cancel(&w.task, reasonOf(ended)) && w.end() {
			return e, ended // the strategy cannot give it up before its turn; who decides on it looks after the rest
		}
		<-w.decided
	}
	if e.Reason = w.task.Shed; e.Reason == strategies.ReasonNone {
		return e, nil
	}
	e.Waited = c.waited(w)
	c.recycle(w)
	if ended == nil && e.Reason == strategies.ReasonExpired && c.engine.Now() >= deadline {
		ended = context.DeadlineExceeded // the engine has seen it first
	}
	return e, ended
}

// waited returns for how long w has waited, for Options.Shed.
func (c *Controller) waited(w *waiter) time.Duration {
	if c.opts.Shed == nil || w.task.Submitted == 0 {
		return 0
	}
	return time.Duration(c.engine.Now() - w.task.Submitted)
}

// TryAcquire returns a permit if r can have its places without waiting, and reports
// whether it does. A request whose Cost is less than 0 never does.
func (c *Controller) TryAcquire(r Request) (Permit, bool) {
	if r.Cost < 0 {
		return Permit{}, false
	}
	w := c.waiter(r)
	if !c.engine.TryAcquire(&w.task) {
		c.recycle(w)
		return Permit{}, false
	}
	return c.admitted(w), true
}

// Do calls f once r has its places, and gives them back when f returns or panics. The context
// of f is that of Permit.Context. The error is that of Acquire or of f. If f fails because a
// deadline has passed, the request was Dropped. It is Ignored if ctx was cancelled or f panics.
// With any other error it has Failed, so f should return nil for an answer such as "not found".
func (c *Controller) Do(ctx context.Context, r Request, f func(context.Context) error) error {
	p, err := c.Acquire(ctx, r)
	if err != nil {
		return err
	}
	how := Ignored
	defer func() { p.Done(how) }()
	err = f(p.Context(ctx))
	how = outcome(ctx, err)
	return err
}

// outcome says how a request ended that has returned err.
func outcome(ctx context.Context, err error) Outcome {
	switch {
	case err == nil:
		return Good
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Dropped
	case errors.Is(err, context.Canceled), ctx.Err() != nil:
		return Ignored
	default:
		return Failed
	}
}

// set makes a change that is in order, unless it comes after Close.
func (c *Controller) set(invalid error, change func() error) error {
	if err := cmp.Or(c.usable(), invalid); err != nil {
		return err
	}
	if err := change(); err != nil {
		return fmt.Errorf("admission: %w", err)
	}
	return nil
}

// usable returns an error after Close.
func (c *Controller) usable() error {
	if c.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Switch changes the strategy. What waits is moved into the new one in order of arrival,
// by the new one's rules; none is lost. The error for an unknown name wraps
// strategies.ErrUnknown and lists the choices.
func (c *Controller) Switch(strategy string) error {
	return c.set(nil, func() error { return c.engine.Switch(strategy) })
}

// SwitchTo is Switch to a strategy that is given as a value.
func (c *Controller) SwitchTo(s strategies.Spec) error {
	return c.set(nil, func() error { return c.engine.SwitchTo(s) })
}

// SetConcurrency changes how many places there are, 1 to 1,048,576. If more are in use,
// nobody gets a place until enough are given back. 0 has the number learned from now on,
// within the bounds of Options; any other number ends the learning.
func (c *Controller) SetConcurrency(n int) error {
	return c.set(checkConcurrency(n), func() error {
		if n == 0 {
			return c.engine.Learn(*c.opts.bounds())
		}
		c.engine.Resize(n)
		return nil
	})
}

// SetCapacity changes Options.Capacity. The strategy begins anew, with what waits; what has no
// room then is turned away by its rules.
func (c *Controller) SetCapacity(n int) error {
	return c.set(checkCapacity(n), func() error { return c.engine.SetCapacity(n) })
}

// SetObjective changes Options.Objective. It holds at once, for what waits too.
func (c *Controller) SetObjective(d time.Duration) error {
	return c.set(checkObjective(d), func() error { return c.engine.Objective().Set(d) })
}

// Objective returns the objective, which says what is in force at each moment.
func (c *Controller) Objective() *strategies.Objective { return c.engine.Objective() }

// SetMode changes Options.Mode. The strategy begins anew, with what waits.
func (c *Controller) SetMode(m Mode) error {
	return c.set(checkMode(m), func() error { return c.engine.SetObserve(m == Observe) })
}

// Stats is the state of a controller at one moment.
type Stats struct {
	Strategy string
	Mode     Mode
	// Objective says which objective is set, which is in force, and why.
	Objective strategies.ObjectiveState
	// Concurrency is how many places there are, and InUse how many are taken. InUse is the
	// greater one for a while after Concurrency has fallen, and under Observe if the number
	// would be learned.
	Concurrency, InUse int
	// Learned says how Concurrency was learned; nil if it is set.
	Learned *Learned
	// Waiting is how many requests wait, and Capacity how many may: 0 if none ever does,
	// strategies.Unbounded if there is no bound.
	Waiting, Capacity int
	// Limit is how many requests the strategy lets wait at present, 0 if it has no such
	// limit. Pace is the time between two requests let through while others wait, as the
	// strategy measures it, 0 if it does not.
	Limit int
	Pace  time.Duration
	// Drain estimates how long it takes until all that waits is let through.
	Drain time.Duration
}

// Learned is the state of a learned number of places.
type Learned = dispatch.Learned

// Stats returns the present state.
func (c *Controller) Stats() Stats {
	g, mode := c.engine.Gauge(), Enforce
	if g.Observe {
		mode = Observe
	}
	return Stats{
		Strategy: g.Strategy, Mode: mode, Objective: c.engine.Objective().State(), Concurrency: g.Workers, InUse: g.Busy, Learned: g.Learned,
		Waiting: g.Depth, Capacity: g.Capacity, Limit: g.Limit, Pace: g.Pace, Drain: c.engine.DrainTime(),
	}
}

// Drain turns away new requests, for the reason draining. It returns when all that waits
// has been let through and all permits have been released. If ctx ends before that, Drain
// turns away what still waits, and returns the error of ctx.
func (c *Controller) Drain(ctx context.Context) error {
	c.engine.Leave()
	return c.engine.Drain(ctx)
}

// Close turns away what waits and all new requests, for the reason draining; the errors
// are also ErrClosed, as are those of Switch, SwitchTo and the setters. Permits can still be
// given back. Close may be called more than once.
func (c *Controller) Close() {
	c.closed.Store(true)
	c.engine.Leave()
	c.engine.Close()
}

func reasonOf(err error) strategies.Reason {
	if errors.Is(err, context.DeadlineExceeded) {
		return strategies.ReasonExpired
	}
	return strategies.ReasonAbandoned
}
