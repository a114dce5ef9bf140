package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/socket"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Dispatcher is what the server needs of a *dispatch.Dispatcher.
type Dispatcher interface {
	Now() int64
	Submit(*dispatch.Task) (waits bool)
	Continue(*dispatch.Task)
	Cancel(*dispatch.Task, strategies.Reason) bool
	Status() dispatch.Status
	DrainTime() time.Duration
}

var _ Dispatcher = (*dispatch.Dispatcher)(nil)

// Options say how a Server works. All fields must be set, but for those that
// say otherwise.
type Options struct {
	// Listen is the TCP address to listen on; port 0 chooses one.
	Listen string
	// AcceptLoops is how many goroutines accept connections, at least 1.
	AcceptLoops int
	// Dispatcher gets the tasks; the payload of each is an *executor.Op.
	Dispatcher Dispatcher
	// MaxKeyBytes and MaxValueBytes bound keys and values, at least 1.
	MaxKeyBytes, MaxValueBytes int
	// MaxBatchBytes bounds the body of a batch, and that of its answer, at least 1.
	MaxBatchBytes int
	// MaxBodyBytes bounds the sum of the bodies of all requests that have not
	// been answered yet.
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
	// Token is what requests have to show. The zero value lets everybody in.
	Token secure.Token
	// AllowedHosts are names, in lower case, under which browsers may come to a
	// listener on loopback if there is no token, beside addresses and localhost.
	AllowedHosts []string
	// CORSOrigins are the origins, as browsers write them, whose pages may call.
	CORSOrigins []string
	// TrustRequestStart says that X-Request-Start tells when a request arrived.
	TrustRequestStart bool
	// Logger gets what operators should know.
	Logger *slog.Logger
	// Events are told what happens.
	Events Events
	// Slowest remembers the requests that took longest.
	Slowest *slowest.Recorder
}

// Events are called by many goroutines at once and must not block.
type Events struct {
	// Answered: a request was answered, or a connection was refused, d after it
	// had arrived. The method is one that HTTP defines, or "other". Shed says
	// that the queueing layer turned the request away. The strategy is the one
	// that the request was submitted to, or the present one. Never nil.
	Answered func(strategy, method string, code int, shed bool, d time.Duration)
	// Asked: the request that was answered had said whose it was, or how important.
	// The client may be empty, and must not be kept. Nil means that nobody asks.
	Asked func(priority uint8, client []byte, method string, code int, shed bool, d time.Duration)
	// Left: the client of the request that was answered had left before, d after it had
	// arrived. Nil means that nobody asks.
	Left func(d time.Duration)
}

func (o *Options) check() error {
	switch {
	case o.AcceptLoops < 1:
		return fmt.Errorf("server: %d accept loops, need at least 1", o.AcceptLoops)
	case o.MaxKeyBytes < 1 || o.MaxValueBytes < 1 || o.MaxBatchBytes < 1 || o.MaxBodyBytes < 1:
		return fmt.Errorf("server: limits of %d, %d, %d and %d bytes, need at least 1", o.MaxKeyBytes, o.MaxValueBytes, o.MaxBatchBytes, o.MaxBodyBytes)
	case o.MaxConnections < 1:
		return fmt.Errorf("server: at most %d connections, need at least 1", o.MaxConnections)
	case o.MaxConnectionsPerAddress < 0:
		return fmt.Errorf("server: at most %d connections from an address, need at least 0", o.MaxConnectionsPerAddress)
	case o.ReadTimeout <= 0 || o.WriteTimeout <= 0 || o.IdleTimeout <= 0:
		return fmt.Errorf("server: time-outs of %v, %v and %v, need more than 0", o.ReadTimeout, o.WriteTimeout, o.IdleTimeout)
	case o.Dispatcher == nil || o.Logger == nil || o.Events.Answered == nil || o.Slowest == nil:
		return errors.New("server: Dispatcher, Logger, Events.Answered or Slowest is nil")
	}
	return nil
}

// Server serves the data plane. All methods are safe for concurrent use.
type Server struct {
	opts     Options
	listener net.Listener
	guarded  bool     // browsers have to come under a name of our own
	hangups  *hangups // nil if no connection has a descriptor
	cors     cors
	budget   budget
	clock    clock
	turns    turns

	exchanges    sync.Pool // *exchange
	largeReaders sync.Pool // *bufio.Reader that hold the largest head

	// draining makes every answer the last of its connection, parting ends the
	// connections that wait for a request, and closed ends every connection as
	// soon as possible. The latter two are set before connections are interrupted,
	// so that a connection that sets a later deadline afterwards sees them.
	draining, parting, closed atomic.Bool
	// lastRequests is how long a drain waits for further requests, so that clients
	// that pause are told in an answer that the connection ends, which HTTP/1.1
	// has no other way to say.
	lastRequests time.Duration
	stopped      chan struct{} // closed when the server stops to accept
	stopOnce     sync.Once

	connections atomic.Int64 // being served
	addresses   addresses    // of these
	refusals    atomic.Int64 // being refused
	logged      atomic.Int64 // when an accept error was logged last, on the dispatcher's clock

	accepting sync.WaitGroup
	mu        struct {
		sync.Mutex
		conns map[*conn]struct{} // all, also those being refused
	}
	quiet chan struct{} // tells Drain and Close that conns may have become empty
}

