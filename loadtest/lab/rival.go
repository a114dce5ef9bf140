package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/observe"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// rival is a contestant that is running.
type rival struct {
	*Contestant
	dir    string // of its store
	server *service
	asking float64 // objects that it allocates to say how many it has allocated
	// reached is how many requests a second it has served under each load of the round.
	reached map[PairLoad]float64

	idle      idlers
	idleBytes float64 // what each of them takes
}

// startRival starts a contestant on a clone of the store, and warms it up.
func startRival(ctx context.Context, o *PairOptions, c *Contestant, filled string) (_ *rival, err error) {
	own := *c
	own.Keys = cmp.Or(c.Keys, o.Keys)
	r := &rival{Contestant: &own, dir: filepath.Join(o.Dir, c.Name), reached: map[PairLoad]float64{}}
	if c.System != nil {
		err = r.startSystem(ctx, own.Keys)
	} else if err = cloneStore(filled, r.dir); err == nil {
		r.server, err = startService(ctx, c.Binary, r.dir, c.Env)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	// Half of them over the connections of the loads, so that what is made once
	// for each is there.
	for _, load := range []PairLoad{{Op: workload.Get, Connections: 64}, {Op: workload.Get, Connections: maxConnections(o.Loads)}} {
		if _, err := r.send(ctx, workload.Options{Count: o.Requests/2 + 1, Seed: 1}, load); err != nil {
			return nil, err
		}
	}
	if c.Idle > 0 {
		if err := r.openIdle(ctx, c.Idle); err != nil {
			return nil, err
		}
	}
	// The first two answers make the connection's own buffers.
	var mallocs [4]float64
	for i := range mallocs {
		if mallocs[i], err = r.server.metric(ctx, mallocsMetric); err != nil {
			return nil, err
		}
	}
	r.asking = mallocs[3] - mallocs[2]
	return r, nil
}

// What is asked of contestants; those after the first only if they have it.
const (
	mallocsMetric = "go_memstats_mallocs_total"
	fsyncsMetric  = "spillway_store_wal_fsync_duration_seconds"
	missesMetric  = "spillway_store_cache_misses_total"
)

func (r *rival) stop() error {
	r.idle.close()
	if r.System != nil {
		r.server.kill()
		return nil
	}
	return r.server.stop(stopPatience)
}

func maxConnections(loads []PairLoad) int {
	most := 1
	for _, l := range loads {
		most = max(most, l.Connections)
	}
	return most
}

// tally is what a contestant did under a load in one round, in all passes.
type tally struct {
	requests, served float64
	found            float64
	cpu              time.Duration
	mallocs          float64
	seconds          float64
	latency          result.Percentiles // of the last pass
	fsyncs           observe.Histogram  // of the last pass
	resident         float64            // after the last pass
	misses           float64
}

// figures returns those of a tally by metric, none if nothing was sent. Costs are by
// requests that were served. Percentiles that are guesses are left out.
func (t *tally) figures(load PairLoad, idleBytes float64) map[string]float64 {
	if t.requests == 0 {
		return nil
	}
	served, rps := max(t.served, 1), t.rps()
	figures := map[string]float64{
		"served_rps": rps, "server_cpu_served_us": float64(t.cpu.Nanoseconds()) / 1e3 / served, "server_allocs": t.mallocs / served,
		"non2xx_percent": 100 * (1 - t.served/t.requests), FoundPercent: 100 * t.found / t.requests,
		MegabytesPerSecond: rps * load.bytes() / 1e6, IdleBytes: idleBytes,
		FsyncMean: 1e6 * t.fsyncs.Mean(), FsyncMedian: 1e6 * t.fsyncs.Median(), BlocksRead: t.misses / served,
		ResidentBytes: t.resident,
	}
	for metric, percentile := range map[string]float64{"latency_p50_ms": 50, "latency_p99_ms": 99, "latency_p99_9_ms": 99.9} {
		if ms, known := t.latency.At(percentile); known {
			figures[metric] = ms
		}
	}
	return figures
}

// rps is how many requests were served a second.
func (t *tally) rps() float64 {
	if t.served <= 0 {
		return 0
	}
	return t.served / t.seconds
}

// measure sends a load once and adds what it took to t, less what it takes to
// open as many connections. Beside long requests that is next to nothing, and as
// few of them tell less of what it takes than of what the store happens to do.
func (r *rival) measure(ctx context.Context, o *PairOptions, load PairLoad, seed uint64, t *tally) (err error) {
	how, times := workload.Options{Seed: seed, Duration: o.Duration, Rate: load.Rate}, 1
	var opening tally
	switch {
	case load.Half:
		how.Rate = r.reached[load.closed()] / 2
	case load.Short:
		how.Count = uint64(load.Connections)
		times = int(max(1, o.Requests/shortShare/how.Count))
	case load.Rate == 0:
		how.Count = load.count(o.Requests)
	}
	if !load.Short && !load.long() {
		opening, err = r.spend(ctx, workload.Options{Count: uint64(load.Connections), Seed: seed}, load.closed(), 1)
		if err != nil {
			return err
		}
	}
	before, err := r.server.metrics(ctx, fsyncsMetric, missesMetric)
	if err != nil {
		return err
	}
	all, err := r.spend(ctx, how, load, times)
	if err != nil {
		return err
	}
	after, err := r.server.metrics(ctx, fsyncsMetric, missesMetric)
	if err != nil {
		return err
	}
	read, _ := before.Sum(missesMetric)
	misses, _ := after.Sum(missesMetric)
	t.misses += misses - read
	t.fsyncs = after.Grown(fsyncsMetric, before)
	t.requests += all.requests - opening.requests
	t.served += all.served - opening.served
	t.found += all.found - opening.found
	t.cpu += all.cpu - opening.cpu
	t.mallocs += all.mallocs - opening.mallocs
	// The rate is of all of its requests: to open the connections is not part of
	// its time.
	t.seconds += all.seconds * (all.served - opening.served) / max(all.served, 1)
	t.latency = all.latency
	t.resident, err = r.server.resident()
	return err
}

const (
	// shortShare: of the requests of a closed loop, so many times fewer get a
	// connection each.
	shortShare = 4
	// mostBytes is how many bytes of values a closed loop moves at most, for each
	// request that it would send of small ones.
	mostBytes = 16 << 10
)

// closed is the load as a closed loop.
func (l PairLoad) closed() PairLoad {
	l.Rate, l.Half = 0, false
	return l
}

// long says that requests move much more than their own text.
func (l PairLoad) long() bool { return l.bytes() > 10*defaultSize }

// count returns how many requests a closed loop sends: several times as many as
// open the connections, and fewer where each takes long.
func (l PairLoad) count(requests uint64) uint64 {
	if l.Connections == 1 {
		requests = requests/4 + 1
	}
	requests = min(requests, uint64(float64(requests)*mostBytes/l.bytes())+1)
	return max(requests, 4*uint64(l.Connections))
}

// fill writes each key of a load once, and reads it.
func (r *rival) fill(ctx context.Context, load PairLoad) error {
	how := workload.Options{Count: load.Keys, Seed: 1}
	load.Distribution = workload.Sequential
	for _, load.Op = range []workload.Op{workload.Put, workload.Get} {
		if _, err := r.send(ctx, how, load); err != nil {
			return err
		}
	}
	return nil
}

// spend sends a load that many times, over connections of its own each time, and
// tells what it took in all.
func (r *rival) spend(ctx context.Context, o workload.Options, load PairLoad, times int) (t tally, err error) {
	mallocs, err := r.server.metric(ctx, mallocsMetric)
	if err != nil {
		return t, err
	}
	periods := 1
	if load.long() {
		periods = longQuiet
	}
	before, err := r.quiet(ctx, periods)
	if err != nil {
		return t, err
	}
	begin := time.Now()
	for range times {
		result, err := r.send(ctx, o, load)
		if err != nil {
			return t, err
		}
		t.add(result)
	}
	if load.Short {
		t.seconds = time.Since(begin).Seconds() // what opens the connections included
	}
	after, err := r.quiet(ctx, periods)
	if err != nil {
		return t, err
	}
	t.cpu = after - before
	after2, err := r.server.metric(ctx, mallocsMetric)
	if err != nil {
		return t, err
	}
	t.mallocs = max(0, after2-mallocs-r.asking)
	return t, nil
}

func (t *tally) add(r *result.Result) {
	t.seconds += r.Seconds
	t.latency = r.Latency
	t.found += float64(r.Status["200"])
	t.requests += float64(result.Sum(r.Status))
	t.served += float64(r.Served())
}

// longQuiet is for how many periods a contestant must be quiet that has been sent
// long values: it compacts for seconds then, and at times only waits for the disk.
const longQuiet = 20

// quiet waits until the process does next to nothing for so many periods on end,
// for some seconds at most, and returns its processor time: what is left to do
// after the last answer, such as a flush, belongs to the requests before it.
func (r *rival) quiet(ctx context.Context, periods int) (cpu time.Duration, err error) {
	const (
		period   = 10 * time.Millisecond
		nothing  = period / 20
		patience = 300 // periods
	)
	tick := time.NewTicker(period)
	defer tick.Stop()
	if cpu, err = r.server.cpu(); err != nil {
		return 0, err
	}
	still := 0
	for range patience * min(periods, 5) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		before := cpu
		if cpu, err = r.server.cpu(); err != nil {
			return 0, err
		}
		if still++; cpu-before >= nothing {
			still = 0
		}
		if still == periods {
			break
		}
	}
	return cpu, nil
}

