package generator

import (
	"cmp"
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// engine carries the load of one run by loops. Its methods are called in the order in which
// they stand here; counts and sent also while it runs.
type engine struct {
	loops  []*loop
	others atomic.Int32 // loops that are not done
}

func newEngine(o *workload.Options, p *plan, trusted *tls.Config, clock func() time.Duration) (*engine, error) {
	e := new(engine)
	e.others.Store(int32(o.Loops))
	for n := range o.Loops {
		l := newLoop(o, n, &e.others, clock)
		var err error
		if p.engine == workload.Portable {
			l.transport, err = newClients(l, p, trusted)
		} else {
			l.transport, err = newSockets(l, p)
		}
		if err != nil {
			e.close()
			return nil, err
		}
		e.loops = append(e.loops, l)
	}
	return e, nil
}

// connect opens the connections.
func (e *engine) connect(ctx context.Context) error {
	var wg sync.WaitGroup
	failures := make([]error, len(e.loops))
	for n, l := range e.loops {
		wg.Go(func() { failures[n] = l.connect(ctx) })
	}
	wg.Wait()
	return cmp.Or(failures...)
}

// run sends the load to its end, or until ctx ends or the server is gone, and says why it
// ended early. The run's clock stands at 0 when it begins.
func (e *engine) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var loops sync.WaitGroup
	for _, l := range e.loops {
		l.lastLook, l.arrivedAfter = 0, 0
		for c := l.idle.first; c != nil; c = c.next {
			c.freeSince = 0
		}
		loops.Go(func() {
			if err := l.run(ctx); err != nil {
				stop(err)
			}
		})
	}
	loops.Wait()
	return context.Cause(ctx)
}

// abandon counts the requests that have no answer at the end of a run that is cut short.
func (e *engine) abandon(now time.Duration) {
	for _, l := range e.loops {
		l.abandon(now)
	}
}

// counts calls with each tally while nobody else counts.
func (e *engine) counts(call func(*result.Tally)) {
	for _, l := range e.loops {
		l.mu.Lock()
		call(l.count)
		l.mu.Unlock()
	}
}

// sent is about how many requests have been begun.
func (e *engine) sent() (sent uint64) {
	for _, l := range e.loops {
		l.mu.Lock()
		sent = max(sent, l.next.Seq)
		l.mu.Unlock()
	}
	return sent
}

// protocols is how many answers there were in each version of HTTP.
func (e *engine) protocols() map[string]int64 {
	all := map[string]int64{}
	for _, l := range e.loops {
		for version, n := range l.transport.protocols() {
			all[version] += n
		}
	}
	return all
}

func (e *engine) close() {
	for _, l := range e.loops {
		l.transport.end()
	}
}
