package generator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// sendBurst is how many requests are sent before answers are looked at again,
// so that a backlog does not make answers look late.
const sendBurst = 32

// transport is what a loop sends on: its connections, below what a request is. The loop's
// goroutine alone calls it. It reports what becomes of connection c by the loop's opened, fail,
// answered, broken and gone, in dial, send and deliver.
type transport interface {
	// begin is called before the run, on its goroutine.
	begin()
	// dial begins to open c; opened or fail reports how that ended.
	dial(c *conn, now time.Duration)
	// send sends r on c, which is open; left is what is left of the request's timeout.
	// answered or broken reports how that ended.
	send(c *conn, r *workload.Request, left time.Duration)
	// close closes c, which was open, or gives up what was sent on it. Of what was before
	// nothing more is reported.
	close(c *conn)
	// wait waits until there is something to deliver, at most for a time.
	wait(longest time.Duration) error
	// deliver passes to the loop what has come.
	deliver()
	// protocols is how many answers there were in each version of HTTP.
	protocols() map[string]int64
	// end closes all connections. Nothing is called after it.
	end()
}

// loop carries a share of the connections: it sends each request when its time has come and
// a connection is free, and counts what becomes of it. What connections are is the transport's.
type loop struct {
	o         *workload.Options
	number    int
	window    result.Window
	closed    bool // a closed loop
	transport transport
	// clock is the time since the start of the run.
	clock func() time.Duration

	stream  *workload.Stream
	next    workload.Request // the next request of this loop that has not been sent
	conns   []conn
	idle    list // in the order in which they became idle
	waiting list // with first attempts, in the order of their scheduled times
	failed  list // in the order in which they may be tried again
	open    int  // connections that are idle, waiting or resting
	retrying
	// lastOpen is when a connection was last open, and lastError why the last
	// attempt to open one failed.
	lastOpen  time.Duration
	lastError error
	// lastLook is when the transport was last asked and had something to deliver. What it
	// delivers next has come since arrivedAfter.
	lastLook, arrivedAfter time.Duration
	// others counts the loops that are not done; this one has been when it is
	// finished.
	others   *atomic.Int32
	finished bool
	count    *result.Tally
}

type connState uint8

const (
	connClosed connState = iota
	connConnecting
	connIdle
	connWaiting
	connResting // its client waits before it tries again
)

// conn is one connection, and the request that waits on it for its answer.
type conn struct {
	index      int // in loop.conns
	state      connState
	next, prev *conn
	in         *list

	scheduled time.Duration
	part      result.Part
	sent      time.Duration // at first
	since     time.Duration // what the timeout of the present attempt counts from
	freeSince time.Duration // when it became idle, at the earliest
	answered  bool          // it has brought an answer since it was opened
	retryAt   time.Duration

	// What follows is there only if requests are tried again: the present one, how
	// often it has been sent, and, if it is to be sent again, when.
	request  workload.Request
	attempts int
	pending  bool
	due      time.Duration
}

// newLoop makes one of several loops, which has no transport yet.
func newLoop(o *workload.Options, number int, others *atomic.Int32, clock func() time.Duration) *loop {
	l := &loop{
		o: o, number: number, window: result.WindowOf(o), closed: o.Rate == 0, others: others, clock: clock,
		stream: workload.NewStream(o),
		count:  result.NewTally(*o),
	}
	l.waits = rand.New(rand.NewPCG(workload.Scramble(o.Seed), workload.Scramble(1<<32+uint64(number))))
	n := o.Connections / o.Loops
	if number < o.Connections%o.Loops {
		n++
	}
	l.conns = make([]conn, n)
	l.advance()
	return l
}

// connect opens all connections, and waits for them.
func (l *loop) connect(ctx context.Context) error {
	for i := range l.conns {
		l.conns[i].index = i
		l.reopen(&l.conns[i], 0)
	}
	open, since := 0, time.Now()
	for l.open < len(l.conns) {
		if l.open > open {
			open, since = l.open, time.Now()
		}
		switch {
		case ctx.Err() != nil:
			return errors.New("interrupted while the connections were opened")
		case l.lastError != nil:
			return l.lastError
		case time.Since(since) > connectPatience:
			return fmt.Errorf("%d of %d connections are not open, and none has opened for %v", len(l.conns)-l.open, len(l.conns), connectPatience)
		}
		if err := l.await(l.clock(), longestPause); err != nil {
			return err
		}
	}
	return nil
}

// abandon counts the requests that have no answer when a run is cut short: those
// that wait for theirs or are to be tried again, and those whose time had come.
func (l *loop) abandon(now time.Duration) {
	for i := range l.conns {
		if c := &l.conns[i]; c.state == connWaiting || c.pending {
			l.count.Failed(c.scheduled, c.sent, now, c.part, result.ErrorUnfinished)
		}
	}
	for !l.closed && l.next.At <= now {
		l.miss(l.next.At, now, result.ErrorUnfinished)
	}
}

