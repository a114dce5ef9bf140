package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
	"github.com/spillway-go/spillway/strategies/health"
)

// Group is a Controller before several resources that do the same work, such as the replicas of a service: one queue for
// all, and for each its own number of places, given or learned. A request takes one place, whatever its Cost, of the
// resource with the lowest utilisation, in use ÷ concurrency: see Permit.Resource. So nothing waits for a slow resource
// while another has a place.
//
// A resource rests, that is, it is ejected, if it cannot be reached, or if three requests in a row were Dropped or Failed,
// or more if the others do badly too: see package health. Then it gets one request, and gradually more. The last one is
// never ejected.
type Group struct {
	*Controller
	probe  func(ctx context.Context, resource string) error
	rests  func(resource string, rests bool)
	health health.Set
	// members are those of now, with their health. They change under mu.
	members atomic.Pointer[[]*member]
	mu      sync.Mutex // before any lock of the engine
	end     context.Context
	stop    context.CancelFunc
	probing sync.WaitGroup
}

// member is a resource with its health.
type member struct {
	*dispatch.Resource
	health *health.Member
	bound  int         // what the resource may run; under Group.mu
	timer  *time.Timer // of the end of its ejection; under Group.mu
	at     int64       // that end
	since  time.Time   // when it was last healthy, zero if it is; under Group.mu
}

// GroupOptions are the Options of a Group, and what else it needs.
type GroupOptions struct {
	Options
	// Resources are the names of the resources, at least one and none twice.
	Resources []string
	// Probe is called when the time of an ejection is over, and returns nil if the resource can be reached. Until it
	// returns, nothing is sent there. Nil means that the next request is the probe.
	Probe func(ctx context.Context, resource string) error
	// Rests is called when a resource is ejected, and when it is healthy again. It must neither block nor use the
	// group. It may be nil.
	Rests func(resource string, rests bool)
}

// ErrUnreached says, in the error of what Group.Do calls, that the request did not reach its resource, so that another
// can do it.
var ErrUnreached = errors.New("admission: the resource was not reached")

// NewGroup returns a group. An error names the option, its value and what is allowed.
func NewGroup(o GroupOptions) (*Group, error) {
	if err := checkResources(o.Resources); err != nil {
		return nil, err
	}
	c, err := open(o.Options, o.Resources)
	if err != nil {
		return nil, err
	}
	g := &Group{Controller: c, probe: o.Probe, rests: o.Rests}
	g.end, g.stop = context.WithCancel(context.Background())
	c.group = g
	g.refresh()
	return g, nil
}

func checkResources(names []string) error {
	if len(names) == 0 {
		return errors.New("admission: Resources are none, at least one is needed")
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("admission: the resource %q is given twice, once is allowed", name)
		}
	}
	return nil
}

// SetResources changes GroupOptions.Resources. One whose name was there before goes on as it is; requests that have
// places of one that is gone keep them. What is new learns its own number, if the others do.
func (g *Group) SetResources(names []string) error {
	if err := cmp.Or(checkResources(names), g.usable()); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.engine.SetResources(names)
	g.refresh()
	g.apply()
	return nil
}

// refresh makes the members those of the engine's resources.
func (g *Group) refresh() {
	var former, members []*member
	if now := g.members.Load(); now != nil {
		former = *now
	}
	for _, r := range g.engine.Resources() {
		i := slices.IndexFunc(former, func(m *member) bool { return m.Resource == r })
		if i >= 0 {
			members = append(members, former[i])
		} else {
			h := g.health.Add()
			members = append(members, &member{Resource: r, health: h, bound: h.Allowed()})
		}
	}
	g.members.Store(&members)
	for _, m := range former {
		if !slices.Contains(members, m) {
			g.health.Remove(m.health)
			g.forget(m)
		}
	}
}

// Close is that of the Controller. It also waits for probes that are under way.
func (g *Group) Close() {
	g.Controller.Close()
	g.stop()
	g.mu.Lock()
	for _, m := range *g.members.Load() {
		g.forget(m)
	}
	g.mu.Unlock()
	g.probing.Wait()
}

// forget has the pause of m never end. The caller holds mu.
func (g *Group) forget(m *member) {
	if m.timer != nil && m.timer.Stop() {
		g.probing.Done()
	}
}

// Do calls f once r has its place, with the name of the resource, and gives it back when f returns or panics. The
// context of f is that of Permit.Context. If the error of f is ErrUnreached, f is called again once r has a place of
// another resource, which it gets before all that wait. Otherwise Do is as that of the Controller.
func (g *Group) Do(ctx context.Context, r Request, f func(ctx context.Context, resource string) error) error {
	p, err := g.Acquire(ctx, r)
	for tried := []string(nil); err == nil; {
		resource := p.Resource()
		if held, ok := ctx.Value(g.Controller).(Permit); ok && p.waiter == nil {
			resource = held.Resource() // r is part of what that does
		}
		if err = g.run(ctx, p, resource, f); !errors.Is(err, ErrUnreached) {
			return err
		}
		tried = append(tried, resource)
		var again error
		if p, again = g.Again(ctx, p); again != nil {
			return errors.Join(err, again)
		}
		if slices.Contains(tried, p.Resource()) {
			p.Done(Ignored)
			return err
		}
		err = nil
	}
	return err
}

// run calls f, and ends p unless the resource was not reached.
func (g *Group) run(ctx context.Context, p Permit, resource string, f func(context.Context, string) error) (err error) {
	how := Ignored
	defer func() {
		if !errors.Is(err, ErrUnreached) {
			p.Done(how)
		}
	}()
	err = f(p.Context(ctx), resource)
	how = outcome(ctx, err)
	return err
}

