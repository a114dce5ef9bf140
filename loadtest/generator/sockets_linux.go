package generator

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// hasEpoll reports whether the epoll engine is there.
const hasEpoll = true

// sockets carries HTTP/1.1 in the clear to one server, over epoll, on the loop's own thread. It
// sends and reads with one system call each. Where a goroutine a connection would be parked and
// woken for every answer, this wakes once for all that has arrived.
type sockets struct {
	loop    *loop
	encoder *encoder
	family  int
	to      unix.Sockaddr // the server
	epoll   int
	sockets []socket // by conn.index
	events  []unix.EpollEvent
	came    int // how many of the events are to be delivered
	answers int64
	in, out []byte
}

// socket is what a connection is to the kernel.
type socket struct {
	*conn
	fd int // 0 if there is none
	// writable is whether epoll reports when the connection can be written to.
	writable bool
	answer   response
	unsent   []byte // the rest of a request that did not fit the socket's buffer
}

func newSockets(l *loop, p *plan, _ *tls.Config) (transport, error) {
	s := &sockets{
		loop: l, family: unix.AF_INET, encoder: newEncoder(l.o, p),
		sockets: make([]socket, len(l.conns)), events: make([]unix.EpollEvent, 256), in: make([]byte, 64<<10), out: make([]byte, 0, 4<<10),
	}
	for i := range s.sockets {
		s.sockets[i].conn = &l.conns[i]
	}
	if ip := p.address.Addr(); ip.Is4() {
		s.to = &unix.SockaddrInet4{Port: int(p.address.Port()), Addr: ip.As4()}
	} else {
		s.to, s.family = &unix.SockaddrInet6{Port: int(p.address.Port()), Addr: ip.As16()}, unix.AF_INET6
	}
	var err error
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return s, nil
}

func (s *sockets) begin() {
	runtime.LockOSThread() // never unlocked: the thread goes, and its timer slack with it
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

func (s *sockets) dial(of *conn, now time.Duration) {
	c := &s.sockets[of.index]
	fd, err := unix.Socket(s.family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		s.loop.fail(of, now, fmt.Errorf("cannot open a socket: %w", err))
		return
	}
	c.fd, c.writable, c.unsent = fd, true, c.unsent[:0]
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	// A client that gives up resets: thousands of them a second would otherwise
	// use up the ports with connections in TIME_WAIT.
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT, Fd: int32(of.index)}
	if err = unix.Connect(fd, s.to); err == nil || errors.Is(err, unix.EINPROGRESS) {
		err = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &event)
	}
	if err != nil {
		s.close(of)
		s.loop.fail(of, now, fmt.Errorf("cannot connect: %w", err))
	}
}

func (s *sockets) connected(c *socket, now time.Duration) {
	code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	if err != nil {
		s.close(c.conn)
		s.loop.fail(c.conn, now, fmt.Errorf("cannot connect: %w", err))
		return
	}
	s.watch(c, false)
	s.loop.opened(c.conn, now)
}

func (s *sockets) send(of *conn, r *workload.Request, left time.Duration) {
	c := &s.sockets[of.index]
	s.out = s.encoder.append(s.out[:0], r, left)
	c.answer.reset()
	c.answer.bodiless = s.encoder.method(r) == http.MethodHead
	s.write(c, s.out)
}

func (s *sockets) close(of *conn) {
	c := &s.sockets[of.index]
	_ = unix.Close(c.fd)
	c.fd = 0
}

func (s *sockets) protocols() map[string]int64 { return map[string]int64{"HTTP/1.1": s.answers} }

func (s *sockets) end() {
	for i := range s.sockets {
		if s.sockets[i].fd != 0 {
			s.close(s.sockets[i].conn)
		}
	}
	_ = unix.Close(s.epoll)
}

func (s *sockets) wait(longest time.Duration) error {
	s.came = 0
	timeout := unix.NsecToTimespec(int64(longest))
	var n uintptr
	var errno unix.Errno
	if longest == 0 {
		n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(s.epoll), uintptr(unsafe.Pointer(&s.events[0])),
			uintptr(len(s.events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(s.epoll), uintptr(unsafe.Pointer(&s.events[0])),
			uintptr(len(s.events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	}
	switch errno {
	case 0:
		s.came = int(n)
	case unix.EINTR:
	case unix.ENOSYS:
		return errors.New("the load generator needs Linux 5.11 or newer, for waits shorter than a millisecond")
	default:
		return fmt.Errorf("epoll: %w", errno)
	}
	return nil
}

func (s *sockets) deliver() {
	for _, event := range s.events[:s.came] {
		c := &s.sockets[event.Fd]
		switch c.state {
		case connConnecting:
			s.connected(c, s.loop.clock())
			continue
		case connClosed:
			continue
		}
		if event.Events&unix.EPOLLOUT != 0 && len(c.unsent) > 0 {
			s.write(c, c.unsent)
		}
		if event.Events&^unix.EPOLLOUT != 0 {
			s.read(c)
		}
	}
}

func (s *sockets) write(c *socket, data []byte) {
	for len(data) > 0 {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)),
			unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			data = data[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			c.unsent = append(c.unsent[:0], data...)
			s.watch(c, true)
			return
		default:
			data = nil // what the server said before it closed may still be there to read
		}
	}
	c.unsent = c.unsent[:0]
	s.watch(c, false)
}

// watch has epoll report when c can be written to, if it waits for that.
func (s *sockets) watch(c *socket, writable bool) {
	if c.writable == writable {
		return
	}
	c.writable = writable
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.index)}
	if writable {
		event.Events |= unix.EPOLLOUT
	}
	_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_MOD, c.fd, &event)
}

func (s *sockets) read(c *socket) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(&s.in[0])), uintptr(len(s.in)))
	now := s.loop.clock()
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return
	case c.state != connWaiting && (errno != 0 || n == 0):
		s.loop.gone(c.conn, now)
		return
	case c.state != connWaiting:
		// An answer that nobody asked for: that there are too many connections.
		s.loop.fail(c.conn, now, errors.New("the server refuses connections: its limit is reached"))
		return
	case errno == 0 && n == 0 && c.answer.closed():
		s.answers++
		s.loop.answered(c.conn, now, now, c.answer.status, c.answer.shed, true)
		return
	case errno != 0 || n == 0:
		s.loop.broken(c.conn, now, result.ErrorReset)
		return
	}
	done, rest, err := c.answer.feed(s.in[:n])
	switch {
	case err != nil:
		s.loop.broken(c.conn, now, result.ErrorProtocol)
	case done:
		s.answers++
		// Where something follows that nobody has asked for, no answer of this connection is to
		// be trusted.
		last := c.answer.close || len(c.unsent) > 0 || len(rest) > 0
		s.loop.answered(c.conn, now, s.loop.arrivedAfter, c.answer.status, c.answer.shed, last)
	}
}