// miss counts the next request as one that is never sent, and goes on.
func (l *loop) miss(scheduled, now time.Duration, kind result.ErrorKind) {
	l.offered(scheduled)
	l.count.Failed(scheduled, workload.Never, now, l.count.Part(&l.next), kind)
	l.advance()
}

// run sends and receives until all is done, or ctx is. It returns why it
// ended early, if it did.
func (l *loop) run(ctx context.Context) error {
	l.transport.begin()
	l.lastOpen = l.clock()
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now, more := l.send()
		if l.done(now) {
			return nil
		}
		if l.open > 0 {
			l.lastOpen = now
			l.lastError = nil
		} else if now-l.lastOpen > goneAfter && l.lastError != nil {
			return l.lastError
		}
		wait := time.Duration(0)
		if !more {
			wait = max(0, l.nextTime()-now)
		}
		if err := l.await(now, wait); err != nil {
			return err
		}
	}
}

// done reports whether every request of the window has its answer, those of the
// other loops included: until then the load goes on.
func (l *loop) done(now time.Duration) bool {
	oldest := l.waiting.first
	switch {
	case l.o.Count > 0:
		return l.next.Seq >= l.o.Count && oldest == nil && l.unfinished == 0
	case now < l.window.To:
		return false
	case l.closed:
		return oldest == nil && l.unfinished == 0
	}
	if !l.finished && l.next.At >= l.window.To && (oldest == nil || oldest.scheduled >= l.window.To) && l.unfinished == 0 {
		l.finished = true
		l.others.Add(-1)
	}
	return l.finished && l.others.Load() == 0
}

// send does what is due: gives up what has waited too long, opens connections
// again, and sends. It returns the time at its end, and whether there is more to send at once.
func (l *loop) send() (now time.Duration, more bool) {
	now = l.clock()
	for _, sent := range []*list{&l.waiting, &l.onTheWay} {
		for c := sent.first; c != nil && now-c.since >= l.o.Timeout; c = sent.first {
			l.ended(c, now, 0, "")
			l.hangUp(c, now)
		}
	}
	for c := l.failed.first; c != nil && now >= c.retryAt; c = l.failed.first {
		l.reopen(c, now)
	}
	for range sendBurst {
		if l.resend(now) {
			now = l.clock()
			continue
		}
		if l.exhausted(now) {
			return now, false
		}
		scheduled := l.next.At
		if l.closed {
			scheduled = now
		} else if scheduled > now {
			return now, false
		}
		if now-scheduled >= l.o.Timeout {
			l.miss(scheduled, scheduled+l.o.Timeout, result.ErrorUnsent)
			continue
		}
		c := l.idle.first
		if c == nil && !l.closed && l.open == 0 && l.failed.first != nil {
			// Who comes while there is no server finds none.
			l.miss(scheduled, now, result.ErrorConnect)
			continue
		}
		if c == nil || l.closed && now-c.freeSince < l.o.Think {
			return now, false
		}
		l.idle.remove(c)
		l.start(c, scheduled, now)
		l.advance()
		now = l.clock()
	}
	return now, true
}

// exhausted reports whether nothing is to be sent any more. An open loop goes on
// past its window until the last request of the window has its answer, so that
// this one meets the same load as all others.
func (l *loop) exhausted(now time.Duration) bool {
	return l.o.Count > 0 && l.next.Seq >= l.o.Count || l.closed && now >= l.window.To
}

// advance goes to the next request of this loop.
func (l *loop) advance() {
	for {
		l.stream.Next(&l.next)
		if l.next.Seq%uint64(l.o.Loops) == uint64(l.number) {
			return
		}
	}
}

// nextTime is when there is something to do although nothing arrives.
func (l *loop) nextTime() time.Duration {
	at := workload.Never
	if !l.closed {
		at = l.next.At
		if l.idle.first == nil {
			at += l.o.Timeout
		}
	} else if c := l.idle.first; c != nil && l.o.Think > 0 && !l.exhausted(l.clock()) {
		at = min(c.freeSince+l.o.Think, l.window.To)
	}
	for _, sent := range []*list{&l.waiting, &l.onTheWay} {
		if c := sent.first; c != nil {
			at = min(at, c.since+l.o.Timeout)
		}
	}
	if len(l.resting) > 0 {
		at = min(at, l.resting[len(l.resting)-1].due)
	}
	if c := l.failed.first; c != nil {
		at = min(at, c.retryAt)
	}
	return at
}

// await waits from now on for what the transport has to deliver, at most for a time.
func (l *loop) await(now, longest time.Duration) error {
	longest = min(longest, longestPause)
	if err := l.transport.wait(longest); err != nil {
		return err
	}
	l.look(now, longest)
	l.transport.deliver()
	return nil
}