// Again gives the place of p back, whose resource could not be reached, and waits for a place of another, before all
// that wait. The permit is p, on that resource. With an error p has none any more: it is a *ShedError, or ErrUnreached
// if all others rest.
func (g *Group) Again(ctx context.Context, p Permit) (Permit, error) {
	w := p.waiter
	if w == nil || !w.generation.CompareAndSwap(p.generation, p.generation+1) {
		return Permit{}, errors.New("admission: the permit was given back")
	}
	g.ended(w, Unreached)
	on := w.task.On()
	if !slices.ContainsFunc(*g.members.Load(), func(m *member) bool { return m.Name != on.Name && m.health.Allowed() > 0 }) {
		g.Controller.end(w, Ignored)
		return Permit{}, ErrUnreached
	}
	w.ended = w.ends.Load()
	last := w.event()
	last.Held = time.Since(w.admitted)
	r := Request{Priority: w.task.Priority, Client: w.task.Client, Route: w.task.Route, Cost: w.task.Cost}
	if !g.engine.Move(&w.task) {
		var deadline int64
		if d, ok := ctx.Deadline(); ok {
			deadline = max(1, int64(d.Sub(g.epoch)))
		}
		if e, ended := g.await(ctx, w, r, deadline); e.Reason != strategies.ReasonNone {
			if g.opts.Released != nil { // and not Shed, which is for those that had no place
				g.opts.Released(last)
			}
			return Permit{}, &ShedError{Reason: e.Reason, cause: ended, closed: g.closed.Load()}
		}
	}
	w.admitted = time.Now()
	return Permit{waiter: w, generation: w.generation.Load()}, nil
}

// Any returns the name of a resource for what needs no place, round robin, but for those that are ejected.
func (g *Group) Any() string { return g.engine.Any().Name }

// Resource returns the name of the resource of p's place, if that is one of a Group's, until p is Done.
func (p Permit) Resource() string {
	if p.waiter == nil {
		return ""
	}
	if r := p.waiter.task.On(); r != nil {
		return r.Name
	}
	return ""
}

// ended notes in the health of its resource how w ended.
func (g *Group) ended(w *waiter, how Outcome) {
	on := w.task.On()
	if how == Ignored || on == nil {
		return
	}
	if how == Unreached {
		g.unreached(on.Name, int64(w.admitted.Sub(g.epoch)))
		return
	}
	for _, m := range *g.members.Load() {
		if m.Resource != on {
			continue
		}
		began, now := int64(w.admitted.Sub(g.epoch)), g.engine.Now()
		if how == Dropped && w.task.Deadline != 0 && w.task.Deadline-began < int64(g.engine.Objective().Usual()) {
			return // it is due to its wait, or its client
		}
		if m.health.Ended(began, now, m.InUse(), how == Dropped || how == Failed) {
			g.mu.Lock()
			g.apply()
			g.mu.Unlock()
		}
		return
	}
}

// unreached notes that nothing of a request which began then could be sent to the resource of that name, which may
// have been taken off the list and put on it again since. Once it has returned the engine knows: not only of this, but
// of what others have found out at once, and of a resource that was being added. Otherwise it could give a place of the
// same one again.
func (g *Group) unreached(name string, began int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range *g.members.Load() {
		if m.Name == name {
			m.health.Unreached(began, g.engine.Now())
		}
	}
	g.apply()
}

// apply has the engine know how many each may be given, and the ejections end in time. The caller holds mu.
func (g *Group) apply() {
	for _, m := range *g.members.Load() {
		if n := m.health.Allowed(); n != m.bound {
			m.bound = n
			m.Bound(n)
			if healthy := n == math.MaxInt; healthy != m.since.IsZero() {
				if m.since = time.Now(); healthy {
					m.since = time.Time{}
				}
				if g.rests != nil {
					g.rests(m.Name, !healthy)
				}
			}
		}
		at := m.health.ProbeAt()
		if at == m.at {
			continue
		}
		m.at = at
		g.forget(m)
		if at != 0 && g.end.Err() == nil {
			g.probing.Add(1)
			m.timer = time.AfterFunc(time.Duration(at-g.engine.Now()), func() { g.wake(m) })
		}
	}
}

// wake ends the ejection of m, if it can be reached.
func (g *Group) wake(m *member) {
	defer g.probing.Done()
	began := g.engine.Now()
	if g.probe != nil && g.probe(g.end, m.Name) != nil {
		m.health.Unreached(began, g.engine.Now())
	} else {
		m.health.Probe(g.engine.Now())
	}
	g.mu.Lock()
	g.apply()
	g.mu.Unlock()
}

// ResourceState is the state of a resource at one moment.
type ResourceState struct {
	Name string
	// Concurrency is how many places it has, InUse how many are taken, and Learned how that was learned.
	Concurrency, InUse int
	Learned            *Learned
	// Allowed is how many requests may run there at once: math.MaxInt if it is healthy, 0 if it is ejected, and 1 and
	// then more as it returns.
	Allowed int
	// Unwell is for how long it has not been healthy, 0 if it is.
	Unwell time.Duration
}

// Resources returns the state of each.
func (g *Group) Resources() []ResourceState {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []ResourceState
	for _, m := range *g.members.Load() {
		gauge := m.Gauge()
		state := ResourceState{
			Name: m.Name, Concurrency: gauge.Workers, InUse: gauge.Busy, Learned: gauge.Learned, Allowed: m.health.Allowed(),
		}
		if !m.since.IsZero() {
			state.Unwell = time.Since(m.since)
		}
		all = append(all, state)
	}
	return all
}
