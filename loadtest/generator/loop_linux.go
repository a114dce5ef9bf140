package generator

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// sendBurst is how many requests are sent before answers are looked at again,
// so that a backlog does not make answers look late.
const sendBurst = 32

// loop carries a share of the connections on one thread: it sends each request
// when its time has come and a connection is free, and reads what is there, with
// one system call each. Where a goroutine a connection would be parked and woken
// for every answer, this wakes once for all that has arrived.
type loop struct {
	o      *workload.Options
	number int
	server server
	window result.Window
	closed bool // a closed loop
	epoll  int
	// clock is the time since the start of the run.
	clock func() time.Duration

	stream  *workload.Stream
	next    workload.Request // the next request of this loop that has not been sent
	encoder *encoder
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
	// lastLook is when events were last asked for and had come. What comes with
	// the next ones has come since arrivedAfter.
	lastLook, arrivedAfter time.Duration
	// others counts the loops that are not done; this one has been when it is
	// finished.
	others   *atomic.Int32
	finished bool

	events  []unix.EpollEvent
	in, out []byte

	// mu guards the counts, which the thread holds while it works through what is
	// there, and which others read while it waits.
	mu      sync.Mutex
	count   *result.Tally
	answers int64 // since the start of the run
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
	index int32 // in loop.conns, which is how epoll names it
	fd    int
	state connState
	// writable is whether epoll tells when the connection can be written to.
	writable   bool
	next, prev *conn
	in         *list

	scheduled time.Duration
	part      result.Part
	sent      time.Duration // at first
	since     time.Duration // what the timeout of the present attempt counts from
	freeSince time.Duration // when it became idle, at the earliest
	answered  bool          // it has brought an answer since it was opened
	retryAt   time.Duration
	answer    response
	unsent    []byte // the rest of a request that did not fit the socket's buffer

	// What follows is there only if requests are tried again: the present one, how
	// often it has been sent, and, if it is to be sent again, when.
	request  workload.Request
	attempts int
	pending  bool
	due      time.Duration
	place    int // in loop.resting
}

func newLoop(o *workload.Options, number int, p *plan, others *atomic.Int32, clock func() time.Duration) (*loop, error) {
	l := &loop{
		o: o, number: number, server: p.servers[0], window: result.WindowOf(o), closed: o.Rate == 0, others: others, clock: clock,
		stream:  workload.NewStream(o),
		encoder: newEncoder(o, p),
		events:  make([]unix.EpollEvent, 256),
		in:      make([]byte, 64<<10),
		out:     make([]byte, 0, 4<<10),
		count:   result.NewTally(*o),
	}
	l.budget = newBudget(o, o.Loops)
	l.waits = rand.New(rand.NewPCG(workload.Scramble(o.Seed), workload.Scramble(1<<32+uint64(number))))
	n := o.Connections / o.Loops
	if number < o.Connections%o.Loops {
		n++
	}
	l.conns = make([]conn, n)
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	l.advance()
	return l, nil
}

// socket opens a socket for connection number n, and returns the address that it is
// to be connected to: they take their turns.
func (s *server) socket(n int) (fd int, to unix.Sockaddr, err error) {
	address := s.addresses[n%len(s.addresses)]
	family := unix.AF_INET
	if ip := address.Addr(); ip.Is4() {
		to = &unix.SockaddrInet4{Port: int(address.Port()), Addr: ip.As4()}
	} else {
		to, family = &unix.SockaddrInet6{Port: int(address.Port()), Addr: ip.As16()}, unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return fd, to, err
}

// connect opens all connections, and waits for them.
func (l *loop) connect(ctx context.Context) error {
	for i := range l.conns {
		l.conns[i].index = int32(i)
		l.dial(&l.conns[i], 0)
	}
	for begin := time.Now(); l.open < len(l.conns); {
		if ctx.Err() != nil {
			return errors.New("interrupted while the connections were opened")
		}
		if l.lastError != nil {
			return l.lastError
		}
		if time.Since(begin) > connectPatience {
			return fmt.Errorf("%d of %d connections are not open after %v", len(l.conns)-l.open, len(l.conns), connectPatience)
		}
		if err := l.wait(longestPause); err != nil {
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
	l.count.Failed(scheduled, workload.Never, now, l.part(), kind)
	l.advance()
}

// run sends and receives until all is done, or ctx is. It returns why it
// ended early, if it did. The thread is the loop's own.
func (l *loop) run(ctx context.Context) error {
	runtime.LockOSThread() // never unlocked: the thread goes, and its timer slack with it
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	l.lastOpen = l.clock()
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l.mu.Lock()
		more := l.send()
		l.mu.Unlock()
		now := l.clock()
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
		if err := l.wait(wait); err != nil {
			return err
		}
	}
}

// done tells whether every request of the window has its answer, those of the
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
// again, and sends. It tells whether there is more to send at once.
func (l *loop) send() (more bool) {
	now := l.clock()
	for _, sent := range []*list{&l.waiting, &l.onTheWay} {
		for c := sent.first; c != nil && now-c.since >= l.o.Timeout; c = sent.first {
			l.ended(c, now)
			l.hangUp(c, now)
		}
	}
	for c := l.failed.first; c != nil && now >= c.retryAt; c = l.failed.first {
		l.dial(c, now)
	}
	for range sendBurst {
		if l.resend(now) {
			now = l.clock()
			continue
		}
		if l.exhausted(now) {
			return false
		}
		scheduled := l.next.At
		if l.closed {
			scheduled = now
		} else if scheduled > now {
			return false
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
			return false
		}
		l.idle.remove(c)
		l.begin(c, scheduled, now)
		l.advance()
		now = l.clock()
	}
	return true
}

// exhausted tells whether nothing is to be sent any more. An open loop goes on
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
		at = min(at, l.resting[0].due)
	}
	if c := l.failed.first; c != nil {
		at = min(at, c.retryAt)
	}
	return at
}

