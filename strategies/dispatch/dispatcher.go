package dispatch

import (
	"github.com/spillway-go/spillway/strategies"
)

// Dispatcher brings tasks to workers. All methods are safe for concurrent use.
type Dispatcher struct {
	engine
	pools []*workers // one, or the readers' and the writers'
}

// Open starts the workers. Close ends them.
func Open(o Options) (*Dispatcher, error) {
	if err := o.check(false); err != nil {
		return nil, err
	}
	o.setDefaults()
	d := &Dispatcher{engine: engine{opts: o}}
	if o.Split {
		readers := (o.Workers + 1) / 2
		d.pools = []*workers{newWorkers(&d.engine, readers), newWorkers(&d.engine, o.Workers-readers)}
	} else {
		d.pools = []*workers{newWorkers(&d.engine, max(1, o.Workers))}
	}
	if err := d.open(); err != nil {
		return nil, err
	}
	for _, p := range d.pools {
		for p.limit.learning.Load() == nil && p.hire() { // those of a learned number are started when they are needed
		}
	}
	return d, nil
}

// Submit takes over t until it calls t.Done once, which may be before Submit returns. It runs the task itself if the
// strategy says so. It reports whether the task may have to wait: then Cancel may give it up when its time is over.
func (d *Dispatcher) Submit(t *Task) (waits bool) {
	d.entered(t)
	return d.poolOf(t).submit(t)
}

// Continue takes over t once more, to go on with what it began in an earlier turn. It is run in turns with the queue, and
// shed only if a drain runs out of time.
func (d *Dispatcher) Continue(t *Task) {
	p := d.poolOf(t)
	d.inFlight.Add(1)
	t.phase.becomes(true)
	t.Shed, t.continued = strategies.ReasonNone, true // its client takes part in the time from now on
	t.outcome = nil                                   // it belongs to the turn before
	t.queue = p.active.Load()                         // which shares the time of its further turns
	if t.queue.spec.Inline && !p.refusing.Load() {
		t.queue.begins(t, p.Now())
		p.run(t)
		return
	}
	p.setAside(t, &p.continuations)
}

// Unblock is called after Options.Blocked has become false. It never blocks.
func (d *Dispatcher) Unblock() {
	for _, p := range d.pools {
		p.wake()
	}
}

// Cancel gives t up for the given reason if it still waits, and reports whether it did: t.Done has then been called.
// Otherwise t has been started or shed, or its discipline cannot give it up, and Done is called when t ends. Only the
// submitter of t may call Cancel, and only before it has submitted t again.
func (d *Dispatcher) Cancel(t *Task, reason strategies.Reason) bool {
	return d.poolOf(t).Cancel(t, reason)
}

func (d *Dispatcher) poolOf(t *Task) *workers {
	if t.Write {
		return d.pools[len(d.pools)-1]
	}
	return d.pools[0]
}

// Pools returns the state of the readers and that of the writers. It is nil if the pools are not split.
func (d *Dispatcher) Pools() []Gauge {
	if len(d.pools) == 1 {
		return nil
	}
	return []Gauge{d.gauge(d.backlogs[0]), d.gauge(d.backlogs[1])}
}

// Close ends the workers, once they have run what waits. Writes that are blocked by then are shed. Nothing may be
// submitted any more.
func (d *Dispatcher) Close() {
	for _, p := range d.pools {
		p.stop()
	}
}
