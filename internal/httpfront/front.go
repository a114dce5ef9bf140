package httpfront

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/internal/socket"
)

// Options say how a Front works. All fields must be set, but for those that say otherwise.
type Options struct {
	// AcceptLoops is how many goroutines accept connections, at least 1.
	AcceptLoops int
	// Handler says what is served.
	Handler Handler
	// Now is the clock of arrivals, in nanoseconds since a moment before the Front.
	Now func() int64
	// MaxHeadBytes bounds the head of a request, at least 4096; HeadLimits tells clients
	// why a request line, or the fields, are too long.
	MaxHeadBytes int
	HeadLimits   [2]string
	// MaxBodyBytes bounds the sum of the bodies of all requests that have not
	// been answered yet, at least 1.
	MaxBodyBytes int64
	// MaxConnections is how many connections are served at once, at least 1.
	MaxConnections int
	// MaxConnectionsPerAddress is how many of them may come from one address, or
	// IPv6 network of 64 bits; 0 for no limit of its own.
	MaxConnectionsPerAddress int
	// ReadTimeout bounds the time from the first byte of a request to its last,
	// WriteTimeout the time in which a client takes nothing of an answer, and
	// IdleTimeout the time between requests.
	ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	// TLS, if not nil, is what connections are encrypted by.
	TLS *tls.Config
	// HTTP2, if not nil, serves connections that turn out to speak HTTP/2, and returns when
	// they are closed.
	HTTP2 func(net.Conn)
	// Logger gets what operators should know.
	Logger *slog.Logger
}

func (o *Options) check() error {
	switch {
	case o.AcceptLoops < 1:
		return fmt.Errorf("httpfront: %d accept loops, need at least 1", o.AcceptLoops)
	case o.MaxHeadBytes < smallBuffer || o.MaxBodyBytes < 1:
		return fmt.Errorf("httpfront: heads of %d and bodies of %d bytes, need at least %d and 1", o.MaxHeadBytes, o.MaxBodyBytes, smallBuffer)
	case o.MaxConnections < 1:
		return fmt.Errorf("httpfront: at most %d connections, need at least 1", o.MaxConnections)
	case o.MaxConnectionsPerAddress < 0:
		return fmt.Errorf("httpfront: at most %d connections from an address, need at least 0", o.MaxConnectionsPerAddress)
	case o.ReadTimeout <= 0 || o.WriteTimeout <= 0 || o.IdleTimeout <= 0:
		return fmt.Errorf("httpfront: time-outs of %v, %v and %v, need more than 0", o.ReadTimeout, o.WriteTimeout, o.IdleTimeout)
	case o.Handler == nil || o.Now == nil || o.Logger == nil:
		return errors.New("httpfront: Handler, Now or Logger is nil")
	}
	return nil
}

// Front serves HTTP/1.1 and 1.0. All methods are safe for concurrent use.
type Front struct {
	opts     Options
	limits   atomic.Pointer[Limits]
	listener net.Listener
	hangups  *hangups // nil if no connection has a descriptor
	budget   budget
	clock    clock
	writers  writers

	exchanges    sync.Pool // *Exchange
	largeReaders sync.Pool // *bufio.Reader that hold the largest head

	// draining makes every answer the last of its connection, parting ends the
	// connections that wait for a request, and closed ends every connection as
	// soon as possible. The latter two are set before connections are interrupted,
	// so that a connection that sets a later deadline afterwards sees them.
	draining, parting, closed atomic.Bool
	// lastRequests is how long a drain waits for further requests, so that clients
	// that pause learn from an answer that the connection ends, which HTTP/1.1
	// has no other way to say.
	lastRequests time.Duration
	stopped      chan struct{} // closed when the front stops to accept
	stopOnce     sync.Once

	connections atomic.Int64 // being served
	addresses   addresses    // of these
	refusals    atomic.Int64 // being refused
	logged      atomic.Int64 // when an accept error was logged last, on the clock of arrivals

	accepting sync.WaitGroup
	mu        struct {
		sync.Mutex
		conns    map[*conn]struct{} // all, also those being refused
		complete bool               // no more come
	}
	empty chan struct{} // closed when the last has gone
}

// Listen listens on a TCP address; port 0 chooses one. A *net.OpError means that it
// cannot. What clients make the sockets hold is bounded.
func Listen(address string) (net.Listener, error) {
	// Go's listener does not share its port with other processes, so the accept
	// loops have one listener in common.
	config := net.ListenConfig{Control: socket.Bound}
	return config.Listen(context.Background(), "tcp", address)
}

// Open serves what comes from the listener until Close, which closes that too. After an
// error the listener is still the caller's.
func Open(o Options, listener net.Listener) (*Front, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	f := &Front{opts: o, listener: listener, writers: newWriters(), stopped: make(chan struct{}), empty: make(chan struct{})}
	if _, ok := listener.(syscall.Conn); ok {
		var err error
		if f.hangups, err = openHangups(); err != nil {
			return nil, err
		}
	}
	f.lastRequests = time.Second
	f.limits.Store(new(Limits))
	f.SetLimits(o.limits())
	f.logged.Store(-int64(time.Hour))
	f.mu.conns = map[*conn]struct{}{}
	f.exchanges.New = func() any { return newExchange(f) }
	f.largeReaders.New = func() any { return bufio.NewReaderSize(nil, o.MaxHeadBytes) }
	for range o.AcceptLoops {
		f.accepting.Go(f.accept)
	}
	return f, nil
}

