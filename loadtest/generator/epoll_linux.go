package generator

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// hasEpoll tells whether the epoll engine is there.
const hasEpoll = true

// epoll carries a load by event loops, one a thread.
type epoll struct {
	loops  []*loop
	others atomic.Int32 // loops that are not done
}

func newEpoll(o *workload.Options, p *plan, clock func() time.Duration) (engine, error) {
	e := new(epoll)
	e.others.Store(int32(o.Loops))
	for n := range o.Loops {
		l, err := newLoop(o, n, p, &e.others, clock)
		if err != nil {
			e.close()
			return nil, err
		}
		e.loops = append(e.loops, l)
	}
	return e, nil
}

func (e *epoll) connect(ctx context.Context) error {
	var wg sync.WaitGroup
	failures := make([]error, len(e.loops))
	for n, l := range e.loops {
		wg.Go(func() { failures[n] = l.connect(ctx) })
	}
	wg.Wait()
	return cmp.Or(failures...)
}

func (e *epoll) run(ctx context.Context) error {
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

func (e *epoll) abandon(now time.Duration) {
	for _, l := range e.loops {
		l.abandon(now)
	}
}

func (e *epoll) counts(call func(*result.Tally)) {
	for _, l := range e.loops {
		l.mu.Lock()
		call(l.count)
		l.mu.Unlock()
	}
}

func (e *epoll) sent() (sent uint64) {
	for _, l := range e.loops {
		l.mu.Lock()
		sent = max(sent, l.next.Seq)
		l.mu.Unlock()
	}
	return sent
}

func (e *epoll) protocols() map[string]int64 {
	var n int64
	for _, l := range e.loops {
		n += l.answers
	}
	return map[string]int64{"HTTP/1.1": n}
}

func (e *epoll) close() {
	for _, l := range e.loops {
		l.closeAll()
	}
}
