package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/internal/socket"
)

const (
	// connectTimeout is how long a connection to the upstream may take to open.
	connectTimeout = 5 * time.Second
	// lookEvery passes between two looks for an upstream that is not there, and after
	// connections that are idle.
	lookEvery = time.Second
	// warnEvery passes between two warnings that an answer did not come.
	warnEvery = 10 * time.Second
	// idleUpstream is how long a connection to the upstream is kept for another request.
	idleUpstream = 30 * time.Second
	// readBuffer is how much is read of an answer at once.
	readBuffer = 16 << 10
)

// upstream is where requests are sent, and the connections that are kept to it. It can be
// reached until a connection fails to open; then it is tried once a second, until one opens.
type upstream struct {
	target
	own      func() []net.Addr // of the proxy
	dialer   func(ctx context.Context, network, address string) (net.Conn, error)
	tls      *tls.Config // nil if it speaks in the clear
	log      *slog.Logger
	missing  atomic.Pointer[error] // why it cannot be reached, nil if it can
	stall    time.Duration
	troubled atomic.Int64 // when warned of an answer that did not come, in nanoseconds of Unix time
	// answered and failed count requests by how they ended.
	answered, failed atomic.Uint64

	end     context.Context
	stop    context.CancelFunc
	looking sync.WaitGroup

	conns struct {
		sync.Mutex
		idle []*upConn        // the latest last
		all  map[*upConn]bool // those in use too
		cut  bool             // no more requests are sent
		left time.Time        // it is none of the proxy's any more since then; zero if it is
	}
}

func openUpstream(end context.Context, o *Options, t target, own func() []net.Addr) *upstream {
	u := &upstream{target: t, own: own, log: o.Logger, stall: o.Timeout, dialer: o.dial}
	if u.dialer == nil {
		u.dialer = new(net.Dialer).DialContext
	}
	if t.url.Scheme == "https" {
		u.tls = &tls.Config{ServerName: t.url.Hostname(), NextProtos: []string{"http/1.1"}, RootCAs: o.UpstreamRoots}
	}
	u.end, u.stop = context.WithCancel(end)
	u.conns.all = map[*upConn]bool{}
	if err := u.try(u.end); err != nil {
		u.lost(err)
	}
	u.looking.Go(u.look)
	return u
}

// upConn is a connection to an upstream. It belongs to one request at a time, but for
// interrupt.
type upConn struct {
	reply
	nc     net.Conn
	below  *socket.Conn // that, or what is below its TLS
	reused bool         // it has served a request before
	since  time.Time    // when it became idle
	end    func()       // interrupt

	mu          sync.Mutex
	interrupted bool // whatever is waited for has ended
}

// interrupt ends whatever is waited for on the connection, now and later. It is called by
// any goroutine.
func (c *upConn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	_ = c.nc.SetDeadline(time.Unix(1, 0))
}

// wait bounds the waiting for bytes from now on, 0 for not at all.
func (c *upConn) wait(d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.interrupted {
		_ = c.nc.SetReadDeadline(at)
	}
}

func (c *upConn) wasInterrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupted
}

// silent reports whether nothing has come from an idle connection: neither its end nor bytes
// that nobody has asked for.
func (c *upConn) silent() bool {
	return c.r.Buffered() == 0 && c.below.Silent()
}

// errDial says that no connection could be opened, so that nothing was sent.
type errDial struct{ error }

func (e errDial) Unwrap() error { return e.error }

var errStopping = errors.New("the proxy is stopping")

// kept returns a connection that is kept, or nil.
func (u *upstream) kept() *upConn {
	for {
		u.conns.Lock()
		n := len(u.conns.idle)
		if n == 0 || u.conns.cut {
			u.conns.Unlock()
			return nil
		}
		c := u.conns.idle[n-1]
		u.conns.idle[n-1] = nil
		u.conns.idle = u.conns.idle[:n-1]
		u.conns.Unlock()
		if c.silent() {
			c.reused = true
			return c
		}
		u.close(c)
	}
}

// open opens a connection.
func (u *upstream) open(ctx context.Context) (*upConn, error) {
	nc, err := u.dial(ctx)
	if err != nil {
		return nil, errDial{err}
	}
	bounded := socket.NewConn(nc, u.stall)
	c := &upConn{nc: bounded, below: bounded}
	c.end = c.interrupt
	if u.tls != nil {
		t := tls.Client(bounded, u.tls)
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		err = t.HandshakeContext(ctx)
		cancel()
		if err != nil {
			_ = nc.Close()
			return nil, errDial{err}
		}
		c.nc = t
	}
	c.r = bufio.NewReaderSize(c.nc, readBuffer)
	u.conns.Lock()
	defer u.conns.Unlock()
	if u.conns.cut {
		_ = nc.Close()
		return nil, errDial{errStopping}
	}
	u.conns.all[c] = true
	return c, nil
}

// put keeps a connection for another request. All of the last answer must have been read.
func (u *upstream) put(c *upConn) {
	c.since = time.Now()
	u.conns.Lock()
	kept := !u.conns.cut && u.conns.left.IsZero() && !c.wasInterrupted()
	if kept {
		u.conns.idle = append(u.conns.idle, c)
	}
	u.conns.Unlock()
	if !kept {
		u.close(c)
	}
}