// wait waits for events, at most as long as it is told, and handles them.
func (l *loop) wait(longest time.Duration) error {
	longest = min(longest, longestPause)
	timeout := unix.NsecToTimespec(int64(longest))
	asked := l.clock()
	var n uintptr
	var errno unix.Errno
	if longest == 0 {
		n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll), uintptr(unsafe.Pointer(&l.events[0])),
			uintptr(len(l.events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll), uintptr(unsafe.Pointer(&l.events[0])),
			uintptr(len(l.events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	}
	switch errno {
	case 0:
	case unix.EINTR:
		return nil
	case unix.ENOSYS:
		return errors.New("the load generator needs Linux 5.11 or newer, for waits shorter than a millisecond")
	default:
		return fmt.Errorf("epoll: %w", errno)
	}
	l.look(asked, longest)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, event := range l.events[:n] {
		l.handle(&l.conns[event.Fd], event.Events)
	}
	return nil
}

// look learns since when the events that epoll has just told of may have been
// there: that they were not looked at any earlier is the generator's lateness,
// not the server's.
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

func (l *loop) handle(c *conn, events uint32) {
	switch c.state {
	case connConnecting:
		l.connected(c, l.clock())
		return
	case connClosed:
		return
	}
	if events&unix.EPOLLOUT != 0 && len(c.unsent) > 0 {
		l.write(c, c.unsent)
	}
	if c.state != connClosed && events&^unix.EPOLLOUT != 0 {
		l.read(c)
	}
}

// part returns the part of the load that the next request is of.
func (l *loop) part() result.Part { return l.count.Part(&l.next) }

// begin sends the next request on c.
func (l *loop) begin(c *conn, scheduled, now time.Duration) {
	c.scheduled, c.sent, c.since, c.part = scheduled, now, scheduled, l.part()
	l.offered(scheduled)
	if !l.closed {
		l.count.Begun(scheduled, c.freeSince, now)
	}
	if l.retries() {
		c.request, c.attempts = l.next, 1
	}
	l.transmit(c, &l.next, now, &l.waiting)
}

// transmit sends a request on c, which waits for its answer among others.
func (l *loop) transmit(c *conn, r *workload.Request, now time.Duration, among *list) {
	l.out = l.encoder.append(l.out[:0], r, l.o.Timeout-(now-c.since))
	c.answer.reset()
	c.answer.bodiless = l.encoder.bodiless(r)
	c.state = connWaiting
	among.push(c)
	l.write(c, l.out)
}

// ended is the end of the attempt that waits on c, with an answer that is whole
// or since its client has given up.
func (l *loop) ended(c *conn, now time.Duration) {
	givenUp := now-c.since >= l.o.Timeout // perhaps at the same moment
	if (givenUp || refused(c.answer.status)) && l.again(c, now) {
		return
	}
	if givenUp {
		l.count.Failed(c.scheduled, c.sent, c.since+l.o.Timeout, c.part, result.ErrorTimeout)
	} else {
		l.answers++
		l.count.Answered(c.scheduled, c.sent, now, c.part, c.answer.status, c.answer.shed)
	}
	l.over(c)
}

// broken is the end of the request on c, which has lost its connection or got no
// HTTP answer.
func (l *loop) broken(c *conn, now time.Duration, kind result.ErrorKind) {
	l.count.Failed(c.scheduled, c.sent, now, c.part, kind)
	l.over(c)
}

func (l *loop) write(c *conn, data []byte) {
	for len(data) > 0 {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)),
			unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			data = data[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			c.unsent = append(c.unsent[:0], data...)
			l.watch(c, true)
			return
		default:
			data = nil // what the server said before it closed may still be there to read
		}
	}
	c.unsent = c.unsent[:0]
	l.watch(c, false)
}

