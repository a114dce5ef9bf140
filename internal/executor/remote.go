package executor

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// ask runs a point operation on a store on other machines, and waits for it: the
// workers are what bounds the operations under way there. Such a store answers a
// write when it is durable, so that no read need be held back, and has no batches
// of different keys, so that a write shares nothing with its neighbours.
func (e *Executor) ask(t *dispatch.Task, op *Op, done func(*dispatch.Task)) {
	terms := store.Terms{Consistency: op.Consistency}
	if t.Deadline != 0 && e.started {
		terms.Deadline = e.epoch.Add(time.Duration(t.Deadline))
	}
	switch op.Kind {
	case Batch:
		op.Err = fmt.Errorf("batches of a distributed store: %w", errors.ErrUnsupported)
	case Get:
		start := e.began(t)
		head := len(op.Buf)
		e.remoteGet(terms, op)
		if op.Err != nil {
			op.Buf = op.Buf[:head]
		}
		e.operated("get", start)
	default:
		start := e.now() // the one before may have taken its time
		write := [1]store.Write{{Key: op.Key, Value: op.Value, Delete: op.Kind == Delete, TTL: op.TTL, If: op.If}}
		op.Meta = store.Meta{}
		op.Err = e.remoteApply(terms, write[:])
		if refused, ok := errors.AsType[*store.ConditionError](op.Err); ok {
			op.Meta.Tag = refused.Tag
		}
		e.operated("commit", start)
		if op.Err == nil {
			e.events.Committed(t.Strategy, 1)
		}
	}
	answered(t, op.Err)
	done(t)
}

// answered notes how t ended, for a learned concurrency.
// Other machines that are overloaded may refuse at once, which is no sign of speed.
func answered(t *dispatch.Task, err error) {
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrCondition):
	case errors.Is(err, store.ErrTimeout), errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknownOutcome):
		t.Ended(dispatch.Dropped)
	default: // they were not asked, or would not do it at any time
		t.Ended(dispatch.Ignored)
	}
}

func (e *Executor) remoteGet(terms store.Terms, op *Op) {
	defer e.rescue(&op.Err)
	op.Buf, op.Meta, op.Err = e.remote.GetUnder(terms, op.Buf, op.Key)
}

func (e *Executor) remoteApply(terms store.Terms, writes []store.Write) (err error) {
	defer e.rescueWrite(&err)
	return e.remote.ApplyUnder(terms, writes)
}
