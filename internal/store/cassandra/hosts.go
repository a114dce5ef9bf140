package cassandra

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// silence is how long a node answers nothing, while operations are given up, before
// it counts as silent: longer than the pauses of a node that is well.
const silence = 200 * time.Millisecond

// cautious is the host selection policy below the token-aware one, and knows which
// nodes are silent: they have answered nothing for a while since an operation began
// that was given up, as its time was over or another node was faster. A node that
// hangs keeps its connections open, and it takes the driver and the other nodes some
// ten seconds to be sure that it is down. Meanwhile an operation that goes there first
// is lost, or late by its first attempt. So silent nodes are tried last, until they
// answer something, be it a probe. They are not left out: a node that is merely slow
// is better than none. If all are silent, clients wait for less than an answer takes,
// or this machine stood still: then the order is as ever, replicas first.
//
// That an operation was given up says nothing alone: the node may have waited for
// another replica, longer than the client would. Then it answers others meanwhile. One
// that nobody else asks meanwhile counts as silent until the next probe.
type cautious struct {
	gocql.HostSelectionPolicy
	aside     atomic.Bool // some nodes are silent and some are not; so that to find none costs a load
	succeeded atomic.Bool // an operation or a probe has, since it was last looked at
	mu        struct {
		sync.Mutex
		nodes map[string]node // by id: those that are up, and any that were asked
	}
}

// node is what is known of a node of the cluster.
type node struct {
	heard   time.Time // when it last answered
	unheard time.Time // when the first operation began after that which was given up, or zero
	silent  bool
}

// answered notes an answer at that time.
func (n *node) answered(at time.Time) {
	n.heard = later(n.heard, at)
	if n.heard.After(n.unheard) {
		n.unheard, n.silent = time.Time{}, false
	}
}

// gaveUp notes that an operation was given up.
func (n *node) gaveUp(start, end time.Time) {
	if n.heard.After(start) {
		return
	}
	if n.unheard.IsZero() || start.Before(n.unheard) {
		n.unheard = start
	}
	n.silent = n.silent || end.Sub(n.unheard) >= silence
}

var _ gocql.QueryObserver = (*cautious)(nil)

func newCautious() *cautious {
	c := &cautious{HostSelectionPolicy: gocql.RoundRobinHostPolicy()}
	c.mu.nodes = map[string]node{}
	return c
}

// AddHost implements gocql.HostStateNotifier.
func (c *cautious) AddHost(h *gocql.HostInfo) {
	c.HostSelectionPolicy.AddHost(h)
	c.know(h.HostID())
}

// HostUp implements gocql.HostStateNotifier.
func (c *cautious) HostUp(h *gocql.HostInfo) {
	c.HostSelectionPolicy.HostUp(h)
	c.know(h.HostID())
}

// RemoveHost implements gocql.HostStateNotifier.
func (c *cautious) RemoveHost(h *gocql.HostInfo) {
	c.HostSelectionPolicy.RemoveHost(h)
	c.forget(h.HostID())
}

// HostDown implements gocql.HostStateNotifier.
func (c *cautious) HostDown(h *gocql.HostInfo) {
	c.HostSelectionPolicy.HostDown(h)
	c.forget(h.HostID())
}

// IsLocal reports whether a replica is to be tried before the nodes of Pick.
func (c *cautious) IsLocal(h *gocql.HostInfo) bool { return !c.isSilent(h.HostID()) }

// Pick returns all nodes, the silent ones last.
func (c *cautious) Pick(statement gocql.ExecutableStatement) gocql.NextHost {
	next := c.HostSelectionPolicy.Pick(statement)
	if !c.aside.Load() {
		return next
	}
	var aside []gocql.SelectedHost
	return func() gocql.SelectedHost {
		for h := next(); h != nil; h = next() {
			if !c.isSilent(h.Info().HostID()) {
				return h
			}
			aside = append(aside, h)
		}
		if len(aside) == 0 {
			return nil
		}
		h := aside[0]
		aside = aside[1:]
		return h
	}
}

// ObserveQuery is called after every attempt of an operation, and of a probe.
func (c *cautious) ObserveQuery(_ context.Context, q gocql.ObservedQuery) {
	if q.Host != nil {
		c.observe(q.Host.HostID(), q.Err, q.Start, q.End)
	}
}

func (c *cautious) observe(id string, err error, start, end time.Time) {
	if err == nil && !c.succeeded.Load() {
		c.succeeded.Store(true)
	}
	_, refused := errors.AsType[gocql.RequestError](err)
	answered := err == nil || refused
	givenUp := errors.Is(err, gocql.ErrTimeoutNoResponse) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if !answered && !givenUp {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.mu.nodes[id]
	was := n.silent
	if answered {
		n.answered(end)
	} else {
		n.gaveUp(start, end)
	}
	c.mu.nodes[id] = n
	if n.silent != was {
		c.compareLocked()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (c *cautious) know(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.mu.nodes[id]; !ok {
		c.mu.nodes[id] = node{}
		c.compareLocked()
	}
}

func (c *cautious) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.nodes, id)
	c.compareLocked()
}

// keep forgets all nodes but those: what has left the cluster answers no probe.
func (c *cautious) keep(hosts []*gocql.HostInfo) {
	known := make(map[string]bool, len(hosts))
	for _, h := range hosts {
		known[h.HostID()] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.mu.nodes, func(id string, _ node) bool { return !known[id] })
	c.compareLocked()
}

func (c *cautious) compareLocked() {
	silent := 0
	for _, n := range c.mu.nodes {
		if n.silent {
			silent++
		}
	}
	c.aside.Store(silent > 0 && silent < len(c.mu.nodes))
}

// isSilent reports whether a node is silent while others are not.
func (c *cautious) isSilent(id string) bool {
	if !c.aside.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.nodes[id].silent
}

// silentOnes returns the ids of the silent nodes, in order.
func (c *cautious) silentOnes() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.mu.nodes {
		if n.silent {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