// Open listens, and serves until Close. A *net.OpError tells that the address
// cannot be listened on.
func Open(o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	// Go's listener does not share its port with other processes, so the accept
	// loops have one listener in common.
	config := net.ListenConfig{Control: socket.Bound}
	listener, err := config.Listen(context.Background(), "tcp", o.Listen)
	if err != nil {
		return nil, err
	}
	h, err := openHangups()
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return start(o, listener, h), nil
}

// start serves what comes from the listener.
func start(o Options, listener net.Listener, h *hangups) *Server {
	s := &Server{opts: o, listener: listener, hangups: h, cors: newCORS(o.CORSOrigins), turns: newTurns(), stopped: make(chan struct{}), quiet: make(chan struct{}, 1)}
	if a, ok := listener.Addr().(*net.TCPAddr); ok {
		// What is reached from elsewhere has names that are not known here.
		s.guarded = a.IP.IsLoopback() && o.Token.Allows(nil)
	}
	s.lastRequests = time.Second
	s.budget.left.Store(o.MaxBodyBytes)
	s.addresses.limit = o.MaxConnectionsPerAddress
	s.logged.Store(-int64(time.Hour))
	s.mu.conns = map[*conn]struct{}{}
	s.exchanges.New = func() any { return newExchange() }
	for range o.AcceptLoops {
		s.accepting.Go(s.accept)
	}
	return s
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Connections returns how many connections are being served.
func (s *Server) Connections() int { return int(s.connections.Load()) }

// accept is one accept loop.
func (s *Server) accept() {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		nc, err := s.listener.Accept()
		if err == nil {
			pause = shortest
			s.admit(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of file descriptors, say: that passes.
		s.logAcceptError(err)
		select {
		case <-s.stopped:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
}

func (s *Server) logAcceptError(err error) {
	now, last := s.opts.Dispatcher.Now(), s.logged.Load()
	if now-last >= int64(time.Minute) && s.logged.CompareAndSwap(last, now) {
		s.opts.Logger.Warn("cannot accept connections", "err", err)
	}
}

// admit starts the goroutine of a new connection.
func (s *Server) admit(nc net.Conn) {
	c := newConn(s, nc)
	refusal := s.count(c)
	if refusal != nil {
		if s.refusals.Add(1) > maxRefusals {
			s.refusals.Add(-1)
			c.refuseAtOnce(refusal)
			return
		}
	}
	s.mu.Lock()
	s.mu.conns[c] = struct{}{}
	s.mu.Unlock()
	if refusal == nil {
		go c.serve()
		return
	}
	go func() {
		c.refuse(refusal)
		s.forget(c)
	}()
}

// count counts a connection that is to be served, or returns what it is refused by.
func (s *Server) count(c *conn) (refusal []byte) {
	if s.connections.Add(1) > int64(s.opts.MaxConnections) {
		s.connections.Add(-1)
		return tooMany
	}
	if !s.addresses.take(c.peer) {
		s.connections.Add(-1)
		return tooManyOfAddress
	}
	return nil
}

// uncount takes back what count has counted.
func (s *Server) uncount(c *conn) {
	s.addresses.give(c.peer)
	s.connections.Add(-1)
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.mu.conns, c)
	last := len(s.mu.conns) == 0
	s.mu.Unlock()
	if last {
		s.signalQuiet()
	}
}

func (s *Server) signalQuiet() {
	select {
	case s.quiet <- struct{}{}:
	default:
	}
}

func (s *Server) interrupt(write time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		c.interrupt(write)
	}
}

// Drain stops accepting, gives clients a second to send another request on their
// connections, whose answer says that the connection ends, closes those that
// wait for one then, and waits until the others have got their answer and are
// closed, or ctx ends, whose error it returns then. Close must be called all the
// same.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	s.stop()
	patience := s.lastRequests
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/2)
	}
	pause, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.wait(pause) == nil {
		return nil
	}
	s.parting.Store(true)
	s.interrupt(time.Time{})
	return s.wait(ctx)
}

// Close stops accepting and closes all connections. It waits for the tasks that
// are under way, and their answers are given a second to leave.
func (s *Server) Close() {
	s.draining.Store(true)
	s.parting.Store(true)
	s.closed.Store(true)
	s.stop()
	s.interrupt(time.Now().Add(lastWrites))
	_ = s.wait(context.Background())
	if s.hangups != nil {
		s.hangups.close()
	}
}

// Abandon ends all connections at once. Once it has returned nothing more is
// answered. It waits for no task, so Close may still be called.
func (s *Server) Abandon() {
	s.draining.Store(true)
	s.parting.Store(true)
	s.closed.Store(true)
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		c.cut()
	}
}

// stop ends the accept loops.
func (s *Server) stop() {
	s.stopOnce.Do(func() {
		close(s.stopped)
		_ = s.listener.Close()
	})
	s.accepting.Wait()
}

// wait waits until no connection is left.
func (s *Server) wait(ctx context.Context) error {
	for {
		s.mu.Lock()
		n := len(s.mu.conns)
		s.mu.Unlock()
		if n == 0 {
			s.signalQuiet() // for others who wait
			return nil
		}
		select {
		case <-s.quiet:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answered tells the events that a request was answered, and returns the time of that.
func (s *Server) answered(strategy, method string, code int, shed bool, arrival int64) (now int64) {
	if strategy == "" {
		strategy = s.opts.Dispatcher.Status().Strategy
	}
	now = s.opts.Dispatcher.Now()
	s.opts.Events.Answered(strategy, method, code, shed, time.Duration(now-arrival))
	return now
}