func (r *rival) send(ctx context.Context, o workload.Options, load PairLoad) (*result.Result, error) {
	o.URL, o.Connections, o.Keys, o.NoProfiles = r.server.data, load.Connections, cmp.Or(load.Keys, r.Keys), true
	o.Distribution, o.ScanLimit = load.Distribution, load.ScanLimit
	if load.Absent {
		o.Keys = r.Span
	}
	if load.ValueSize > 0 {
		o.ValueSize = workload.Sizes{Min: load.ValueSize, Max: load.ValueSize}
	}
	switch load.Op {
	case workload.Put:
		o.Mix = workload.Mix{Put: 1}
	case workload.Scan:
		o.Mix = workload.Mix{Scan: 1}
	default:
		o.Mix = workload.Mix{Get: 1}
	}
	send := generator.Run
	if r.System != nil {
		if r.System.Targets != nil {
			o.Targets = r.System.Targets(load.Op, o.Keys)
		}
		if r.System.Send != nil {
			send = func(ctx context.Context, o workload.Options) (*result.Result, error) {
				return r.System.Send(ctx, r.place(), &o)
			}
		}
	}
	result, err := send(ctx, o)
	if err == nil && result.Partial != "" {
		err = errors.New(result.Partial)
	}
	if died := r.server.death(); died != nil && ctx.Err() == nil {
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
