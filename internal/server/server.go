package server

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Dispatcher is what the server needs of a *dispatch.Dispatcher.
type Dispatcher interface {
	Now() int64
	Submit(*dispatch.Task) (waits bool)
	Continue(*dispatch.Task)
	Cancel(*dispatch.Task, strategies.Reason) bool
	Gauge() dispatch.Gauge
	DrainTime() time.Duration
}

var _ Dispatcher = (*dispatch.Dispatcher)(nil)

// Options say how a Server works. All fields must be set, but for those that
// say otherwise.
type Options struct {
	// Listen is the TCP address to listen on; port 0 chooses one.
	Listen string
	// Options are those of connections and bytes, but for Handler, Now and the limits of
	// heads, which are set here.
	httpfront.Options
	// Dispatcher gets the tasks; the payload of each is an *executor.Op.
	Dispatcher Dispatcher
	// MaxKeyBytes and MaxValueBytes bound keys and values, at least 1.
	MaxKeyBytes, MaxValueBytes int
	// MaxBatchBytes bounds the body of a batch, and that of its answer, at least 1.
	MaxBatchBytes int
	// Token is what requests have to show. The zero value lets everybody in.
	Token secure.Token
	// AllowedHosts are names, in lower case, under which browsers may come to a
	// listener on loopback if there is no token, beside addresses and localhost.
	AllowedHosts []string
	// CORSOrigins are the origins, as browsers write them, whose pages may call.
	CORSOrigins []string
	// TrustRequestStart says that X-Request-Start says when a request arrived.
	TrustRequestStart bool
	// Events are called for what happens.
	Events Events
	// Tracer begins the spans of requests. Nil means that there are none.
	Tracer served.Tracer
	// Slowest remembers the requests that took longest.
	Slowest *slowest.Recorder
}

// Events are called by many goroutines at once and must not block.
type Events struct {
	// Answered: a request was answered, or a connection was refused, d after it
	// had arrived. The method is one that HTTP defines, or "other". The strategy is the one
	// that the request was submitted to, or the present one. Never nil.
	Answered func(strategy, method string, code int, outcome served.Outcome, d time.Duration)
	// Asked: the request that was answered had said whose it was, or how important.
	// The client may be empty, and must not be kept. Nil means that nobody asks.
	Asked func(priority uint8, client []byte, code int, outcome served.Outcome, d, had time.Duration)
	// Left: the client of the request that was answered had left before, d after it had
	// arrived. Nil means that nobody asks.
	Left func(d time.Duration)
	// Served: the same request, for the access log. Nil means that nobody asks.
	Served func(*served.Request)
}

func (o *Options) check() error {
	switch {
	case o.MaxKeyBytes < 1 || o.MaxValueBytes < 1 || o.MaxBatchBytes < 1:
		return fmt.Errorf("server: limits of %d, %d and %d bytes, need at least 1", o.MaxKeyBytes, o.MaxValueBytes, o.MaxBatchBytes)
	case o.Dispatcher == nil || o.Events.Answered == nil || o.Slowest == nil:
		return errors.New("server: Dispatcher, Events.Answered or Slowest is nil")
	}
	return nil
}

// Server serves the data plane. All methods are safe for concurrent use.
type Server struct {
	*httpfront.Front
	opts    Options
	limited atomic.Pointer[Options] // opts with the present limits
	guarded bool                    // browsers have to come under a name of our own
	cors    cors
}

// Open listens, and serves until Close. A *net.OpError means that the address
// cannot be listened on.
func Open(o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	listener, err := httpfront.Listen(o.Listen)
	if err != nil {
		return nil, err
	}
	s, err := start(o, listener)
	if err != nil {
		_ = listener.Close()
	}
	return s, err
}

// headSlack is what a request head may have beside two escaped keys.
const headSlack = 8 << 10

// start serves what comes from the listener.
func start(o Options, listener net.Listener) (s *Server, err error) {
	s = &Server{opts: o, cors: newCORS(o.CORSOrigins)}
	s.limited.Store(&o)
	if a, ok := listener.Addr().(*net.TCPAddr); ok {
		// What is reached from elsewhere has names that are not known here.
		s.guarded = a.IP.IsLoopback() && o.Token.Allows(nil)
	}
	front := o.Options
	front.Handler, front.Now = s, o.Dispatcher.Now
	front.MaxHeadBytes = 2*3*o.MaxKeyBytes + headSlack
	front.HeadLimits = [2]string{"two keys of the largest size, every byte escaped, and some more", "8192 bytes in all"}
	s.Front, err = httpfront.Open(front, listener)
	return s, err
}

// SetLimits changes the limits of connections and bytes, each as Options wants it, from the next
// request on: see httpfront.Front.SetLimits.
func (s *Server) SetLimits(l httpfront.Limits, maxValueBytes, maxBatchBytes int) {
	o := s.opts
	o.MaxValueBytes, o.MaxBatchBytes, o.MaxBodyBytes = maxValueBytes, maxBatchBytes, l.MaxBodyBytes
	s.limited.Store(&o)
	s.Front.SetLimits(l)
}

// Refused calls the events for a connection that was refused. Its request was not parsed.
func (s *Server) Refused(arrival int64) {
	strategy, took := s.opts.Dispatcher.Gauge().Strategy, time.Duration(s.opts.Dispatcher.Now()-arrival)
	s.opts.Events.Answered(strategy, "other", fasthttp.StatusServiceUnavailable, served.Error, took)
	if s.opts.Events.Served != nil {
		s.opts.Events.Served(&served.Request{Outcome: served.Error, Request: slowest.Request{
			Strategy: strategy, Method: "other", Code: fasthttp.StatusServiceUnavailable, Took: took, Received: took,
		}})
	}
}
