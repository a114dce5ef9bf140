package generator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/observe"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// Run sends the load that o describes, and returns what it measured once every
// request of the window has its answer or was given up. It fails if nothing can
// be measured: o is wrong, or the server cannot be reached. When ctx ends or the
// server goes away in the midst of it, the result says so in Partial, and covers
// the time until then.
func Run(ctx context.Context, o workload.Options) (*result.Result, error) {
	o = o.WithDefaults()
	if err := Check(&o); err != nil {
		return nil, err
	}
	to, err := resolve(o.URL)
	if err != nil {
		return nil, err
	}
	return send(ctx, o, to)
}

// send sends the load to a server.
func send(ctx context.Context, o workload.Options, to server) (_ *result.Result, err error) {
	to.addresses = reachable(ctx, to.addresses)
	r := &run{o: &o, window: result.WindowOf(&o)}
	if o.Admin != "" {
		if r.observer, err = observe.Open(ctx, o.Admin, o.AdminToken); err != nil {
			return nil, err
		}
	}
	if o.SlowClients > 0 {
		r.slow = newSlowClients(&o, to)
	}
	if err := r.connect(ctx, to); err != nil {
		r.close()
		return nil, fmt.Errorf("%s: %w", o.URL, err)
	}
	defer r.close()
	return r.measure(ctx), nil
}

// run is one run: its loops, and what else there is meanwhile.
type run struct {
	o        *workload.Options
	window   result.Window
	loops    []*loop
	others   atomic.Int32 // loops that are not done
	slow     *slowClients // nil if there are none
	observer *observe.Observer
	begin    time.Time
}

func (r *run) clock() time.Duration { return time.Since(r.begin) }

// connect opens the connections of all loops.
func (r *run) connect(ctx context.Context, to server) error {
	r.begin = time.Now()
	r.others.Store(int32(r.o.Loops))
	for n := range r.o.Loops {
		l, err := newLoop(r.o, n, to, &r.others, r.clock)
		if err != nil {
			return err
		}
		r.loops = append(r.loops, l)
	}
	var wg sync.WaitGroup
	failures := make([]error, len(r.loops))
	for n, l := range r.loops {
		wg.Go(func() { failures[n] = l.connect(ctx) })
	}
	wg.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) close() {
	for _, l := range r.loops {
		l.closeAll()
	}
}

// errStopped ends the loops that still run when another has failed.
var errStopped = errors.New("stopped")

func (r *run) measure(ctx context.Context) *result.Result {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(errStopped)
	r.begin = time.Now()
	for _, l := range r.loops {
		l.lastOpen, l.lastLook, l.arrivedAfter = 0, 0, 0
		for c := l.idle.first; c != nil; c = c.next {
			c.freeSince = 0
		}
	}

	var loops sync.WaitGroup
	for _, l := range r.loops {
		loops.Go(func() {
			if err := l.run(ctx); err != nil {
				stop(err)
			}
		})
	}
	ended := make(chan struct{})
	var watchers sync.WaitGroup
	var seen *observe.Observation
	var unseen error
	var cpu time.Duration
	watchers.Go(func() { seen, cpu, unseen = r.observe(ctx, ended) })
	if r.o.Progress != nil {
		watchers.Go(func() { r.progress(ended) })
	}
	if r.slow != nil {
		watchers.Go(func() { r.slow.run(ended) })
	}
	loops.Wait()
	end := r.clock()
	close(ended)
	watchers.Wait()

	partial := ""
	if err := context.Cause(ctx); err != nil {
		partial = fmt.Sprintf("ended %.1f s after its start: %v", end.Seconds(), err)
		if errors.Is(err, context.Canceled) {
			partial = fmt.Sprintf("interrupted %.1f s after its start", end.Seconds())
		}
		for _, l := range r.loops {
			l.abandon(end)
		}
	}
	total := r.loops[0].count
	for _, l := range r.loops[1:] {
		total.Add(l.count)
	}
	found := total.Result(r.begin, max(0, min(end, r.window.To)-r.window.From))
	found.Partial = partial
	if r.slow != nil {
		found.SlowClients = &r.slow.count
	}
	here := machine.This()
	found.Machine = &here
	if answered := found.CompletedRPS * found.Seconds; answered > 0 {
		found.ClientCPUMicros = float64(cpu.Microseconds()) / answered
	}
	if seen != nil {
		found.Observed(seen)
	}
	if unseen != nil {
		found.Unseen = unseen.Error()
	}
	return found
}

// observe watches the server, and the generator's own CPU, over the window. With
// an error there is what was seen of a server until it died.
func (r *run) observe(ctx context.Context, ended <-chan struct{}) (_ *observe.Observation, cpu time.Duration, _ error) {
	if !until(r.begin.Add(r.window.From), ended) {
		return nil, 0, nil
	}
	before := cpuTime()
	var unseen error
	if r.observer != nil {
		window := r.window.To - r.window.From
		if r.window.To == workload.Never {
			window = 0
		}
		unseen = r.observer.Start(ctx, window, window >= time.Second && !r.o.NoProfiles)
	}
	if r.window.To == workload.Never {
		<-ended
	} else {
		until(r.begin.Add(r.window.To), ended)
	}
	cpu = cpuTime() - before
	if r.observer == nil || unseen != nil {
		return nil, cpu, unseen
	}
	seen, unseen := r.observer.Stop(context.WithoutCancel(ctx))
	return seen, cpu, unseen
}

// until waits for a time, and tells whether it came before the end.
func until(t time.Time, ended <-chan struct{}) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ended:
		return false
	}
}

func (r *run) progress(ended <-chan struct{}) {
	const period = 500 * time.Millisecond
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	var before int64
	last := r.clock()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		now := r.clock()
		p := workload.Progress{Elapsed: now}
		recent := result.NewRecent()
		var sent uint64
		for _, l := range r.loops {
			l.mu.Lock()
			requests, failed := l.count.Recent(recent)
			p.Requests += requests
			p.Errors += failed
			sent = max(sent, l.next.Seq)
			l.mu.Unlock()
		}
		if r.o.Count > 0 {
			p.Done = min(1, float64(sent)/float64(r.o.Count))
			if p.Done > 0 {
				p.Left = time.Duration(float64(now) * (1 - p.Done) / p.Done)
			}
		} else {
			p.Done = min(1, float64(now)/float64(r.window.To))
			p.Left = max(0, r.window.To-now)
		}
		p.Rate = float64(p.Requests-before) / (now - last).Seconds()
		p.P50 = time.Duration(recent.ValueAtQuantile(50)) * time.Microsecond
		p.P99 = time.Duration(recent.ValueAtQuantile(99)) * time.Microsecond
		before, last = p.Requests, now
		r.o.Progress(p)
	}
}

// cpuTime is the processor time of this process so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// checkDescriptors reports more connections than the process may open.
func checkDescriptors(connections int) error {
	var limit unix.Rlimit
	const others = 64
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && uint64(connections)+others > limit.Cur {
		return fmt.Errorf("connections: %d are more than the %d files that this process may open; raise it with ulimit -n (%w)",
			connections, limit.Cur, os.ErrInvalid)
	}
	return nil
}
