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
	_, _, err = p.state(ctx)
	return &Observer{plane: p, patience: 20 * time.Second}, err
}

// Window is a span of time in which a service is observed.
type Window struct {
	observer *Observer
	status   status
	first    reading

	stopFetching context.CancelFunc
	fetching     sync.WaitGroup
	mu           struct {
		sync.Mutex
		profiles map[profiles.Kind][]byte
		failed   error // why there is not each of them
	}
}

// Start begins to observe a window. Profiles are taken over so many seconds, none if that
// is 0. Nothing is running if an error is returned; otherwise Stop has to be called. When ctx
// ends, so does the taking of profiles.
func (o *Observer) Start(ctx context.Context, seconds int) (*Window, error) {
	status, first, err := o.plane.state(ctx)
	if err != nil {
		o.plane.client.CloseIdleConnections()
		return nil, err
	}
	w := &Window{observer: o, status: status, first: first}
	w.mu.profiles = map[profiles.Kind][]byte{}
	ctx, w.stopFetching = context.WithCancel(ctx)
	for _, k := range profiles.Kinds {
		if seconds > 0 {
			w.fetching.Go(func() { w.fetch(ctx, k, seconds) })
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
		Pebble: w.first.pebble,
	}
	last, err := o.plane.read(ctx)
	switch {
	case err != nil:
	case last.started != w.first.started:
		err = errRestarted
	default:
		seen.Length, seen.CPU = last.at.Sub(w.first.at), time.Duration((last.cpu-w.first.cpu)*float64(time.Second))
	}
	err = cmp.Or(err, w.await(ctx))
	seen.Profiles = w.mu.profiles
	return seen, err
}

// await waits for the profiles, and lets nobody fetch any when it returns.
func (w *Window) await(ctx context.Context) (failed error) {
	o := w.observer
	late := fmt.Errorf("the admin plane at %s gives no profiles %v after the end of the window", o.plane.url, o.patience)
	ctx, cancel := context.WithTimeoutCause(ctx, o.patience, late)
	defer cancel()
	stop := context.AfterFunc(ctx, w.stopFetching)
	w.fetching.Wait()
	w.stopFetching()
	if !stop() {
		return context.Cause(ctx)
	}
	return w.mu.failed
}

// errRestarted is returned by Stop when another process answers than at the start.
var errRestarted = errors.New("the service was started anew in the measured window")

// fetch takes a profile over so many seconds. That ctx has ended is no error.
func (w *Window) fetch(ctx context.Context, k profiles.Kind, seconds int) {
	name := string(k)
	if k == profiles.CPU {
		name = "profile"
	}
	content, err := w.observer.plane.get(ctx, fmt.Sprintf("/debug/pprof/%s?seconds=%d", name, seconds))
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.mu.profiles[k] = content
	case ctx.Err() == nil:
		w.mu.failed = cmp.Or(w.mu.failed, err)
	}
}
