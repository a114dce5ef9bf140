package cassandra

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/store"
)

// speculation sends a read that has not been answered after a while a second time,
// to another node, and takes the answer that comes first: hedged requests, as in
// Dean and Barroso, The Tail at Scale (CACM 56(2), 2013). It helps against a node
// that is slow or hangs, and must not make it worse when all are slow because there
// is too much to do. So at most a tenth of the operations under way is a second
// attempt, or one.
//
// The driver's own speculative execution is not used, as it takes what comes
// first even if that is an error, such as that there is no other node.
type speculation struct {
	delay    time.Duration // 0 for none
	slots    chan struct{} // of all operations under way
	underWay atomic.Int64  // second attempts
}

// maxShare is what part of the operations under way may be second attempts: one in
// so many.
const maxShare = 10

// leastPause is how long a second attempt that may not be made yet waits at least
// before it asks again.
const leastPause = time.Millisecond

// begin reports whether a second attempt may be made. If so, end must be called
// after it.
func (s *speculation) begin() bool {
	if n := s.underWay.Add(1); n == 1 || n*maxShare <= int64(len(s.slots)) {
		select {
		case s.slots <- struct{}{}:
			return true
		default:
		}
	}
	s.underWay.Add(-1)
	return false
}

func (s *speculation) end() {
	<-s.slots
	s.underWay.Add(-1)
}

// read appends the value of key to dst.
type read func(ctx context.Context, dst, key []byte) ([]byte, store.Meta, error)

// answered reports whether a read that has ended so needs no other one.
func answered(err error) bool { return err == nil || errors.Is(err, store.ErrNotFound) }

// read makes the read, and a second time if it takes long, as soon as that may be.
// If both fail, the error is that of the first. limit must have a deadline, and not
// be cancelled before it.
func (s *speculation) read(limit context.Context, dst, key []byte, attempt read) ([]byte, store.Meta, error) {
	ctx, cancel := context.WithCancel(limit)
	defer cancel()
	var first asked
	type outcome struct {
		value []byte
		meta  store.Meta
		err   error
	}
	second := make(chan outcome, 1)
	var settled atomic.Bool // that there is a second attempt, or that there is none
	// It may outlive this call, and with it the key.
	copied := bytes.Clone(key)
	timer := time.AfterFunc(s.delay, func() {
		// When a node begins to hang, what waits for it is more than may be asked
		// elsewhere at once.
		for !s.begin() {
			select {
			case <-time.After(max(s.delay, leastPause)):
			case <-ctx.Done():
				return
			}
		}
		if settled.Swap(true) {
			s.end()
			return
		}
		value, meta, err := attempt(&attemptContext{ctx, true, &first}, nil, copied)
		s.end()
		second <- outcome{value, meta, err}
		if answered(err) {
			cancel() // the first ends
		}
	})
	value, meta, err := attempt(&attemptContext{ctx, false, &first}, dst, key)
	timer.Stop()
	if !settled.Swap(true) || answered(err) {
		return value, meta, err
	}
	over := limit.Done() // the second may take a moment to end
	if errors.Is(ctx.Err(), context.Canceled) {
		over = nil // it has answered
	}
	select {
	case o := <-second:
		if answered(o.err) {
			dst = append(bufpool.Grow(dst, len(o.value)), o.value...)
			bufpool.Put(o.value)
			return dst, o.meta, o.err
		}
	case <-over:
	}
	return dst, meta, err
}

// attemptContext is the context of one of the two attempts.
type attemptContext struct {
	context.Context
	second bool
	first  *asked // the nodes that the first has asked
}

// asked is a set of nodes.
type asked struct {
	mu  sync.Mutex
	ids []string
}

func (a *asked) add(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids = append(a.ids, id)
}

func (a *asked) has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.ids, id)
}

type attemptKey struct{}

// Value implements context.Context.
func (a *attemptContext) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// elsewhere is a host selection policy that gives the second attempt no node that
// the first has asked. The first is not hindered by the second: what it would have
// come to alone, it comes to.
type elsewhere struct{ gocql.HostSelectionPolicy }

// Pick returns the nodes of the policy below, some of which may be left out.
func (e elsewhere) Pick(statement gocql.ExecutableStatement) gocql.NextHost {
	next := e.HostSelectionPolicy.Pick(statement)
	q, ok := statement.(interface{ Context() context.Context })
	if !ok {
		return next
	}
	a, ok := q.Context().Value(attemptKey{}).(*attemptContext)
	if !ok {
		return next
	}
	return func() gocql.SelectedHost {
		h := next()
		for a.second && h != nil && a.first.has(h.Info().HostID()) {
			h = next()
		}
		if !a.second && h != nil {
			a.first.add(h.Info().HostID())
		}
		return h
	}
}