// close closes a connection.
func (u *upstream) close(c *upConn) {
	u.conns.Lock()
	delete(u.conns.all, c)
	u.conns.Unlock()
	_ = c.below.Close() // that of TLS would wait for a write
}

// cut ends all requests that are under way, and has none begin.
func (u *upstream) cut() {
	u.conns.Lock()
	defer u.conns.Unlock()
	u.conns.cut = true
	for c := range u.conns.all {
		c.interrupt()
	}
	u.stop()
}

// look tries for an upstream that is not there, and sweeps, until the end.
func (u *upstream) look() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			if u.missing.Load() != nil && u.try(u.end) == nil {
				u.found()
			}
			u.sweepAt(now)
		case <-u.end.Done():
			return
		}
	}
}

// sweepAt closes connections that are idle for too long, or that the upstream has closed.
func (u *upstream) sweepAt(now time.Time) {
	var over []*upConn
	u.conns.Lock()
	kept := u.conns.idle[:0]
	for _, c := range u.conns.idle {
		if now.Sub(c.since) < idleUpstream && u.conns.left.IsZero() && c.silent() {
			kept = append(kept, c)
		} else {
			over = append(over, c)
		}
	}
	clear(u.conns.idle[len(kept):])
	u.conns.idle = kept
	u.conns.Unlock()
	for _, c := range over {
		u.close(c)
	}
}

// leave is called, perhaps several times, when requests go to others. It reports whether nothing uses u any more; then
// u has ended.
func (u *upstream) leave(now time.Time) (unused bool) {
	u.conns.Lock()
	first := u.conns.left.IsZero()
	if first {
		u.conns.left = now
	}
	unused = len(u.conns.all) == 0 && now.Sub(u.conns.left) > connectTimeout // it may be on its way to one
	u.conns.Unlock()
	if first {
		u.log.Info("an upstream less", "upstream", u.name)
		u.sweepAt(now)
	}
	if unused {
		u.closeAll()
	}
	return unused
}

// stay is called when requests go there, perhaps again.
func (u *upstream) stay() {
	u.conns.Lock()
	defer u.conns.Unlock()
	u.conns.left = time.Time{}
}

// hasLeft reports whether requests go to others.
func (u *upstream) hasLeft() bool {
	u.conns.Lock()
	defer u.conns.Unlock()
	return !u.conns.left.IsZero()
}

// errSelf is the error of a connection to an address of which the proxy has the other end.
var errSelf = errors.New("it is the proxy itself")

// connect opens a TCP connection.
func (u *upstream) connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := u.dialer(ctx, "tcp", u.address)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(u.own(), func(a net.Addr) bool { return listensAt(a, c.LocalAddr(), c.RemoteAddr()) }) {
		_ = c.Close()
		return nil, errSelf
	}
	return c, nil
}

// listensAt reports whether who listens at own has the other end of a connection.
func listensAt(own, local, remote net.Addr) bool {
	self, ok1 := own.(*net.TCPAddr)
	from, ok2 := local.(*net.TCPAddr)
	to, ok3 := remote.(*net.TCPAddr)
	return ok1 && ok2 && ok3 && to.Port == self.Port && (to.IP.Equal(from.IP) || to.IP.IsLoopback()) && (self.IP.IsUnspecified() || self.IP.Equal(to.IP))
}

// dial opens a connection for a request.
func (u *upstream) dial(ctx context.Context) (net.Conn, error) {
	c, err := u.connect(ctx)
	if err != nil {
		if ctx.Err() == nil {
			u.lost(err)
		}
		return nil, err
	}
	u.found()
	return c, nil
}

// try opens a connection and closes it.
func (u *upstream) try(ctx context.Context) error {
	c, err := u.connect(ctx)
	if err != nil {
		return err
	}
	return c.Close()
}

// lost says that the upstream cannot be reached.
func (u *upstream) lost(err error) {
	if cause, ok := errors.AsType[syscall.Errno](err); ok {
		err = cause
	}
	missing := fmt.Errorf("the upstream %s cannot be reached: %w", u.name, err)
	if u.missing.Swap(&missing) == nil && u.end.Err() == nil {
		u.log.Warn("the upstream cannot be reached; looking for it every second", "upstream", u.name, "err", err)
	}
}

// found says that it can.
func (u *upstream) found() {
	if u.missing.Load() != nil && u.missing.Swap(nil) != nil {
		u.log.Info("the upstream can be reached", "upstream", u.name)
	}
}

// noAnswer logs why an answer did not come, or not in full. Where many do not, one in a while
// is a warning.
func (u *upstream) noAnswer(method string, err error, now time.Time) {
	level := slog.LevelDebug
	if last := u.troubled.Load(); now.UnixNano()-last >= int64(warnEvery) && u.troubled.CompareAndSwap(last, now.UnixNano()) {
		level = slog.LevelWarn
	}
	u.log.Log(u.end, level, "no answer from the upstream", "upstream", u.name, "method", method, "err", err)
}

func (u *upstream) ready() error {
	if err := u.missing.Load(); err != nil {
		return *err
	}
	return nil
}

func (u *upstream) closeAll() {
	u.stop()
	u.looking.Wait()
	u.conns.Lock()
	u.conns.cut = true
	var all []*upConn
	for c := range u.conns.all {
		all = append(all, c)
	}
	u.conns.idle = nil
	u.conns.Unlock()
	for _, c := range all {
		u.close(c)
	}
}