// look learns since when what is to be delivered may have been there: that it was not
// looked at any earlier is the generator's lateness, not the server's.
func (l *loop) look(asked, longest time.Duration) {
	const prompt = 20 * time.Microsecond
	now := l.clock()
	switch waited := now - asked; {
	case waited < prompt: // they were there, and may have been since the last time
		l.arrivedAfter = l.lastLook
	case waited > longest+time.Millisecond: // this thread did not run
		l.arrivedAfter = asked
	default:
		l.arrivedAfter = now
	}
	l.lastLook = now
}

// start sends the next request on c.
func (l *loop) start(c *conn, scheduled, now time.Duration) {
	c.scheduled, c.sent, c.since, c.part = scheduled, now, scheduled, l.count.Part(&l.next)
	l.offered(scheduled)
	if !l.closed {
		l.count.Begun(scheduled, c.freeSince, now)
	}
	if l.o.Retries.Attempts > 0 {
		c.request, c.attempts = l.next, 1
	}
	l.transmit(c, &l.next, now, &l.waiting)
}

// transmit sends a request on c, which waits for its answer among others.
func (l *loop) transmit(c *conn, r *workload.Request, now time.Duration, among *list) {
	c.state = connWaiting
	among.push(c)
	l.transport.send(c, r, l.o.Timeout-(now-c.since))
}

// opened is called when c is open.
func (l *loop) opened(c *conn, now time.Duration) {
	l.open++
	c.answered = false
	l.setFree(c, now)
}

// answered is called when an answer has come at a time, and is whole. If it is the last, c can
// carry no other; otherwise c is free since a time.
func (l *loop) answered(c *conn, now, free time.Duration, status int, shed string, last bool) {
	l.ended(c, now, status, shed)
	if last {
		l.hangUp(c, now)
		return
	}
	c.in.remove(c)
	c.answered = true
	l.setFree(c, free)
}

// broken is called when the request on c has lost its connection or got no HTTP answer.
func (l *loop) broken(c *conn, now time.Duration, kind result.ErrorKind) {
	l.abort(c, now, kind)
	l.hangUp(c, now)
}

// gone is called when c, on which nothing was sent, was closed by the server, as it is free to.
func (l *loop) gone(c *conn, now time.Duration) {
	if !c.answered {
		l.fail(c, now, errors.New("the server closes connections before it has answered"))
		return
	}
	l.hangUp(c, now)
}

// ended is the end of the attempt that waits on c, with an answer that is whole
// or since its client has given up.
func (l *loop) ended(c *conn, now time.Duration, status int, shed string) {
	givenUp := now-c.since >= l.o.Timeout // perhaps at the same moment
	if (givenUp || refused(status)) && l.again(c, now) {
		return
	}
	if givenUp {
		l.count.Failed(c.scheduled, c.sent, c.since+l.o.Timeout, c.part, result.ErrorTimeout)
	} else {
		l.count.Answered(c.scheduled, c.sent, now, c.part, status, shed)
	}
	l.over(c)
}

// abort is the end of the request on c, which has no answer.
func (l *loop) abort(c *conn, now time.Duration, kind result.ErrorKind) {
	l.count.Failed(c.scheduled, c.sent, now, c.part, kind)
	l.over(c)
}

// setFree makes c free for the next request, or for the next attempt of the one
// that is on it.
func (l *loop) setFree(c *conn, since time.Duration) {
	c.freeSince = since
	if c.pending {
		l.rest(c)
		return
	}
	c.state = connIdle
	l.idle.push(c)
}

// reopen opens c, which is closed.
func (l *loop) reopen(c *conn, now time.Duration) {
	if c.in != nil {
		c.in.remove(c)
	}
	c.state = connConnecting
	l.transport.dial(c, now)
}

// hangUp closes c, and opens it again.
func (l *loop) hangUp(c *conn, now time.Duration) {
	l.shut(c)
	l.reopen(c, now)
}

// fail is called when c cannot be opened. It is closed, to be opened again later. A request that
// is to be sent again on it has ended: its client finds no server.
func (l *loop) fail(c *conn, now time.Duration, reason error) {
	l.lastError = reason
	l.shut(c)
	if c.pending {
		l.abort(c, now, result.ErrorConnect)
	}
	c.retryAt = now + reopenAfter
	l.failed.push(c)
}

// shut closes c.
func (l *loop) shut(c *conn) {
	if c.in != nil {
		c.in.remove(c)
	}
	switch c.state {
	case connResting:
		at := slices.Index(l.resting, c)
		l.resting = slices.Delete(l.resting, at, at+1)
		fallthrough
	case connIdle, connWaiting:
		l.open--
		l.transport.close(c)
	}
	c.state = connClosed
}

// list is a queue of connections; one is in at most one list.
type list struct{ first, last *conn }

func (l *list) push(c *conn) {
	c.in, c.prev, c.next = l, l.last, nil
	if l.last != nil {
		l.last.next = c
	} else {
		l.first = c
	}
	l.last = c
}

func (l *list) remove(c *conn) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.in, c.prev, c.next = nil, nil, nil
}
