package proxy

import (
	"time"

	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/strategies"
)

// goesOn counts the request at its headers: how long it goes on from there is nobody's
// latency.
func (t *turn) goesOn() {
	t.stream = true
	t.s.streams.Add(1)
	t.count(t.headAt)
}

// answered is called when the answer has left, or could not. Over HTTP/2 that is not known.
func (t *turn) answered(cut bool, now int64) {
	if cut && t.shed == strategies.ReasonNone {
		t.gone, t.code = true, codeLeft
	}
	t.count(now)
}

// became returns what became of the request. Only the upstream's answers can be good.
func (t *turn) became() served.Outcome {
	switch {
	case t.shed != strategies.ReasonNone:
		return served.Shed
	case t.headAt != 0 && t.code < 500 && t.code != codeLeft:
		return served.OK
	}
	return served.Error
}

// count tells the events, once.
func (t *turn) count(now int64) {
	if t.counted {
		return
	}
	t.counted = true
	s := t.s
	if t.running {
		s.unfinished.Add(-1)
	}
	took := time.Duration(now - t.arrived)
	head := took
	if t.headAt != 0 {
		head = time.Duration(t.headAt - t.arrived)
	}
	e := &s.o.Events
	if t.gone {
		e.Left(took)
	}
	outcome := t.became()
	e.Answered(t.strategy, t.method, t.code, outcome, head, took)
	t.name = append(t.name[:0], t.asked.Client...)
	e.Asked(uint8(t.asked.Priority.Class()), t.name, t.code, outcome, head, t.had)
	if e.Routed != nil && t.route != "" {
		e.Routed(t.route, outcome, took)
	}
	slow := s.o.Slowest.Wants(took, now)
	if !slow && t.span == nil && e.Served == nil {
		return
	}
	q := slowest.Request{
		Answered: now, Strategy: t.strategy, Method: t.method, Route: t.route, Code: t.code, ValueBytes: max(t.length, len(t.body)), Took: took, Waited: took,
	}
	if outcome == served.Shed {
		q.Shed = t.shed.String()
	}
	if t.begun > 0 {
		q.Waited, q.Ran = time.Duration(t.begun-t.arrived), time.Duration(now-t.begun)
	}
	if slow {
		s.o.Slowest.Add(q)
	}
	t.tell(&q, outcome)
}

// tell tells the access log and the trace of the request, if there are any.
func (t *turn) tell(q *slowest.Request, outcome served.Outcome) {
	told := served.Request{Request: *q, Outcome: outcome, Path: served.PathOf(t.target), Client: t.asked.Client, Priority: uint8(t.asked.Priority.Class()), TraceID: served.TraceID(t.traceparent)}
	if t.asked.Client == "" {
		told.Client = t.peer // it was refused before anybody asked
	}
	if t.begun > 0 {
		told.Operation = "upstream"
	}
	if t.span != nil {
		t.span.End(&told)
		t.span = nil
	}
	if e := &t.s.o.Events; e.Served != nil {
		e.Served(&told)
	}
}

// trace begins the span of the request, if there are any, and adds to the head, if there is one,
// how its trace goes on at the upstream.
func (t *turn) trace(head, traceparent, tracestate []byte) []byte {
	t.traceparent = traceparent
	if tracer := t.s.o.Tracer; tracer != nil && t.span == nil {
		t.span = tracer.Start(traceparent, tracestate, t.arrived)
		return t.span.Lines(head)
	}
	return head
}
