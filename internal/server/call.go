package server

import (
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// call serves the requests of an exchange, one after another: the front calls Begin, then
// Field for each line of the head, Head, Serve and Answered. While the task is away it
// belongs to whoever runs it, with the operation and what that refers to.
type call struct {
	server *Server
	x      *httpfront.Exchange

	fields  fields  // by Field
	request request // by Head, from the fields
	decoded []byte  // keys that had escapes
	lines   []byte  // of the answer's head

	task dispatch.Task
	op   executor.Op

	// What the events get beside the status.
	span     served.Span // nil if there is none
	strategy string      // that the request was submitted to, if it was
	shed     bool
	left     bool // shed, as the client had left
}

// NewCall returns a call for the requests of an exchange.
func (s *Server) NewCall(x *httpfront.Exchange) httpfront.Call {
	c := &call{server: s, x: x}
	c.task.Payload = &c.op
	c.task.Done = func(*dispatch.Task) { x.Done() }
	return c
}

// Begin forgets the request before.
func (c *call) Begin() {
	c.fields, c.request = fields{}, request{}
	c.strategy, c.shed, c.left, c.span = "", false, false, nil
}

// Field notes a field if it matters.
func (c *call) Field(name, value []byte) *httpfront.Problem { return c.fields.set(name, value) }

// Lines are those by which browsers let pages read the answer.
func (c *call) Lines() string {
	lines, _ := c.server.cors.lines(c.fields.origin)
	return lines
}

// NoRoom refuses a request whose body has no room in the budget.
func (c *call) NoRoom() *httpfront.Problem {
	bad := refusal.Problem(strategies.ReasonFull, refusal.Seconds(c.server.opts.Dispatcher.DrainTime()))
	bad.Detail = "the bodies of other requests leave no room for this one"
	c.shed = true
	return bad
}

// Serve has the request carried out, and answers it.
func (c *call) Serve() {
	x, q := c.x, &c.request
	switch {
	case q.preflight:
		x.Send(httpfront.Answer{Status: fasthttp.StatusNoContent, Lines: preflight})
	case q.isRange:
		c.serveRange()
	case q.isBatch:
		x.Send(c.serveBatch())
	default:
		c.op = q.operation(x.Method, x.Body)
		if c.op.Kind == executor.Get {
			c.op.Buf = x.Room()
		}
		c.run()
		x.Send(c.answer(x.RoomIn()))
	}
}

// statusCut is what the events get for an answer that its client did not take
// in full. It is nginx's code for clients that close the connection; no client
// ever sees it.
const statusCut = 499

// outcomeOf returns what became of a request. That there is no value is a good answer to
// whoever asks for one, and to nobody else.
func outcomeOf(method string, status int, shed bool) served.Outcome {
	switch {
	case shed:
		return served.Shed
	case status >= 200 && status <= 299 || status == 304 || status == 404 && (method == "GET" || method == "HEAD"):
		return served.OK
	}
	return served.Error
}

// Answered calls the events.
func (c *call) Answered(status int, cut bool, now int64) {
	o, method, took := &c.server.opts, c.x.Method, time.Duration(now-c.x.Arrival)
	if cut && !c.shed {
		status = statusCut
	}
	strategy := c.strategy
	if strategy == "" {
		strategy = o.Dispatcher.Gauge().Strategy
	}
	outcome := outcomeOf(method, status, c.shed)
	o.Events.Answered(strategy, method, status, outcome, took)
	if (status == statusCut || c.left) && o.Events.Left != nil {
		o.Events.Left(took)
	}
	if c.strategy == "" {
		c.log(&slowest.Request{Strategy: strategy, Method: method, Code: status, Took: took, Received: took}, outcome)
		return
	}
	if w := &c.request.options; (len(w.client) > 0 || w.priority != defaultPriority) && o.Events.Asked != nil {
		had := time.Duration(0) // of a worker
		if c.task.Started != 0 {
			had = time.Duration(now - c.task.Started)
		}
		o.Events.Asked(w.priority, w.client, status, outcome, took, had)
	}
	slow := o.Slowest.Wants(took, now)
	if !slow && c.span == nil && o.Events.Served == nil {
		return
	}
	r := c.record(status, took, now)
	if slow {
		o.Slowest.Add(r)
	}
	c.log(&r, outcome)
}

// log writes the request into the access log and ends its trace, if there are any.
func (c *call) log(r *slowest.Request, outcome served.Outcome) {
	o := &c.server.opts
	if c.span == nil && o.Events.Served == nil {
		return
	}
	entry := served.Request{Request: *r, Outcome: outcome, Path: served.PathOf(c.x.Target), Client: c.x.Peer(), Priority: c.request.options.priority, TraceID: served.TraceID(c.fields.traceparent)}
	if c.strategy == "" { // it was refused before anybody looked
		entry.Priority = defaultPriority
	}
	if len(c.request.options.client) > 0 {
		entry.Client = string(c.request.options.client)
	}
	if r.Ran > 0 {
		entry.Operation = operations[c.op.Kind]
	}
	if c.span != nil {
		c.span.End(&entry)
		c.span = nil
	}
	if o.Events.Served != nil {
		o.Events.Served(&entry)
	}
}

var operations = [...]string{executor.Get: "get", executor.Put: "put", executor.Delete: "delete", executor.Range: "range", executor.Batch: "batch"}

// record describes the request, which was submitted and is answered now.
func (c *call) record(status int, took time.Duration, now int64) slowest.Request {
	t, q := &c.task, &c.request
	r := slowest.Request{
		Answered: now,
		Strategy: c.strategy,
		Method:   c.x.Method,
		Range:    q.isRange,
		Code:     status,
		KeyBytes: len(q.key),
		Took:     took,
		Received: time.Duration(t.Submitted - c.x.Arrival),
	}
	if c.op.Kind == executor.Put {
		r.ValueBytes = len(c.op.Value)
	}
	if c.shed {
		r.Shed = t.Shed.String()
	}
	if t.Started == 0 {
		r.Waited = r.Took - r.Received
	} else {
		r.Waited = time.Duration(t.Started - t.Submitted)
		r.Ran = time.Duration(now - t.Started)
	}
	return r
}

// run submits the task, whose operation is set, and returns when it is completed.
func (c *call) run() {
	t, x, w := &c.task, c.x, &c.request.options
	t.Arrival, t.Deadline = x.Arrival, 0
	if w.timeout > 0 {
		t.Deadline = x.Arrival + int64(w.timeout)
	}
	t.Priority = strategies.Urgency(int(w.priority))
	if t.Client = x.Peer(); len(w.client) > 0 {
		t.Client = x.Intern(w.client)
	}
	t.Size = int64(len(c.op.Key) + len(c.op.Value))
	t.Write = c.op.Kind == executor.Put || c.op.Kind == executor.Delete
	if c.op.Kind == executor.Batch {
		t.Size, t.Write = int64(len(x.Body)), c.op.Steps.Writes()
	}
	// A connection that is busy runs its tasks itself when a worker is idle.
	t.InPlace = x.InPlace()
	waits := c.server.opts.Dispatcher.Submit(t)
	if !x.IsDone() {
		c.await(waits)
	}
	c.strategy = t.Strategy
}

// await waits for the task, and takes it back if it is no use any more. One that cannot be
// taken back has been started, or soon will be given up by others.
func (c *call) await(waits bool) {
	reason := strategies.ReasonNone
	if waits {
		switch c.x.Wait(c.task.Deadline) {
		case httpfront.Done:
			return
		case httpfront.Expired:
			reason = strategies.ReasonExpired
		case httpfront.Gone:
			reason = strategies.ReasonAbandoned
		}
		c.server.opts.Dispatcher.Cancel(&c.task, reason)
	}
	c.x.WaitDone()
}
