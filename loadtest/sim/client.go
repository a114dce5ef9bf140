package sim

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// advance draws the next request of an open loop.
func (s *simulation) advance() {
	r, more := s.draw()
	if !more || r.At >= math.MaxInt64-time.Duration(start) {
		s.due = math.MaxInt64
		return
	}
	s.coming, s.due = r, max(s.due, start+int64(r.At)) // the clock does not go back
}

// offer takes a request whose time has come. What is drawn for it does not depend
// on what becomes of others.
func (s *simulation) offer(a Request) {
	w := wish{
		scheduled: s.now, measured: s.now >= s.begin && s.now < s.end,
		class: int32(a.Class), service: int64(a.Service), client: a.Client, route: a.Route,
	}
	c := &s.classes[w.class]
	if w.service == 0 {
		w.service = int64(c.Service.Draw(s.works))
	}
	c.budget = min(c.budget+c.Retry.Budget, budgetBurst)
	if w.measured {
		s.open++
	}
	r := s.request(w)
	if s.c.Connections > 0 && !s.c.Closed {
		if s.free == 0 {
			if c.Timeout > 0 && !c.FromSent {
				s.agenda.plan(s.now+int64(c.Timeout), gaveUp, r)
			}
			s.queued.push(r)
			return
		}
		s.free--
	}
	s.submit(r)
}

// request returns one from the pool.
func (s *simulation) request(w wish) *request {
	var r *request
	if n := len(s.pool); n > 0 {
		r = s.pool[n-1]
		s.pool = s.pool[:n-1]
	} else {
		r = new(request)
		r.task.Owner = r
	}
	r.wish = w
	r.node, r.gone, r.inline, r.learnt = nil, false, false, false
	return r
}

// recycle makes the events of r void. Nothing may refer to it any more.
func (s *simulation) recycle(r *request) {
	r.gen++
	s.pool = append(s.pool, r)
}

// submit sends r to a node.
func (s *simulation) submit(r *request) {
	w := &r.wish
	c := &s.classes[w.class]
	waitsAlready := r.node == nil && w.attempts == 0 && s.now > w.scheduled
	if w.attempts++; w.attempts == 1 {
		w.sent = s.now
	}
	deadline := int64(0)
	if c.Timeout > 0 {
		since := s.now
		if w.attempts == 1 && !c.FromSent {
			since = w.scheduled // the wait for a connection counts
		}
		deadline = since + int64(c.Timeout)
		if !waitsAlready || c.FromSent { // otherwise it has been planned
			s.agenda.plan(deadline, gaveUp, r)
		}
		if !c.Deadline {
			deadline = 0
		}
	}
	t := &r.task
	t.Arrival, t.Submitted, t.Deadline = s.now, s.now, deadline
	t.Priority, t.Client, t.Route, t.Cost = strategies.Urgency(int(c.Priority)), w.client, w.route, c.Cost
	if r.node = s.nodes[0]; len(s.nodes) > 1 {
		r.node = s.nodes[s.balancer.choose(len(s.nodes), w.client, func(i int) int { return s.nodes[i].outstanding })]
	}
	if w.measured {
		s.open++
	}
	r.node.submit(r)
}

// giveUp is the end of a client's patience.
func (s *simulation) giveUp(r *request) {
	sent := r.node != nil // otherwise it waits for a connection, and is passed over when one is free
	announced := sent && r.task.Deadline != 0
	if announced && r.node.cancel(r, strategies.ReasonExpired) {
		return
	}
	r.gone = true
	s.ends(r, TimedOut, strategies.ReasonNone)
	if sent && !announced {
		r.node.cancel(r, strategies.ReasonAbandoned)
	}
}

// done tells that the service has run r, or turned it away for a reason.
func (s *simulation) done(r *request, how Outcome, reason strategies.Reason) {
	if s.c.ended != nil {
		s.c.ended(r, reason)
	}
	if r.wish.measured {
		s.open--
	}
	if !r.gone {
		s.ends(r, how, reason)
	}
	s.recycle(r)
}

// ends is what a client sees of an attempt: it tries again, or it is the end.
func (s *simulation) ends(r *request, how Outcome, reason strategies.Reason) {
	w := &r.wish
	c := &s.classes[w.class]
	if how != Served && int(w.attempts) < c.Retry.Attempts && r.node != nil && (c.Retry.Budget == 0 || c.budget >= 1) {
		c.budget--
		// The attempt may be in the hands of the service still: the next is another.
		s.agenda.plan(s.now+s.backoff(&c.Retry, w.attempts), retried, s.request(*w))
		return
	}
	if w.measured {
		s.open--
	}
	if s.c.Observe != nil {
		s.c.Observe(Record{
			Arrival: time.Duration(w.scheduled - start), Sent: time.Duration(w.sent - start), Latency: time.Duration(s.now - w.scheduled),
			Class: int(w.class), Client: w.client, Attempts: int(w.attempts), Outcome: how, Reason: reason, Measured: w.measured,
		})
	}
	if s.c.Connections > 0 && r.node != nil {
		delay := int64(0)
		if s.c.Closed {
			delay = int64(s.c.turnaround())
		}
		s.agenda.plan(s.now+delay, answered, nil)
	}
}

// backoff returns how long a client waits after so many attempts.
func (s *simulation) backoff(r *Retry, attempts int32) int64 {
	wait := int64(r.Backoff)
	for i := int32(1); i < attempts && wait < int64(longest); i++ {
		wait *= 2
	}
	wait = min(wait, int64(longest))
	if r.Jitter && wait > 0 {
		wait = s.waits.Int64N(wait + 1)
	}
	return wait
}

// release is a connection that is free again.
func (s *simulation) release() {
	if s.c.Closed {
		if r, more := s.draw(); more && s.now < s.end {
			s.offer(r)
		}
		return
	}
	for {
		if s.queued.empty() {
			s.free++
			return
		}
		r := s.queued.pop()
		if r.gone {
			s.recycle(r)
			continue
		}
		s.submit(r)
		return
	}
}
