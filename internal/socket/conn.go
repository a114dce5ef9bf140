// Package socket cuts off the other side of a connection if it takes nothing of what is
// sent to it for a time.
package socket

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// ErrNoRoom and ErrNoBytes are returned by WriteNow and ReadNow when nothing can be written, or
// read, without waiting.
var (
	ErrNoRoom  = errors.New("no room in the socket")
	ErrNoBytes = errors.New("no bytes yet")
)

// Conn is a connection whose writes fail once the other side has taken nothing for a
// time. As long as it takes something, a write may last. Put it below TLS: only there
// does it show what is taken. All methods are safe for concurrent use.
type Conn struct {
	net.Conn
	// Waits, if it is set before the first write, is called before a write waits for the
	// other side, with true, and when it goes on, with false.
	Waits func(bool)

	raw     syscall.RawConn // nil if there is none
	timeout time.Duration

	reading sync.Mutex // held by a read; guards what follows
	into    []byte
	got     int
	gotErr  error
	any     func(fd uintptr) bool // readAny

	writing sync.Mutex // held by a write; guards what follows
	left    []byte
	failed  error
	wait    bool
	some    func(fd uintptr) bool // writeSome

	mu      sync.Mutex
	hurried bool
	due     time.Time // when the present wait of a write is judged; zero if none waits
	end     time.Time // when writes end whatever is taken; zero for never
}

// NewConn returns c with that time for each write to make progress.
func NewConn(nc net.Conn, timeout time.Duration) *Conn {
	c := &Conn{Conn: nc, raw: Raw(nc), timeout: timeout}
	c.some, c.any = c.writeSome, c.readAny
	return c
}

// Raw returns access to the descriptor, nil if there is none.
func (c *Conn) Raw() syscall.RawConn { return c.raw }

// Read reads what is there, and waits for it.
func (c *Conn) Read(p []byte) (n int, err error) {
	if c.raw == nil {
		return c.Conn.Read(p)
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	c.into, c.got = p, 0
	if err = c.raw.Read(c.any); err == nil {
		err = c.gotErr
	}
	c.into = nil
	return c.got, err
}

// readAny reads what is there. It returns false to be called again when there is something.
func (c *Conn) readAny(fd uintptr) bool {
	c.got, c.gotErr = ReadNow(int(fd), c.into)
	return !errors.Is(c.gotErr, ErrNoBytes)
}

// Silent reports whether there is nothing to be read, as far as is known: neither bytes, nor
// the end, nor an error.
func (c *Conn) Silent() bool {
	silent := c.raw == nil
	if c.raw != nil {
		_ = c.raw.Control(func(fd uintptr) { silent = Silent(int(fd)) })
	}
	return silent
}

// Write writes p.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.raw == nil {
		return c.writePieces(p)
	}
	c.left, c.failed, c.wait = p, nil, false
	// Mostly there is room for all.
	if err = c.raw.Write(c.some); err == nil && c.failed == nil && len(c.left) > 0 {
		err = c.writeRest()
	}
	if err == nil {
		err = c.failed
	}
	n, c.left = len(p)-len(c.left), nil
	return n, err
}

// writeRest writes what there was no room for.
func (c *Conn) writeRest() (err error) {
	defer c.waits()()
	c.wait = true
	defer c.disarm()
	for len(c.left) > 0 && err == nil && c.failed == nil {
		least := c.arm()
		before := Unsent(c.raw) + len(c.left)
		err = c.raw.Write(c.some)
		// A socket reports room only when much of it is free. If the other side has
		// taken enough meanwhile, its time starts anew.
		if errors.Is(err, os.ErrDeadlineExceeded) && !c.ended() && before-Unsent(c.raw)-len(c.left) >= least {
			err = nil
		}
	}
	return err
}

// Hurry sets whether the other side has to take 1 KiB a second, over 10 s or the time-out if
// that is shorter. Otherwise it has to take something within the time-out. Of a write that waits
// already it has to take something within that shorter time, and from then on as much.
func (c *Conn) Hurry(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hurried = on
	if due := time.Now().Add(c.window()); c.due.After(due) {
		c.due = due
		c.setDeadline()
	}
}

// window is how long the other side has before it is judged. The caller holds mu.
func (c *Conn) window() time.Duration {
	if c.hurried {
		return min(c.timeout, slowFor)
	}
	return c.timeout
}

// arm begins a time for the other side, and returns how many bytes it has to take within.
func (c *Conn) arm() (least int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	window := c.window()
	c.due = time.Now().Add(window)
	c.setDeadline()
	if !c.hurried {
		return 1
	}
	return max(1, int(window.Milliseconds()*paceBytes/1000))
}

// WriteNow writes what there is room for without waiting, and returns how much that was.
// There must be a descriptor.
func (c *Conn) WriteNow(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.left, c.failed, c.wait = p, nil, false
	if err = c.raw.Write(c.some); err == nil {
		err = c.failed
	}
	n, c.left = len(p)-len(c.left), nil
	return n, err
}

// roomy is how much of what is not acknowledged leaves room for as much again: sockets hold
// more, unless they are bound otherwise.
const roomy = 96 << 10

// HasRoom reports whether n bytes can be written most probably without waiting, as far as that
// is known.
func (c *Conn) HasRoom(n int) bool { return c.raw != nil && Unsent(c.raw)+n < roomy }

// waits says that a write waits, and returns what says that it goes on.
func (c *Conn) waits() (goesOn func()) {
	if c.Waits == nil {
		return func() {}
	}
	c.Waits(true)
	return func() { c.Waits(false) }
}

// writeSome writes what the socket has room for. It returns false to be called again when
// there is more room, if that is wanted and there was none.
func (c *Conn) writeSome(fd uintptr) bool {
	n, err := WriteNow(int(fd), c.left)
	c.left = c.left[n:]
	if errors.Is(err, ErrNoRoom) {
		return !c.wait
	}
	c.failed = err
	return true
}

// writePieces writes what may be taken within the time.
func (c *Conn) writePieces(p []byte) (n int, err error) {
	const piece = 16 << 10
	defer c.waits()()
	defer c.disarm()
	for n < len(p) && err == nil {
		least := c.arm()
		var m int
		m, err = c.Conn.Write(p[n:min(n+piece, len(p))])
		n += m
		if m >= least && errors.Is(err, os.ErrDeadlineExceeded) && !c.ended() {
			err = nil
		}
	}
	return n, err
}

// disarm leaves no deadline behind by which a later write would fail.
func (c *Conn) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = time.Time{}
	c.setDeadline()
}

// setDeadline sets the deadline of the present write to when it is due, or to the end if that is
// earlier. The caller holds mu.
func (c *Conn) setDeadline() {
	t := c.due
	if t.IsZero() || !c.end.IsZero() && c.end.Before(t) {
		t = c.end
	}
	_ = c.Conn.SetWriteDeadline(t) // a closed connection fails the write
}

func (c *Conn) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.end.IsZero() && !time.Now().Before(c.end)
}

// SetWriteDeadline ends all writes at t, whatever is taken.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite ends our side of the connection.
func (c *Conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
