package server

import (
	"errors"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies"
)

// outcome is what the events are told of the present request. The status is 0
// if it got no answer.
type outcome struct {
	strategy string
	status   int
	shed     bool
	left     bool // shed, as the client had left
}

// perform has the request's operation run, and answers.
func (c *conn) perform() {
	x, q := c.x, &c.req
	base := len(x.out)
	x.op = executor.Op{Kind: executor.Get, Key: q.key, Consistency: q.wishes.consistency}
	switch q.method {
	case fasthttp.MethodPut:
		x.op.Kind, x.op.Value, x.op.TTL, x.op.If = executor.Put, c.body.value, q.wishes.ttl, q.condition()
	case fasthttp.MethodDelete:
		x.op.Kind, x.op.If = executor.Delete, q.condition()
	default:
		x.out = append(append(x.out, headRoom[:]...), q.cors...) // just as long as need be
		x.op.Buf = x.out
	}
	c.run(base)
	if x.op.Kind == executor.Get {
		x.out = x.op.Buf
	}
	switch err := x.op.Err; {
	case x.task.Shed != strategies.ReasonNone:
		x.out = x.out[:base]
		c.answerShed(x.task.Shed)
	case errors.Is(err, store.ErrNotFound):
		x.out = x.out[:base]
		c.answerEmpty(fasthttp.StatusNotFound, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n")
	case errors.Is(err, store.ErrCondition):
		x.out = x.out[:base]
		c.answerProblem(refused(x.op.Meta.Tag))
	case err != nil:
		x.out = x.out[:base]
		c.answerProblem(storeProblem(err, x.task.Write))
	case x.op.Kind == executor.Put:
		tag := x.op.Meta.Tag
		if tag.IsZero() {
			tag = etag.Of(x.op.Value)
		}
		x.out = append(x.out, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n"...)
		x.out = appendETag(x.out, tag)
		c.answerEmpty(fasthttp.StatusCreated, "")
	case x.op.Kind == executor.Delete:
		c.answerEmpty(fasthttp.StatusAccepted, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n")
	default:
		c.answerValue(base)
	}
	c.outcome.strategy = x.task.Strategy
}

// headRoom is left in front of a value for the head of its answer, whose length
// depends on that of the value, so that both leave in one piece without a copy.
var headRoom [256]byte

// answerValue completes the answer that begins at out[base:]: room for the head
// is there, and the value behind it.
func (c *conn) answerValue(base int) {
	x, q := c.x, &c.req
	tag := x.op.Meta.Tag
	if tag.IsZero() {
		tag = etag.Of(x.out[base+c.headRoom():])
	}
	switch {
	case q.ifMatch.given() && !q.ifMatch.has(tag):
		x.out = x.out[:base]
		c.answerProblem(refused(tag))
		return
	case q.ifNoneMatch.given() && q.ifNoneMatch.has(tag):
		x.out = append(x.out[:base], "HTTP/1.1 304 Not Modified\r\n"...)
		x.out = appendETag(x.out, tag)
		c.answerEmpty(fasthttp.StatusNotModified, "")
		return
	}
	var space [len(headRoom)]byte
	head := appendETag(space[:0], tag)
	if ttl := x.op.Meta.TTL; ttl != 0 {
		head = append(head, "Spillway-Ttl: "...)
		head = strconv.AppendUint(head, uint64(ttl), 10)
		head = append(head, "\r\n"...)
	}
	c.answerBody(base, "application/octet-stream", head)
}

// headRoom returns how much room is left for a head.
func (c *conn) headRoom() int { return len(headRoom) + len(c.req.cors) }

// answerBody completes an answer with a body of that type, behind room for the head,
// and those further lines of the head.
func (c *conn) answerBody(base int, mediaType string, lines []byte) {
	x := c.x
	body := base + c.headRoom()
	var space [len(headRoom)]byte
	head := append(space[:0], "HTTP/1.1 200 OK\r\nContent-Type: "...)
	head = append(head, mediaType...)
	head = append(head, "\r\nContent-Length: "...)
	head = strconv.AppendInt(head, int64(len(x.out)-body), 10)
	head = append(head, "\r\n"...)
	head = append(head, lines...)
	head = c.endHead(head)
	gap := body - base - len(head)
	copy(x.out[x.sent+gap:], x.out[x.sent:base]) // answers that wait before this one move up
	x.sent += gap
	copy(x.out[base+gap:], head)
	if c.req.head {
		x.out = x.out[:body]
	}
	c.outcome.status = fasthttp.StatusOK
}

// endHead appends what all answers have in common, and the empty line.
func (c *conn) endHead(dst []byte) []byte {
	dst = c.server.clock.append(dst)
	dst = append(dst, c.req.cors...)
	if !c.keepAlive() {
		dst = append(dst, "Connection: close\r\n"...)
	} else if c.req.http10 {
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// keepAlive reports whether the connection goes on after the present answer, and
// otherwise notes that it does not.
func (c *conn) keepAlive() bool {
	if !c.ending && (!c.req.keepAlive || c.broken != nil || c.server.draining.Load()) {
		c.ending = true
	}
	return !c.ending
}

func (c *conn) answerEmpty(status int, head string) {
	c.x.out = c.endHead(append(c.x.out, head...))
	c.outcome.status = status
}

func (c *conn) answerShed(r strategies.Reason) {
	// A client of HTTP/1.0 would have to be told that the connection goes on.
	c.ending = c.ending || c.req.http10 || r == strategies.ReasonAbandoned
	c.x.out = appendShed(c.x.out, r, c.server.opts.Dispatcher.DrainTime(), !c.keepAlive(), c.req.head, c.req.cors)
	c.outcome.status, c.outcome.shed, c.outcome.left = shedStatus(r), true, r == strategies.ReasonAbandoned
}

func (c *conn) answerProblem(bad *problem) {
	c.ending = c.ending || c.req.http10 || bad.close
	bad.header += c.req.cors
	c.x.out = bad.append(c.x.out, &c.server.clock, !c.keepAlive(), c.req.head)
	c.outcome.status, c.outcome.shed = bad.status, bad.shed
}

// refuseRequest answers a request that is not carried out. If some of it has
// not arrived yet, the connection ends.
func (c *conn) refuseRequest(bad *problem) {
	n := c.req.bodyLength
	if bad.close || n < 0 || n > c.reader.Buffered() {
		bad.close, c.lingering = true, true
	} else {
		c.body.held = n
	}
	c.answerProblem(bad)
}

// storeProblem tells a client what the store's error means for it.
func storeProblem(err error, write bool) *problem {
	bad := &problem{status: fasthttp.StatusServiceUnavailable}
	switch {
	case errors.Is(err, executor.ErrInDoubt) && write:
		bad.detail = "what the write depends on is unknown: an earlier write of it was not made durable, and the store has not recovered yet; the write has had no effect"
	case errors.Is(err, store.ErrTimeout) && errors.Is(err, store.ErrUnknownOutcome):
		bad.detail = "the outcome of the write is unknown: not enough replicas have acknowledged it in time, and it may or may not be there later"
	case errors.Is(err, store.ErrTimeout) && write:
		bad.detail = "the write was not begun in time and has had no effect"
	case errors.Is(err, store.ErrTimeout):
		bad.detail = "not enough replicas have answered the read in time"
	case errors.Is(err, store.ErrUnavailable) && write:
		bad.detail = "too few replicas of the key can be reached at the moment; the write has had no effect"
	case errors.Is(err, store.ErrUnavailable):
		bad.detail = "too few replicas of the key can be reached at the moment"
	case errors.Is(err, errors.ErrUnsupported) && write:
		bad.status = fasthttp.StatusNotImplemented
		bad.detail = "the cluster cannot keep a value for so long, see its storage_compatibility_mode; the write has had no effect"
	case errors.Is(err, errors.ErrUnsupported):
		bad.status = fasthttp.StatusNotImplemented
		bad.detail = "the distributed store spreads keys by their hashes and cannot read a range of them as one snapshot: ask for each key by " + pathEntity + ", or use the embedded store"
	case errors.Is(err, store.ErrUnknownOutcome) && write:
		bad.detail = "the outcome of the write is unknown: the store failed while it made it durable, and it may or may not be there later"
	case errors.Is(err, store.ErrUnknownOutcome), errors.Is(err, store.ErrUnwritable) && !write:
		bad.detail = "what is stored here is unknown: a write of it was not made durable, and the store has not recovered yet"
	case errors.Is(err, store.ErrUnwritable):
		bad.detail = "the store cannot write at the moment; the write has had no effect"
	default:
		bad.status = fasthttp.StatusInternalServerError
		bad.detail = "the store failed: " + quote([]byte(secure.HidePaths(err.Error())))
	}
	return bad
}
