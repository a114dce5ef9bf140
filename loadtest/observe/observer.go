package observe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-go/spillway/loadtest/profiles"
)

// Observer watches one service. Its methods are called by one goroutine at a
// time: Start and Stop for each window.
type Observer struct {
	plane *plane
	every time.Duration // between samples
	// patience is how long after the end of a window its profiles may come.
	// They were asked for at its start, for its whole seconds, so they are due.
	patience time.Duration
	// mallocs and bytes are what one reading of the metrics allocates in the
	// service.
	mallocs, bytes float64
	window         *window
}

// window is a window that is being observed.
type window struct {
	status status
	first  *reading

	sampling         sync.WaitGroup
	stopSampling     context.CancelFunc
	calmFrom, calmTo time.Time // while profiles are taken, and none begins or ends

	// What follows is the sampler's until it has ended.
	last     *reading
	readings int // begun after the first; some may not have ended
	samples  []Sample
	// calm are the first and the last sample between calmFrom and calmTo.
	calm [2]*reading
	err  error // why readings are not taken any more

	stopFetching context.CancelFunc
	fetched      chan struct{} // closed when no profile is being fetched
	mu           sync.Mutex
	profiles     map[profiles.Kind][]byte // guarded by mu until fetched
	fetchErr     error                    // the first; guarded by mu until fetched
}

// Open makes sure that adminURL, http://host:port, is the admin plane of a
// service, and learns what a reading costs there; the service should be idle.
// The token is sent if it is not empty; trusted says how a plane over TLS proves who it
// is, nil by the authorities of the system. No connection stays open.
func Open(ctx context.Context, adminURL, bearerToken string, trusted *tls.Config) (*Observer, error) {
	p, err := newPlane(adminURL, bearerToken, trusted)
	if err != nil {
		return nil, err
	}
	defer p.client.CloseIdleConnections()
	if _, err := p.status(ctx); err != nil {
		return nil, err
	}
	o := &Observer{plane: p, every: time.Second, patience: 20 * time.Second}
	// The first reading warms up. What else is allocated between two of the
	// others is more than nothing, so the least is the nearest.
	var readings [4]*reading
	for i := range readings {
		if readings[i], err = p.read(ctx); err != nil {
			return nil, err
		}
		if i == 0 {
			continue
		}
		mallocs, bytes := readings[i].mallocs-readings[i-1].mallocs, readings[i].bytes-readings[i-1].bytes
		if i == 1 || mallocs < o.mallocs {
			o.mallocs, o.bytes = max(0, mallocs), max(0, bytes)
		}
	}
	return o, nil
}

// Start begins to observe a window. With profiles they are taken over its whole
// seconds, at least one; otherwise its length need not be known and is ignored.
// Nothing is running if an error is returned. When ctx ends, so does observing,
// and what was seen until then is there for Stop, which has to be called anyway.
func (o *Observer) Start(ctx context.Context, length time.Duration, withProfiles bool) error {
	if o.window != nil {
		return errors.New("a window is being observed already")
	}
	status, err := o.plane.status(ctx)
	var first *reading
	if err == nil {
		first, err = o.plane.read(ctx)
	}
	if err != nil {
		o.plane.client.CloseIdleConnections()
		return err
	}
	w := &window{
		status: status, first: first, last: first, samples: []Sample{first.since(first)},
		fetched: make(chan struct{}), profiles: make(map[profiles.Kind][]byte),
	}
	every := o.every
	if length > 0 { // a short window has a few samples as well
		every = max(every/4, min(every, length/8))
	}
	seconds := max(1, int(length/time.Second))
	if withProfiles {
		w.calmFrom = first.at.Add(every / 2)
		w.calmTo = first.at.Add(time.Duration(seconds)*time.Second - every/2)
	}
	o.window = w
	var sampling, fetching context.Context
	sampling, w.stopSampling = context.WithCancel(ctx)
	fetching, w.stopFetching = context.WithCancel(ctx)
	w.sampling.Go(func() { o.sample(sampling, w, every) })
	var fetches sync.WaitGroup
	if withProfiles {
		for _, k := range profiles.Kinds {
			fetches.Go(func() { o.fetch(fetching, w, k, seconds) })
		}
	}
	go func() {
		fetches.Wait()
		close(w.fetched)
	}()
	return nil
}

