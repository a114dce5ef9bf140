package sim

import (
	"math"
	"time"

	"spillway/strategies"
)

// arrival is a request whose time is coming.
type arrival struct {
	at    int64
	given bool // the request is not drawn
	Request
}

// arrivals returns what yields the arrivals one after the other; their time is
// math.MaxInt64 when there are no more.
func (s *simulation) arrivals() func() arrival {
	none := arrival{at: math.MaxInt64}
	if s.c.Requests != nil {
		next, last := s.c.Requests(), time.Duration(0)
		return func() arrival {
			r, more := next()
			if !more || r.At >= Never-time.Duration(start) {
				return none
			}
			last = max(last, r.At) // the clock does not go back
			return arrival{start + int64(last), true, r}
		}
	}
	if s.c.Arrivals == nil { // a closed loop: all connections begin
		n := 0
		return func() arrival {
			if n == s.c.Connections {
				return none
			}
			n++
			return arrival{at: start}
		}
	}
	times := s.c.Arrivals.Times(s.times)
	return func() arrival {
		at := times()
		if at >= Never-time.Duration(start) {
			return none
		}
		return arrival{at: start + int64(at)}
	}
}

func (s *simulation) closedLoop() bool { return s.c.Arrivals == nil && s.c.Requests == nil }

// offer takes a request whose time has come.
func (s *simulation) offer(a arrival) {
	s.offerWish(s.wish(a))
}

// wish draws what a request is. It draws the same whatever becomes of others.
func (s *simulation) wish(a arrival) wish {
	w := wish{scheduled: s.now, measured: s.now >= s.begin}
	if a.given {
		w.class, w.service, w.client = int32(a.Class), int64(a.Service), a.Client
	} else if len(s.classes) > 1 {
		w.class = int32(s.choose())
	}
	c := &s.classes[w.class]
	if w.service == 0 {
		w.service = int64(c.Service.Draw(s.works))
	}
	switch {
	case w.client != "":
	case len(c.clients) == 1:
		w.client = c.clients[0]
	default:
		w.client = c.clients[s.senders.IntN(len(c.clients))]
	}
	return w
}

