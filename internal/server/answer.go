package server

import (
	"errors"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies"
)

// failure returns the answer to a request whose task, which is completed, was turned away or
// has failed, and whether it was.
func (c *call) failure() (a httpfront.Answer, failed bool) {
	a.Buf = c.op.Buf
	switch r := c.task.Shed; {
	case r != strategies.ReasonNone:
		c.shed, c.left = true, r == strategies.ReasonAbandoned
		a.Problem, a.Close = refusal.Answer(r, c.server.opts.Dispatcher.DrainTime()), c.left
	case c.op.Err != nil:
		a.Problem = storeProblem(c.op.Err, c.task.Write)
	default:
		return a, false
	}
	return a, true
}

// answer returns the answer to a request of one key, whose task is completed. A value lies
// behind so much room in the operation's buffer.
func (c *call) answer(room int) httpfront.Answer {
	op := &c.op
	a := httpfront.Answer{Buf: op.Buf}
	switch {
	case errors.Is(op.Err, store.ErrNotFound):
		a.Status = fasthttp.StatusNotFound
	case errors.Is(op.Err, store.ErrCondition):
		a.Problem = refused(op.Meta.Tag)
	case op.Err != nil || c.task.Shed != strategies.ReasonNone:
		a, _ = c.failure()
	case op.Kind == executor.Put:
		tag := op.Meta.Tag
		if tag.IsZero() {
			tag = etag.Of(op.Value)
		}
		c.lines = appendETag(c.lines[:0], tag)
		a.Status, a.Lines = fasthttp.StatusCreated, c.lines
	case op.Kind == executor.Delete:
		a.Status = fasthttp.StatusAccepted
	default:
		c.answerValue(&a, op.Buf[room:])
	}
	return a
}

// answerValue sets the answer to a read that has found a value.
func (c *call) answerValue(a *httpfront.Answer, value []byte) {
	q, m := &c.request, c.op.Meta
	if m.Tag.IsZero() {
		m.Tag = etag.Of(value)
	}
	if q.ifMatch.given() && !q.ifMatch.has(m.Tag) {
		a.Problem = refused(m.Tag)
		return
	}
	c.lines = appendETag(c.lines[:0], m.Tag)
	a.Lines = c.lines
	if q.ifNoneMatch.given() && q.ifNoneMatch.has(m.Tag) {
		a.Status = fasthttp.StatusNotModified
		return
	}
	if m.TTL != 0 {
		c.lines = append(c.lines, "Spillway-Ttl: "...)
		c.lines = strconv.AppendUint(c.lines, uint64(m.TTL), 10)
		c.lines = append(c.lines, "\r\n"...)
	}
	a.Status, a.Type, a.Lines = fasthttp.StatusOK, "application/octet-stream", c.lines
}

// storeProblem says what the store's error means for a client.
func storeProblem(err error, write bool) *httpfront.Problem {
	bad := &httpfront.Problem{Status: fasthttp.StatusServiceUnavailable}
	switch {
	case errors.Is(err, executor.ErrInDoubt) && write:
		bad.Detail = "what the write depends on is unknown: an earlier write of it was not made durable, and the store has not recovered yet; the write has had no effect"
	case errors.Is(err, store.ErrTimeout) && errors.Is(err, store.ErrUnknownOutcome):
		bad.Detail = "the outcome of the write is unknown: not enough replicas have acknowledged it in time, and it may or may not be there later"
	case errors.Is(err, store.ErrTimeout) && write:
		bad.Detail = "the write was not begun in time and has had no effect"
	case errors.Is(err, store.ErrTimeout):
		bad.Detail = "not enough replicas have answered the read in time"
	case errors.Is(err, store.ErrUnavailable) && write:
		bad.Detail = "too few replicas of the key can be reached at the moment; the write has had no effect"
	case errors.Is(err, store.ErrUnavailable):
		bad.Detail = "too few replicas of the key can be reached at the moment"
	case errors.Is(err, errors.ErrUnsupported) && write:
		bad.Status = fasthttp.StatusNotImplemented
		bad.Detail = "the cluster cannot keep a value for so long, see its storage_compatibility_mode; the write has had no effect"
	case errors.Is(err, errors.ErrUnsupported):
		bad.Status = fasthttp.StatusNotImplemented
		bad.Detail = "the distributed store spreads keys by their hashes and cannot read a range of them as one snapshot: ask for each key by " + pathEntity + ", or use the embedded store"
	case errors.Is(err, store.ErrUnknownOutcome) && write:
		bad.Detail = "the outcome of the write is unknown: the store failed while it made it durable, and it may or may not be there later"
	case errors.Is(err, store.ErrUnknownOutcome), errors.Is(err, store.ErrUnwritable) && !write:
		bad.Detail = "what is stored here is unknown: a write of it was not made durable, and the store has not recovered yet"
	case errors.Is(err, store.ErrUnwritable):
		bad.Detail = "the store cannot write at the moment; the write has had no effect"
	default:
		bad.Status = fasthttp.StatusInternalServerError
		bad.Detail = "the store failed: " + httpfront.Quote([]byte(secure.HidePaths(err.Error())))
	}
	return bad
}
