package generator

import (
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// The pace of slow clients. Their work is little, so that it is by being slow that
// they cost the others something, if they do: of a hundred, the fifty that send put
// 10 values a second together, and the fifty that read take 4 MB a second.
const (
	// slowStep passes between what one slow client does and what it does next.
	slowStep = 50 * time.Millisecond
	// slowSlots is in how many groups they take their steps, one after the other.
	slowSlots = 10
	// slowValue is how many bytes a slow sender puts, one a step: 5 s, half of what
	// the service waits for a request by default.
	slowValue = 100
	// slowPiece is how many bytes a slow reader takes a step: 80 KiB a second, so that
	// a service which counts progress does not cut it off.
	slowPiece = 4 << 10
	// slowRoom is what the kernel may hold for it, before it doubles that for its own
	// needs.
	slowRoom = 2 * slowPiece
	// slowRange is how many entries a slow reader asks for.
	slowRange = 10_000
	// slowSegment is the size of the segments that a slow reader is sent, as on an
	// Ethernet: by the larger ones of the loopback the kernel would make room for
	// megabytes on the other side, and who reads slowly would not be noticed.
	slowSegment = 1460
	// slowPause is how many steps, a second, a slow client waits after it was refused
	// or cut off: it is not a load of its own.
	slowPause = int(time.Second / slowStep)
)

// slowClients are the connections whose clients are slow. They go through their
// requests in steps, and know no time but these.
type slowClients struct {
	server server
	tail   string // of the request line, and the headers that are always sent
	conns  []slowConn
	in     []byte
	count  result.SlowClients
}

// slowConn is one slow client.
type slowConn struct {
	fd      int
	open    bool
	reads   bool // it reads a range slowly, rather than send a value slowly
	number  int  // its key is its own
	size    int  // of the next request: bytes of the value, entries of the range
	pause   int  // steps to wait
	waiting bool // for the answer to a request, be it sent in full or not
	unsent  []byte
	left    int // bytes of the value that are to be sent, one a step
	answer  response
}

// newSlowClients returns as many slow clients as o asks for, senders and readers
// in turn. None is connected.
func newSlowClients(o *workload.Options, to server) *slowClients {
	s := &slowClients{
		server: to, tail: string(appendTail(nil, o.Headers, to.host)), conns: make([]slowConn, o.SlowClients), in: make([]byte, slowPiece),
		count: result.SlowClients{Connections: o.SlowClients},
	}
	for i := range s.conns {
		c := &s.conns[i]
		c.number, c.reads = i, i%2 == 1
		// They begin as if they had been there for long, each in the midst of its
		// request.
		c.size = 1 + i*(c.full()-1)/len(s.conns)
	}
	return s
}

func (c *slowConn) full() int {
	if c.reads {
		return slowRange
	}
	return slowValue
}

func (s *slowClients) counted() *result.SlowClients { return &s.count }

// run has them take their steps until ended is closed, and hangs up.
func (s *slowClients) run(ended <-chan struct{}) {
	defer func() {
		for i := range s.conns {
			s.conns[i].close()
		}
	}()
	ticker := time.NewTicker(slowStep / slowSlots)
	defer ticker.Stop()
	for slot := 0; ; slot = (slot + 1) % slowSlots {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		for i := slot; i < len(s.conns); i += slowSlots {
			s.step(&s.conns[i])
		}
	}
}

// step is what one does at a time: it connects, or sends the head of a request, or
// one more byte of its value, and takes no more than a piece of what it is sent.
func (s *slowClients) step(c *slowConn) {
	switch {
	case c.pause > 0:
		c.pause--
		return
	case !c.open:
		if s.dial(c) != nil {
			s.cutOff(c)
		}
		return
	case !c.waiting:
		s.ask(c)
	}
	s.send(c)
	s.receive(c)
}

func (s *slowClients) dial(c *slowConn) error {
	fd, to, err := s.server.socket(c.number)
	if err != nil {
		return err
	}
	c.fd, c.open = fd, true
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	// Who hangs up does not wait until all has been sent or read.
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if c.reads {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, slowRoom)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, slowSegment)
	}
	if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	return nil
}

// ask begins the next request.
func (s *slowClients) ask(c *slowConn) {
	b := c.unsent[:0]
	if c.reads {
		b = append(b, "GET /v0/entities?start="...)
		b = appendKey(b, 0)
		b = append(b, "&limit="...)
		b = strconv.AppendInt(b, int64(c.size), 10)
		b = append(b, s.tail...)
	} else {
		c.left = c.size
		b = append(b, "PUT /v0/entity?id=slow"...) // no key of the load
		b = strconv.AppendInt(b, int64(c.number), 10)
		b = append(b, s.tail...)
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(c.size), 10)
		b = append(b, "\r\n"...)
	}
	c.unsent = append(b, "\r\n"...)
	c.size = c.full()
	c.waiting = true
	c.answer.reset()
}

// send sends what is left of the head or else the next byte of the value. What the
// server said before it closed may still be there to read, so that it is reading
// that finds that the connection has gone.
func (s *slowClients) send(c *slowConn) {
	if len(c.unsent) == 0 {
		if c.left == 0 {
			return
		}
		c.unsent = append(c.unsent, 's')
		c.left--
	}
	if n, err := unix.SendmsgN(c.fd, c.unsent, nil, nil, unix.MSG_NOSIGNAL); err == nil {
		s.count.SentBytes += int64(n)
		c.unsent = c.unsent[n:]
	}
}

// receive takes a piece of what is there.
func (s *slowClients) receive(c *slowConn) {
	n, err := unix.Read(c.fd, s.in)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return
	case err == nil && n == 0 && c.answer.closed():
		s.answered(c)
		return
	case err != nil || n == 0:
		s.cutOff(c)
		return
	}
	s.count.ReadBytes += int64(n)
	switch done, rest, err := c.answer.feed(s.in[:n]); {
	case err != nil || done && len(rest) > 0:
		s.cutOff(c)
	case done:
		s.answered(c)
	}
}

// answered counts an answer that is whole.
func (s *slowClients) answered(c *slowConn) {
	if c.answer.status/100 == 2 {
		s.count.Finished++
	} else {
		s.count.Refused++
		c.pause = slowPause
	}
	c.waiting = false
	if c.answer.close || len(c.unsent) > 0 || c.left > 0 {
		c.close()
	}
}

// cutOff counts a connection that has gone, or was not to be had.
func (s *slowClients) cutOff(c *slowConn) {
	s.count.CutOff++
	c.pause = slowPause
	c.close()
}

func (c *slowConn) close() {
	if c.open {
		_ = unix.Close(c.fd)
	}
	c.open, c.waiting, c.unsent, c.left = false, false, nil, 0
}