func (s *simulation) offerWish(w wish) {
	c := &s.classes[w.class]
	c.budget = min(c.budget+c.Retry.Budget, budgetBurst)
	if w.measured {
		c.counts.Offered++
		if in := s.interval(w.scheduled); in != nil {
			in.Offered++
		}
	}
	r := s.request(w)
	if s.c.Connections > 0 && !s.closedLoop() {
		if s.free == 0 {
			if c.Timeout > 0 {
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
		r.task.Payload = r
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
		if w.attempts == 1 {
			since = w.scheduled // the wait for a connection counts
		}
		deadline = since + int64(c.Timeout)
		if !waitsAlready { // otherwise it has been planned
			s.agenda.plan(deadline, gaveUp, r)
		}
		if !c.Deadline {
			deadline = 0
		}
	}
	t := &r.task
	t.Arrival, t.Submitted, t.Deadline = s.now, s.now, deadline
	t.Priority, t.Client = c.Priority, w.client
	r.node = s.balancer.choose(w.client)
	if w.measured {
		c.counts.Attempts++
		r.node.result.Attempts++
	}
	r.node.submit(r)
}

// giveUp is the end of a client's patience.
func (s *simulation) giveUp(r *request) {
	if r.node == nil { // it waits for a connection, and is passed over when one is free
		r.gone = true
		s.ends(r, TimedOut, strategies.ReasonNone)
		return
	}
	if r.task.Deadline != 0 {
		if r.node.cancel(r, strategies.ReasonExpired) {
			return
		}
		r.gone = true
		s.ends(r, TimedOut, strategies.ReasonNone)
		return
	}
	r.gone = true
	s.ends(r, TimedOut, strategies.ReasonNone)
	r.node.cancel(r, strategies.ReasonAbandoned)
}

// ran tells that r has been run, having waited so long in the queue.
func (s *simulation) ran(r *request, waited int64) {
	if !r.inline {
		s.busyChanges(-1)
	}
	if r.wish.measured {
		c := &s.classes[r.wish.class].counts
		c.Run++
		r.node.result.Run++
		c.wait += float64(waited)
		c.stayed += float64(s.now - r.task.Submitted)
		if r.gone {
			c.Wasted++
		}
	}
	if !r.gone {
		s.ends(r, Served, strategies.ReasonNone)
	}
	s.recycle(r)
}

// shed tells that the service has turned r away.
func (s *simulation) shed(r *request, reason strategies.Reason) {
	if in := s.interval(s.now); in != nil {
		if in.Shed == nil {
			in.Shed = map[string]int64{}
		}
		in.Shed[reason.String()]++
	}
	if r.wish.measured {
		s.classes[r.wish.class].counts.shed[reason]++
		r.node.result.Shed++
	}
	if !r.gone {
		s.ends(r, Refused, reason)
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
	if in := s.interval(s.now); in != nil && how != TimedOut {
		in.Completed++
	}
	if w.measured {
		s.count(w, how)
	}
	if s.c.Observe != nil {
		s.c.Observe(Record{
			Arrival: time.Duration(w.scheduled - start), Sent: time.Duration(w.sent - start), Latency: time.Duration(s.now - w.scheduled),
			Class: int(w.class), Client: w.client, Attempts: int(w.attempts), Outcome: how, Reason: reason, Measured: w.measured,
		})
	}
	if s.c.Connections > 0 && r.node != nil {
		delay := int64(0)
		if s.closedLoop() {
			delay = int64(s.c.Turnaround)
		}
		s.agenda.plan(s.now+delay, answered, nil)
	}
}

// backoff returns how long a client waits after so many attempts.
func (s *simulation) backoff(r *Retry, attempts int32) int64 {
	most := int64(r.MaxBackoff)
	if most == 0 {
		most = int64(maxTime)
	}
	wait := int64(r.Backoff)
	for i := int32(1); i < attempts && wait < most; i++ {
		wait *= 2
	}
	wait = min(wait, most)
	if r.Jitter && wait > 0 {
		wait = s.waits.Int64N(wait + 1)
	}
	return wait
}

// count counts a request of the window that has ended.
func (s *simulation) count(w *wish, how Outcome) {
	c := &s.classes[w.class].counts
	latency := s.now - w.scheduled
	record(c.Latency, latency, int64(longest))
	in := s.interval(w.scheduled)
	if in != nil {
		record(in.Latency, latency/int64(time.Microsecond), longest.Microseconds())
	}
	switch how {
	case Served:
		c.Served++
		record(c.ServedLatency, latency, int64(longest))
		good := latency <= int64(s.c.SLO)
		if good {
			c.Good++
		}
		if in != nil {
			in.Served++
			if good {
				in.Good++
			}
		}
	case Refused:
		c.Refused++
		if in != nil {
			in.Refused++
		}
	case TimedOut:
		c.TimedOut++
		if in != nil {
			in.TimedOut++
		}
	}
}

// release is a connection that is free again.
func (s *simulation) release(*request) {
	if s.closedLoop() {
		if s.now < s.end {
			s.offerWish(s.wish(arrival{}))
		}
		return
	}
	for {
		r := s.queued.pop()
		if r == nil {
			s.free++
			return
		}
		if r.gone {
			s.recycle(r)
			continue
		}
		s.submit(r)
		return
	}
}

// backlog is a first-in first-out queue of requests.
type backlog struct {
	requests []*request
	head     int
}

func (b *backlog) push(r *request) {
	if b.head > len(b.requests)/2 && b.head > 64 {
		n := copy(b.requests, b.requests[b.head:])
		clear(b.requests[n:])
		b.requests, b.head = b.requests[:n], 0
	}
	b.requests = append(b.requests, r)
}

// pop returns nil if there is none.
func (b *backlog) pop() *request {
	if b.head == len(b.requests) {
		return nil
	}
	r := b.requests[b.head]
	b.requests[b.head] = nil
	b.head++
	return r
}
