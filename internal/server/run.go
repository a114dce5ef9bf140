package server

import (
	"time"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/strategies"
)

// run submits the task of the exchange, whose operation is set, and returns
// when it is completed. Answers that wait to be written, up to out[base:], are
// written meanwhile, unless the task is completed at once.
func (c *conn) run(base int) {
	t, q := &c.x.task, &c.req
	t.Arrival, t.Deadline = q.arrival, 0
	if q.wishes.timeout > 0 {
		t.Deadline = q.arrival + int64(q.wishes.timeout)
	}
	t.Priority = strategies.Urgency(int(q.wishes.priority))
	t.Client = c.clientName()
	t.Size = int64(len(c.x.op.Key) + len(c.x.op.Value))
	t.Write = c.x.op.Kind == executor.Put || c.x.op.Kind == executor.Delete
	if c.x.op.Kind == executor.Batch {
		t.Size, t.Write = int64(len(c.body.value)), c.x.op.Steps.Writes()
	}

	// A connection that is busy runs its tasks itself when a worker is idle. One that
	// is not busy does not: its stack would grow and stay large, and there may be
	// many. Nor does one with answers to write, which would wait for the task.
	t.InPlace = c.lately >= busyAfter && base == c.x.sent
	waits := c.server.opts.Dispatcher.Submit(t)
	events := c.parker.poll()
	c.gone |= events & (halfGone | wholeGone)
	if events&taskDone != 0 {
		return
	}
	c.flushTo(base)
	if !waits {
		c.waitDone()
		return
	}
	if t.Deadline != 0 {
		c.startTimer(t.Deadline)
		defer c.timer.Stop()
	}
	for tried := false; ; {
		// A task that cannot be taken back has been started, or soon will be
		// given up by others: then nothing is left but to wait.
		if reason := c.reasonToCancel(); reason != strategies.ReasonNone && !tried {
			c.server.opts.Dispatcher.Cancel(t, reason)
			tried = true
		}
		events := c.parker.wait()
		c.gone |= events & (halfGone | wholeGone)
		if events&taskDone != 0 {
			return
		}
	}
}

// A connection is busy that has had so many requests answered, each so soon after
// the one before it.
const (
	busyAfter  = 2
	busyWithin = int64(time.Second)
)

// remember notes that the request, which was submitted and is answered now, was
// slow.
func (c *conn) remember(now int64) {
	t, q := &c.x.task, &c.req
	r := slowest.Request{
		Answered: now,
		Strategy: c.outcome.strategy,
		Method:   q.method,
		Range:    q.isRange,
		Code:     c.outcome.status,
		KeyBytes: len(q.key),
		Took:     time.Duration(now - q.arrival),
		Received: time.Duration(t.Submitted - q.arrival),
	}
	if c.x.op.Kind == executor.Put {
		r.ValueBytes = len(c.x.op.Value)
	}
	if c.outcome.shed {
		r.Shed = t.Shed.String()
	}
	if t.Started == 0 {
		r.Waited = r.Took - r.Received
	} else {
		r.Waited = time.Duration(t.Started - t.Submitted)
		r.Ran = time.Duration(now - t.Started)
	}
	c.server.opts.Slowest.Add(r)
}

// resume resubmits the task of a range, and returns when it is completed.
func (c *conn) resume() {
	c.server.opts.Dispatcher.Continue(&c.x.task)
	c.waitDone()
}

// waitDone waits until the task is completed, whatever else happens.
func (c *conn) waitDone() {
	for {
		events := c.parker.wait()
		c.gone |= events & (halfGone | wholeGone)
		if events&taskDone != 0 {
			return
		}
	}
}

// reasonToCancel tells why a task that waits should be taken back.
func (c *conn) reasonToCancel() strategies.Reason {
	if d := c.x.task.Deadline; d != 0 && c.now() >= d {
		return strategies.ReasonExpired
	}
	if c.broken != nil || c.abandoned() {
		return strategies.ReasonAbandoned
	}
	return strategies.ReasonNone
}

// startTimer has the parker told when the deadline has come.
func (c *conn) startTimer(deadline int64) {
	d := time.Duration(deadline - c.now())
	if c.timer == nil {
		c.timer = time.AfterFunc(d, func() { c.parker.signal(timeUp) })
		return
	}
	c.timer.Reset(d)
}

// abandoned reports whether the client has gone: it has reset the connection,
// or ended its side of it with nothing left to be read. A client that has sent
// further requests before it ended its side waits for their answers.
func (c *conn) abandoned() bool {
	switch {
	case c.gone&wholeGone != 0:
		return true
	case c.gone&halfGone == 0, c.reader.Buffered() > c.body.held:
		return false
	}
	return !bytesPending(c.raw)
}

// clientName returns whom the request counts for. A name that is sent again and
// again is made a string once.
func (c *conn) clientName() string {
	name := c.req.wishes.client
	if len(name) == 0 {
		return c.peer
	}
	if c.client != string(name) {
		c.client = string(name)
	}
	return c.client
}