// Limits are those of Options that may change while the front serves.
type Limits struct {
	MaxBodyBytes                             int64
	MaxConnections, MaxConnectionsPerAddress int
	ReadTimeout, WriteTimeout, IdleTimeout   time.Duration
}

func (o *Options) limits() Limits {
	return Limits{
		o.MaxBodyBytes, o.MaxConnections, o.MaxConnectionsPerAddress, o.ReadTimeout, o.WriteTimeout, o.IdleTimeout,
	}
}

// SetLimits changes the limits, which must be as Options wants them. What is there already stays:
// connections and bodies beyond a limit, and the write time-out of connections. One call at a
// time is allowed.
func (f *Front) SetLimits(l Limits) {
	before := f.limits.Swap(&l)
	f.budget.give(l.MaxBodyBytes - before.MaxBodyBytes)
	f.addresses.setLimit(l.MaxConnectionsPerAddress)
}

// Addr returns the address that the front listens on.
func (f *Front) Addr() net.Addr { return f.listener.Addr() }

// Connections returns how many connections are being served.
func (f *Front) Connections() int { return int(f.connections.Load()) }

// Bodies returns how many bytes bodies take up that arrive or wait, of MaxBodyBytes.
func (f *Front) Bodies() int64 { return f.limits.Load().MaxBodyBytes - f.budget.left.Load() }

// accept is one accept loop.
func (f *Front) accept() {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		nc, err := f.listener.Accept()
		if err == nil {
			pause = shortest
			f.admit(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of file descriptors, say: that passes.
		f.logAcceptError(err)
		select {
		case <-f.stopped:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
}

func (f *Front) logAcceptError(err error) {
	now, last := f.opts.Now(), f.logged.Load()
	if now-last >= int64(time.Minute) && f.logged.CompareAndSwap(last, now) {
		f.opts.Logger.Warn("cannot accept connections", "err", err)
	}
}

// admit starts the goroutine of a new connection.
func (f *Front) admit(nc net.Conn) {
	c := newConn(f, nc)
	refusal := f.count(c)
	if refusal != nil {
		if f.refusals.Add(1) > maxRefusals {
			f.refusals.Add(-1)
			c.refuseAtOnce(refusal)
			return
		}
	}
	f.mu.Lock()
	f.mu.conns[c] = struct{}{}
	f.mu.Unlock()
	if refusal == nil {
		go c.serve()
		return
	}
	go func() {
		c.refuse(refusal)
		f.forget(c)
	}()
}

// count counts a connection that is to be served, or returns what it is refused by.
func (f *Front) count(c *conn) (refusal *Problem) {
	if f.connections.Add(1) > int64(f.limits.Load().MaxConnections) {
		f.connections.Add(-1)
		return tooMany
	}
	if !f.addresses.take(c.peer) {
		f.connections.Add(-1)
		return tooManyOfAddress
	}
	return nil
}

// uncount takes back what count has counted.
func (f *Front) uncount(c *conn) {
	f.addresses.give(c.peer)
	f.connections.Add(-1)
}

func (f *Front) forget(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.conns, c)
	if f.mu.complete && len(f.mu.conns) == 0 {
		close(f.empty)
	}
}

func (f *Front) interrupt(write time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.mu.conns {
		if !c.taken.Load() {
			c.interrupt(write)
		}
	}
}

// Drain stops accepting, gives clients a second to send another request on their
// connections, whose answer says that the connection ends, closes those that
// wait for one then, and waits until the others have got their answer and are
// closed, or ctx ends, whose error it returns then. Close must be called all the
// same.
func (f *Front) Drain(ctx context.Context) error {
	f.draining.Store(true)
	f.stop()
	patience := f.lastRequests
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/2)
	}
	pause, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if f.wait(pause) == nil {
		return nil
	}
	f.parting.Store(true)
	f.interrupt(time.Time{})
	return f.wait(ctx)
}

// end makes every connection one that ends, and stops accepting.
func (f *Front) end() {
	f.draining.Store(true)
	f.parting.Store(true)
	f.closed.Store(true)
	f.stop()
}

// Close stops accepting and closes all connections. It waits for the handlers
// that are under way, and their answers are given a second to leave.
func (f *Front) Close() {
	f.end()
	f.interrupt(time.Now().Add(lastWrites))
	_ = f.wait(context.Background())
	if f.hangups != nil {
		f.hangups.close()
	}
}

// Abandon ends all connections at once. Once it has returned nothing more is
// answered. It waits for no handler, so Close may still be called.
func (f *Front) Abandon() {
	f.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.mu.conns {
		c.cut()
	}
}

// stop ends the accept loops.
func (f *Front) stop() {
	f.stopOnce.Do(func() {
		close(f.stopped)
		_ = f.listener.Close()
		f.accepting.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.mu.complete = true; len(f.mu.conns) == 0 {
			close(f.empty)
		}
	})
}

// wait waits until no connection is left.
func (f *Front) wait(ctx context.Context) error {
	select {
	case <-f.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
