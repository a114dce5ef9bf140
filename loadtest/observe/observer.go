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

// Observation is what was seen of a service over a window.
type Observation struct {
	// Strategy, Workers and Capacity are those of the start of the window;
	// Capacity is nil for a queue without bound.
	Strategy string
	Workers  int
	Capacity *int
	// Pebble says that it is a Spillway whose store is Pebble, in its own process:
	// what the rules of profiles know.
	Pebble bool
	// Length is between the two readings, 0 if there is no second one, and CPU what the
	// process used in between, user and system, in steps of 10 ms.
	Length time.Duration
	CPU    time.Duration
	// Profiles are pprof files, compressed, over the whole seconds of the window.
	Profiles map[profiles.Kind][]byte
}

// Observer watches one service.
type Observer struct {
	plane *plane
	// patience is how long after the end of a window its profiles may come.
	// They were asked for at its start, for its whole seconds, so they are due.
	patience time.Duration
}

// Open makes sure that adminURL, http://host:port, is the admin plane of a
// service. The token is sent if it is not empty; trusted says how a plane over TLS proves who it
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
	if _, err := p.read(ctx); err != nil {
		return nil, err
	}
	return &Observer{plane: p, patience: 20 * time.Second}, nil
}

// Window is a span of time in which a service is observed.
type Window struct {
	observer *Observer
	status   status
	first    reading

	stopFetching context.CancelFunc
	fetching     sync.WaitGroup
	fetched      chan fetched // has room for all
	due          int          // how many are to come
}

// fetched is a profile, or why there is none.
type fetched struct {
	kind    profiles.Kind
	content []byte
	err     error
}

// Start begins to observe a window. Profiles are taken over so many seconds, none if that
// is 0. Nothing is running if an error is returned; otherwise Stop has to be called. When ctx
// ends, so does the taking of profiles.
func (o *Observer) Start(ctx context.Context, seconds int) (*Window, error) {
	status, err := o.plane.status(ctx)
	var first reading
	if err == nil {
		first, err = o.plane.read(ctx)
	}
	if err != nil {
		o.plane.client.CloseIdleConnections()
		return nil, err
	}
	w := &Window{observer: o, status: status, first: first, fetched: make(chan fetched, len(profiles.Kinds))}
	ctx, w.stopFetching = context.WithCancel(ctx)
	if seconds > 0 {
		w.due = len(profiles.Kinds)
		for _, k := range profiles.Kinds {
			w.fetching.Go(func() { w.fetched <- o.fetch(ctx, k, seconds) })
		}
	}
	return w, nil
}

// Stop ends the window. It reads the metrics at once, and waits 20 seconds at most
// for profiles that are not there yet. With an error there is what was seen besides.
func (w *Window) Stop(ctx context.Context) (*Observation, error) {
	o := w.observer
	defer o.plane.client.CloseIdleConnections()
	seen := &Observation{
		Strategy: w.status.Strategy, Workers: w.status.Workers, Capacity: w.status.Capacity,
		Pebble: w.first.pebble, Profiles: map[profiles.Kind][]byte{},
	}
	last, err := o.plane.read(ctx)
	switch {
	case err != nil:
	case last.started != w.first.started:
		err = errRestarted
	default:
		seen.Length, seen.CPU = last.at.Sub(w.first.at), time.Duration((last.cpu-w.first.cpu)*float64(time.Second))
	}
	return seen, cmp.Or(err, w.await(ctx, seen.Profiles))
}

// await waits for the profiles.
func (w *Window) await(ctx context.Context, into map[profiles.Kind][]byte) (failed error) {
	defer w.fetching.Wait()
	defer w.stopFetching()
	patience := time.NewTimer(w.observer.patience)
	defer patience.Stop()
	for range w.due {
		select {
		case f := <-w.fetched:
			if f.content != nil {
				into[f.kind] = f.content
			}
			failed = cmp.Or(failed, f.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-patience.C:
			return fmt.Errorf("the admin plane at %s gives no profiles %v after the end of the window", w.observer.plane.url, w.observer.patience)
		}
	}
	return failed
}

// errRestarted is returned by Stop when another process answers than at the start.
var errRestarted = errors.New("the service was started anew in the measured window")

// fetch takes a profile over so many seconds. That ctx has ended is no error.
func (o *Observer) fetch(ctx context.Context, k profiles.Kind, seconds int) fetched {
	name := string(k)
	if k == profiles.CPU {
		name = "profile"
	}
	content, err := o.plane.get(ctx, fmt.Sprintf("/debug/pprof/%s?seconds=%d", name, seconds))
	if ctx.Err() != nil {
		err = nil
	}
	return fetched{k, content, err}
}
