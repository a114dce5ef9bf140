package generator

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

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
	p, err := newPlan(&o)
	if err != nil {
		return nil, err
	}
	o.URL = p.server.name()
	if p.address, err = p.server.find(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", o.URL, err)
	}
	trusted, err := trust(&o)
	if err != nil {
		return nil, err
	}
	r := &run{o: &o, window: result.WindowOf(&o), plan: p, begin: time.Now()}
	r.others.Store(int32(o.Loops))
	if o.Admin != "" {
		if r.observer, err = observe.Open(ctx, o.Admin, o.AdminToken, trusted); err != nil {
			return nil, err
		}
	}
	defer func() {
		for _, l := range r.loops {
			l.transport.end()
		}
	}()
	open := newSockets
	if p.engine == workload.Portable {
		open = newClients
	}
	for n := range o.Loops {
		l := newLoop(&o, n, &r.others, r.clock)
		if l.transport, err = open(l, p, trusted); err != nil {
			return nil, err
		}
		r.loops = append(r.loops, l)
	}
	if err := r.connect(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", o.URL, err)
	}
	return r.measure(ctx), nil
}

const (
	// connectPatience is how long connections may take to open, TLS included.
	connectPatience = 5 * time.Second
	// longestPause is how soon a stop is noticed at the latest.
	longestPause = 50 * time.Millisecond
	// reopenAfter passes before a connection that failed is opened again.
	reopenAfter = 100 * time.Millisecond
	// goneAfter is how long no connection may be open before the server counts as gone.
	goneAfter = time.Second
)

// trust returns how servers over TLS prove who they are.
func trust(o *workload.Options) (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: o.Insecure}
	if o.CAFile == "" {
		return config, nil
	}
	pem, err := os.ReadFile(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("ca-file: %w", err)
	}
	if config.RootCAs, err = x509.SystemCertPool(); err != nil {
		config.RootCAs = x509.NewCertPool()
	}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca-file: %s has no certificate in PEM", o.CAFile)
	}
	return config, nil
}

// run is one run, and what carries it.
type run struct {
	o        *workload.Options
	window   result.Window
	plan     *plan
	loops    []*loop
	others   atomic.Int32 // loops that are not done
	observer *observe.Observer
	begin    time.Time
}

func (r *run) clock() time.Duration { return time.Since(r.begin) }

// connect opens the connections.
func (r *run) connect(ctx context.Context) error {
	var wg sync.WaitGroup
	failures := make([]error, len(r.loops))
	for n, l := range r.loops {
		wg.Go(func() { failures[n] = l.connect(ctx) })
	}
	wg.Wait()
	return cmp.Or(failures...)
}

// carry sends the load to its end, or until ctx ends or the server is gone, and says why it
// ended early. The clock stands at 0 when it begins.
func (r *run) carry(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var loops sync.WaitGroup
	for _, l := range r.loops {
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

func (r *run) measure(ctx context.Context) *result.Result {
	r.begin = time.Now()
	ended, end := context.WithCancel(context.Background())
	defer end()
	var watchers sync.WaitGroup
	var tell func(*result.Result)
	watchers.Go(func() { tell = r.observe(ctx, ended) })
	if r.o.Progress != nil {
		watchers.Go(func() { r.progress(ended) })
	}
	failed := r.carry(ctx)
	took := r.clock()
	end()
	watchers.Wait()

	partial := ""
	if failed != nil {
		partial = fmt.Sprintf("ended %.1f s after its start: %v", took.Seconds(), failed)
		if errors.Is(failed, context.Canceled) {
			partial = fmt.Sprintf("interrupted %.1f s after its start", took.Seconds())
		}
	}
	total, protocols := result.NewTally(*r.o), map[string]int64{}
	for _, l := range r.loops {
		if failed != nil {
			l.abandon(took)
		}
		total.Add(l.count)
		for version, n := range l.transport.protocols() {
			protocols[version] += n
		}
	}
	found := total.Result(r.begin, max(0, min(took, r.window.To)-r.window.From))
	found.Partial = partial
	found.Engine, found.Protocols = r.plan.engine, protocols
	found.Machine = new(machine.This())
	tell(found)
	return found
}

// observe watches the server, and the generator's own CPU, over the window. It returns what adds
// that to a result.
func (r *run) observe(ctx, ended context.Context) func(*result.Result) {
	if !sleep(ended, r.window.From-r.clock()) {
		return func(*result.Result) {}
	}
	server := func() (time.Duration, error) { return 0, nil }
	if r.o.ServerCPU != nil {
		server = r.o.ServerCPU
	}
	begin, clientBefore := r.clock(), cpuTime()
	serverBefore, err := server()
	var took, client, serverAfter time.Duration
	during := func() {
		sleep(ended, r.window.To-r.clock())
		took, client = r.clock()-begin, cpuTime()-clientBefore
		var failed error
		serverAfter, failed = server()
		err = cmp.Or(err, failed)
	}
	var seen *observe.Observation
	if r.observer == nil {
		during()
	} else {
		profiled := 0
		if r.window.To != workload.Never && !r.o.NoProfiles {
			profiled = int((r.window.To - r.window.From) / time.Second)
		}
		var unseen error
		seen, unseen = r.observer.Watch(ctx, profiled, during)
		err = cmp.Or(unseen, err)
	}
	return func(found *result.Result) {
		if answered := found.CompletedRPS * found.Seconds; answered > 0 {
			found.ClientCPUMicros = float64(client.Microseconds()) / answered
		}
		if r.o.ServerCPU != nil && err == nil {
			found.ServerSpent(serverAfter-serverBefore, took)
		}
		if seen != nil {
			found.Observed(seen)
		}
		if err != nil {
			found.Unseen = err.Error()
		}
	}
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (r *run) progress(ended context.Context) {
	const period = 500 * time.Millisecond
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	var before int64
	last := r.clock()
	for {
		select {
		case <-ended.Done():
			return
		case <-ticker.C:
		}
		now := r.clock()
		p := workload.Progress{Done: float64(now) / float64(r.window.To)}
		for _, l := range r.loops {
			p.Requests += l.count.Ended.Load()
			p.Errors += l.count.Unanswered.Load()
		}
		if r.o.Count > 0 {
			p.Done = float64(p.Requests) / float64(r.o.Count)
		}
		p.Done = min(1, p.Done)
		p.Rate = float64(p.Requests-before) / (now - last).Seconds()
		before, last = p.Requests, now
		r.o.Progress(p)
	}
}
