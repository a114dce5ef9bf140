package cassandra

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// silence is how long a node lets an operation wait before it counts as silent
// when the operation is given up: longer than the pauses of a node that is well.
const silence = 200 * time.Millisecond

// cautious is the host selection policy below the token-aware one, and knows which
// nodes are silent: they have not answered an operation that was given up after a
// while. A node that hangs keeps its connections open, and it takes the driver and
// the other nodes some ten seconds to be sure that it is down. Meanwhile an operation
// that goes there first is lost, or late by its first attempt. So silent nodes are
// tried last, until they have answered a probe. They are not left out: a node that is
// merely slow is better than none.
type cautious struct {
	gocql.HostSelectionPolicy
	silent atomic.Int32 // how many there are, so that to find none costs a load
	mu     struct {
		sync.Mutex
		ids map[string]struct{}
	}
}

var _ gocql.QueryObserver = (*cautious)(nil)

func newCautious() *cautious {
	c := &cautious{HostSelectionPolicy: gocql.RoundRobinHostPolicy()}
	c.mu.ids = map[string]struct{}{}
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

// RemoveHost forgets a node that has left the cluster.
func (c *cautious) RemoveHost(h *gocql.HostInfo) {
	c.answered(h.HostID())
	c.HostSelectionPolicy.RemoveHost(h)
}

// ObserveQuery is called after every attempt of an operation.
func (c *cautious) ObserveQuery(_ context.Context, q gocql.ObservedQuery) {
	if q.Err != nil && q.Host != nil {
		c.observe(q.Host.HostID(), q.Err, q.End.Sub(q.Start))
	}
}

func (c *cautious) observe(id string, err error, took time.Duration) {
	if took < silence || !errors.Is(err, gocql.ErrTimeoutNoResponse) && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ids[id] = struct{}{}
	c.silent.Store(int32(len(c.mu.ids)))
}

// answered is called when a node has answered a probe.
func (c *cautious) answered(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.ids, id)
	c.silent.Store(int32(len(c.mu.ids)))
}

func (c *cautious) isSilent(id string) bool {
	if c.silent.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, silent := c.mu.ids[id]
	return silent
}

// silentOnes returns the ids of the silent nodes, in order.
func (c *cautious) silentOnes() (ids []string) {
	if c.silent.Load() == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.mu.ids {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
