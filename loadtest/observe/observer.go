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
	// Status is that of the start of the window.
	Status
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

// errRestarted says that another process answers than at the start.
var errRestarted = errors.New("the service was started anew in the measured window")

// Watch observes a window, which lasts as long as the call of during. Profiles are taken over so
// many seconds, none if that is 0; they may come 20 seconds after the window at most. When ctx
// ends, so does the taking of profiles, which is no error. With an error there is what was seen
// besides, nil if that is nothing. No connection stays open.
func (o *Observer) Watch(ctx context.Context, seconds int, during func()) (*Observation, error) {
	defer o.plane.client.CloseIdleConnections()
	status, first, err := o.plane.state(ctx)
	if err != nil {
		during()
		return nil, err
	}
	seen := &Observation{Status: status, Pebble: first.pebble, Profiles: map[profiles.Kind][]byte{}}
	fetching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var fetches sync.WaitGroup
	contents, failures := make([][]byte, len(profiles.Kinds)), make([]error, len(profiles.Kinds))
	for i, kind := range profiles.Kinds {
		if seconds > 0 {
			fetches.Go(func() { contents[i], failures[i] = o.plane.profile(fetching, kind, seconds) })
		}
	}
	during()
	last, err := o.plane.read(context.WithoutCancel(ctx))
	switch {
	case err != nil:
	case last.started != first.started:
		err = errRestarted
	default:
		seen.Length, seen.CPU = last.at.Sub(first.at), time.Duration((last.cpu-first.cpu)*float64(time.Second))
	}
	late := time.AfterFunc(o.patience, func() { stop(fmt.Errorf("it gives no profiles %v after the end of the window", o.patience)) })
	fetches.Wait()
	late.Stop()
	for i, kind := range profiles.Kinds {
		if failures[i] != nil && ctx.Err() == nil {
			err = cmp.Or(err, failures[i])
		} else if len(contents[i]) > 0 {
			seen.Profiles[kind] = contents[i]
		}
	}
	return seen, err
}