// watch tells epoll whether c waits to be written to.
func (l *loop) watch(c *conn, writable bool) {
	if c.writable == writable {
		return
	}
	c.writable = writable
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: c.index}
	if writable {
		event.Events |= unix.EPOLLOUT
	}
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, c.fd, &event)
}

func (l *loop) read(c *conn) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(&l.in[0])), uintptr(len(l.in)))
	now := l.clock()
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return
	case errno != 0 || n == 0:
		switch {
		case c.state != connWaiting && !c.answered:
			l.fail(c, now, errors.New("the server closes connections before it has answered"))
			return
		case c.state != connWaiting: // the server is free to close an idle connection
		case errno == 0 && c.answer.closed():
			l.ended(c, now)
		default:
			l.broken(c, now, result.ErrorReset)
		}
		l.hangUp(c, now)
		return
	case c.state != connWaiting:
		// An answer that nobody asked for: that there are too many connections.
		l.fail(c, now, errors.New("the server refuses connections: its limit is reached"))
		return
	}
	done, rest, err := c.answer.feed(l.in[:n])
	switch {
	case err != nil:
		l.broken(c, now, result.ErrorProtocol)
		l.hangUp(c, now)
	case done:
		l.ended(c, now)
		// What nobody has asked for follows: no answer of this connection is to be trusted.
		if c.answer.close || len(c.unsent) > 0 || len(rest) > 0 {
			l.hangUp(c, now)
			return
		}
		c.in.remove(c)
		c.answered = true
		l.setFree(c, l.arrivedAfter)
	}
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

func (l *loop) dial(c *conn, now time.Duration) {
	if c.in != nil {
		c.in.remove(c)
	}
	fd, to, err := l.server.socket(l.number + int(c.index)*l.o.Loops)
	if err != nil {
		l.fail(c, now, fmt.Errorf("cannot open a socket: %w", err))
		return
	}
	c.fd, c.writable = fd, true
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	// A client that gives up resets: thousands of them a second would otherwise
	// use up the ports with connections in TIME_WAIT.
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT, Fd: c.index}
	if err = unix.Connect(fd, to); err == nil || errors.Is(err, unix.EINPROGRESS) {
		err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &event)
	}
	if err != nil {
		_ = unix.Close(fd)
		l.fail(c, now, fmt.Errorf("cannot connect: %w", err))
		return
	}
	c.state = connConnecting
}

func (l *loop) connected(c *conn, now time.Duration) {
	code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	if err != nil {
		_ = unix.Close(c.fd)
		l.fail(c, now, fmt.Errorf("cannot connect: %w", err))
		return
	}
	l.watch(c, false)
	l.open++
	c.answered = false
	l.setFree(c, now)
}

// hangUp closes c, and opens it again.
func (l *loop) hangUp(c *conn, now time.Duration) {
	l.close(c)
	l.dial(c, now)
}

// fail closes c, to be opened again later. A request that is to be sent again on
// it has ended: its client finds no server.
func (l *loop) fail(c *conn, now time.Duration, reason error) {
	l.lastError = reason
	l.close(c)
	if c.pending {
		l.broken(c, now, result.ErrorConnect)
	}
	c.retryAt = now + reopenAfter
	l.failed.push(c)
}

func (l *loop) close(c *conn) {
	if c.in != nil {
		c.in.remove(c)
	}
	switch c.state {
	case connResting:
		heap.Remove(&l.resting, c.place)
		fallthrough
	case connIdle, connWaiting:
		l.open--
		_ = unix.Close(c.fd)
	}
	c.state, c.unsent = connClosed, c.unsent[:0]
}

func (l *loop) closeAll() {
	for i := range l.conns {
		if l.conns[i].state != connClosed {
			_ = unix.Close(l.conns[i].fd)
		}
	}
	_ = unix.Close(l.epoll)
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