// Stop ends the window. It reads the metrics at once, and waits 20 seconds at most
// for profiles that are not there yet. What was seen is returned with an error
// as well, unless nothing was being observed: if the service has gone, it is
// what was seen until the last sample.
func (o *Observer) Stop(ctx context.Context) (*Observation, error) {
	w := o.window
	if w == nil {
		return nil, errors.New("no window is being observed")
	}
	o.window = nil
	defer o.plane.client.CloseIdleConnections()
	w.stopSampling()
	w.sampling.Wait()
	w.readings++
	w.take(o.plane.read(ctx))

	patience := time.NewTimer(o.patience)
	defer patience.Stop()
	var err error
	select {
	case <-w.fetched:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-patience.C:
		err = fmt.Errorf("the admin plane at %s gives no profiles %v after the end of the window", o.plane.url, o.patience)
	}
	w.stopFetching()
	<-w.fetched

	seen := &Observation{
		Strategy: w.status.Strategy, Workers: w.status.Workers, Capacity: w.status.Capacity,
		Pebble:   w.first.pebble,
		Length:   w.last.at.Sub(w.first.at),
		CPU:      time.Duration((w.last.cpu - w.first.cpu) * float64(time.Second)),
		Samples:  w.samples,
		Profiles: w.profiles,
	}
	seen.Mallocs, seen.AllocatedBytes = o.allocated(w)
	return seen, cmp.Or(w.err, err, w.fetchErr)
}

// allocated returns the objects and bytes that were allocated in the window.
func (o *Observer) allocated(w *window) (mallocs, bytes float64) {
	from, to, scale := w.first, w.last, 1.0
	if calm := w.calm; calm[0] != calm[1] {
		from, to = calm[0], calm[1]
		scale = float64(w.last.at.Sub(w.first.at)) / float64(to.at.Sub(from.at))
	}
	readings := float64(to.nth - from.nth)
	mallocs = scale * max(0, to.mallocs-from.mallocs-readings*o.mallocs)
	bytes = scale * max(0, to.bytes-from.bytes-readings*o.bytes)
	return mallocs, bytes
}

// sample takes samples until ctx ends.
func (o *Observer) sample(ctx context.Context, w *window, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.readings++
		r, err := o.plane.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if !w.take(r, err) {
			continue
		}
		w.samples = append(w.samples, r.since(w.first))
		if r.at.After(w.calmFrom) && r.at.Before(w.calmTo) {
			if w.calm[0] == nil {
				w.calm[0] = r
			}
			w.calm[1] = r
		}
	}
}

// take notes a reading, or why there is none, and reports whether it is good. A
// reading that failed may be followed by others, but the counters of another
// process say nothing of this window.
func (w *window) take(r *reading, err error) bool {
	switch {
	case errors.Is(w.err, errRestarted):
		return false
	case err != nil:
		w.err = err
		return false
	case r.cpu < w.last.cpu || r.mallocs < w.last.mallocs:
		w.err = errRestarted
		return false
	}
	r.nth = w.readings
	w.last, w.err = r, nil
	return true
}

// errRestarted is returned by Stop when the counters went back.
var errRestarted = errors.New("the service was started anew in the measured window")

// since returns r as a sample of the window that began with first.
func (r *reading) since(first *reading) Sample {
	s := Sample{At: r.at.Sub(first.at).Seconds(), QueueDepth: r.depth, WorkersBusy: r.busy, Shed: make(map[string]float64)}
	for reason, n := range r.shed {
		if n > first.shed[reason] {
			s.Shed[reason] = n - first.shed[reason]
		}
	}
	return s
}

// fetch takes a profile over so many seconds.
func (o *Observer) fetch(ctx context.Context, w *window, k profiles.Kind, seconds int) {
	name := string(k)
	if k == profiles.CPU {
		name = "profile"
	}
	content, err := o.plane.get(ctx, fmt.Sprintf("/debug/pprof/%s?seconds=%d", name, seconds))
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.profiles[k] = content
	case ctx.Err() == nil && w.fetchErr == nil: // Stop tells why ctx has ended
		w.fetchErr = err
	}
}
