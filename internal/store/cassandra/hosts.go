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
// that was given up, as its time was over or another node was faster. A node that hangs keeps its connections open, and it takes
// the driver and the other nodes some ten seconds to be sure that it is down.
// Meanwhile an operation that goes there first is lost, or late by its first attempt.
// So silent nodes are tried last, until they answer something, be it a probe. They are
// not left out: a node that is merely slow is better than none.
//
// That an operation was given up says nothing alone: the node may have waited for
// another replica, longer than the client would. Then it answers others meanwhile. One
// that nobody else asks meanwhile counts as silent until the next probe.
type cautious struct {
	gocql.HostSelectionPolicy
	silent    atomic.Int32 // how many there are, so that to find none costs a load
	succeeded atomic.Bool  // an operation or a probe has, since it was last looked at
	mu        struct {
		sync.Mutex
		nodes map[string]node // by id
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

// IsLocal reports whether a replica is to be tried before the nodes of Pick.
func (c *cautious) IsLocal(h *gocql.HostInfo) bool { return !c.isSilent(h.HostID()) }

// Pick returns all nodes, the silent ones last.
func (c *cautious) Pick(statement gocql.ExecutableStatement) gocql.NextHost {
	next := c.HostSelectionPolicy.Pick(statement)
	if c.silent.Load() == 0 {
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
		c.countLocked()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
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
	c.countLocked()
}

func (c *cautious) countLocked() {
	var silent int32
	for _, n := range c.mu.nodes {
		if n.silent {
			silent++
		}
	}
	c.silent.Store(silent)
}

func (c *cautious) isSilent(id string) bool {
	if c.silent.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.nodes[id].silent
}

// silentOnes returns the ids of the silent nodes, in order.
func (c *cautious) silentOnes() (ids []string) {
	if c.silent.Load() == 0 {
		return nil
	}
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
