package versus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"spillway/loadtest"
	"spillway/loadtest/lab"
)

// rival is a contestant that is running.
type rival struct {
	name   string
	dir    string // of its store
	server *lab.Server
	keys   uint64
	asking float64 // objects that it allocates to say how many it has allocated
}

// start starts a contestant on a clone of the store, and warms it up.
func start(ctx context.Context, o *Options, c *Contestant, filled string) (_ *rival, err error) {
	r := &rival{name: c.Name, dir: filepath.Join(o.Dir, c.Name), keys: o.Keys}
	if err := lab.CloneStore(filled, r.dir); err != nil {
		return nil, err
	}
	if r.server, err = lab.StartServer(ctx, c.Binary, r.dir, c.Env); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.server.Stop())
		}
	}()
	// Half of them over the connections of the loads, so that what is made once
	// for each is there.
	for _, load := range []Load{{Op: loadtest.Get, Connections: 64}, {Op: loadtest.Get, Connections: maxConnections(o.Loads)}} {
		if _, err := r.send(ctx, loadtest.Options{Count: o.Requests/2 + 1, Seed: 1}, load); err != nil {
			return nil, err
		}
	}
	// The first two answers make the connection's own buffers.
	var mallocs [4]float64
	for i := range mallocs {
		if mallocs[i], err = r.server.Mallocs(ctx); err != nil {
			return nil, err
		}
	}
	r.asking = mallocs[3] - mallocs[2]
	return r, nil
}

func maxConnections(loads []Load) int {
	most := 1
	for _, l := range loads {
		most = max(most, l.Connections)
	}
	return most
}

// tally is what a contestant did under a load in one round, in all passes.
type tally struct {
	requests, served float64
	cpu              time.Duration
	mallocs          float64
	seconds          float64
	latency          loadtest.Percentiles // of the last pass
}

func (t *tally) figures() Figures {
	served := max(t.served, 1)
	return Figures{
		RPS:       t.served / t.seconds,
		CPUMicros: float64(t.cpu.Nanoseconds()) / 1e3 / served,
		Mallocs:   t.mallocs / served,
		P50:       t.latency.P50, P99: t.latency.P99, P999: t.latency.P999,
		Refused: 1 - t.served/max(t.requests, 1),
	}
}

// measure sends a load once and adds what it took to t, less what it takes to
// open as many connections.
func (r *rival) measure(ctx context.Context, o *Options, load Load, seed uint64, t *tally) error {
	opening, err := r.spend(ctx, loadtest.Options{Count: uint64(load.Connections), Seed: seed}, Load{Op: load.Op, Connections: load.Connections})
	if err != nil {
		return err
	}
	how := loadtest.Options{Seed: seed, Duration: o.Duration, Rate: load.Rate}
	if load.Rate == 0 {
		how.Count = o.Requests
		if load.Connections == 1 {
			how.Count = o.Requests/4 + 1
		}
	}
	all, err := r.spend(ctx, how, load)
	if err != nil {
		return err
	}
	t.requests += all.requests - opening.requests
	t.served += all.served - opening.served
	t.cpu += all.cpu - opening.cpu
	t.mallocs += all.mallocs - opening.mallocs
	// The rate is of all of its requests: to open the connections is not part of
	// its time.
	t.seconds += all.seconds * (all.served - opening.served) / max(all.served, 1)
	t.latency = all.latency
	return nil
}

// spend sends a load and tells what it took.
func (r *rival) spend(ctx context.Context, o loadtest.Options, load Load) (t tally, err error) {
	mallocs, err := r.server.Mallocs(ctx)
	if err != nil {
		return t, err
	}
	before, err := r.quiet(ctx)
	if err != nil {
		return t, err
	}
	result, err := r.send(ctx, o, load)
	if err != nil {
		return t, err
	}
	after, err := r.quiet(ctx)
	if err != nil {
		return t, err
	}
	t.cpu = after - before
	after2, err := r.server.Mallocs(ctx)
	if err != nil {
		return t, err
	}
	t.mallocs = max(0, after2-mallocs-r.asking)
	t.seconds, t.latency = result.Seconds, result.Latency
	for code, n := range result.Status {
		t.requests += float64(n)
		if code[:1] == "2" || code == "404" {
			t.served += float64(n)
		}
	}
	return t, nil
}

// quiet waits until the process does next to nothing, for some seconds at most,
// and returns its processor time: what is left to do after the last answer, such
// as a flush, belongs to the requests before it.
func (r *rival) quiet(ctx context.Context) (cpu time.Duration, err error) {
	const (
		period   = 10 * time.Millisecond
		nothing  = period / 20
		patience = 300 // periods
	)
	tick := time.NewTicker(period)
	defer tick.Stop()
	if cpu, err = r.server.CPU(); err != nil {
		return 0, err
	}
	for range patience {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		before := cpu
		if cpu, err = r.server.CPU(); err != nil || cpu-before < nothing {
			return cpu, err
		}
	}
	return cpu, nil
}

// send sends a load to its end.
func (r *rival) send(ctx context.Context, o loadtest.Options, load Load) (*loadtest.Result, error) {
	o.URL, o.Connections, o.Keys, o.NoProfiles = r.server.URL(), load.Connections, r.keys, true
	switch load.Op {
	case loadtest.Put:
		o.Mix = loadtest.Mix{Put: 1}
	default:
		o.Mix = loadtest.Mix{Get: 1}
	}
	result, err := loadtest.Run(ctx, o)
	if err == nil && result.Partial != "" {
		err = errors.New(result.Partial)
	}
	if died := r.server.Death(); died != nil && ctx.Err() == nil {
		return nil, died
	}
	if err != nil {
		return nil, err
	}
	for kind, n := range result.Errors {
		if n > 0 {
			return nil, fmt.Errorf("%d requests without an answer (%s)", n, kind)
		}
	}
	return result, nil
}
