// Package proxy forwards HTTP requests to one upstream or several, each once it has been
// admitted: it is the data plane of spillway proxy.
//
// # The path of a request
//
//	client ──► httpfront ──► call ───┐
//	       └─► net/http ──► stream ──┴► turn ──► upstream
//
// The front serves HTTP/1.1 and 1.0, and hands connections of HTTP/2 over to net/http. A turn
// is one request and its answer. A call, or a stream, is the client of a turn: it gives the request, of which up to
// Options.BufferBytes of the body have arrived, and takes the answer. The turn waits in an
// admission.Controller for a place, sends the request over a connection that the upstream has
// kept, relays the answer, and gives the place back when the upstream has done its part.
//
// Nothing of the framing passes: the heads of requests and answers are read whole and written
// anew, and bodies are streamed in a framing of their own. Trailers pass as far as their names may, interim answers to clients of HTTP/1.1
// alone.
//
// # Who waits for whom
//
//	state       what is held                                   ended by
//	arriving    a buffer of the body                           all, or the buffer is full; read time-out
//	waiting     that, a task in the queue                      a place; the client leaves; its deadline; shed
//	sending     a place, a connection of the upstream          all is sent; either side fails or is too slow
//	            (a goroutine more, if the body did not fit)
//	answering   the same, and a buffer of the answer           its end, or the buffer is full: then the client
//	            (a goroutine more, if the client is slow)      has to keep a rate
//	leaving     a buffer of the answer                         the client has taken it, or takes nothing
//
// A turn runs on the goroutine of its connection or stream. What ends waiting from outside is
// an interruption: of the upstream's connection when the client leaves, of both when the proxy
// stops. The outcome of a request is recorded when its answer ends.
package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Options say what is forwarded, and how. All fields must be set, but for TLS, UpstreamRoots,
// Exempt, Priorities, Client and Routes.
type Options struct {
	// Listen is the address, whose port may be 0.
	Listen string
	// TLS makes clients speak TLS. Nil means that they do not.
	TLS *tls.Config
	// Upstreams are http://host:port or https://host:port, at least one and none twice. What waits waits for any of
	// them, and each has Concurrency of its own.
	Upstreams []*url.URL
	// UpstreamRoots are who may vouch for an upstream of https; nil are the system's.
	UpstreamRoots *x509.CertPool

	// Strategy, Capacity, Concurrency, Mode and Objective are those of admission.Options. A concurrency
	// that is learned goes by the time that the upstream takes for its answers.
	Strategy              string
	Capacity, Concurrency int
	Mode                  admission.Mode
	Objective             time.Duration
	// Client says whom requests count for, Priorities how important they are, and Exempt
	// which paths go straight through.
	Client     rules.Client
	Weight     func(client string) int // under fair: see admission.Options
	Priorities rules.Priorities
	Exempt     rules.Paths
	// Routes name paths for metrics and the slowest requests.
	Routes rules.Routes
	Hold   Hold
	// TrustHeaders says that the client's Spillway-*, Priority and X-Forwarded-For count.
	TrustHeaders bool

	// BufferBytes is how much of a request's body arrives before it waits, and how much of an
	// answer is held for a slow client without a place.
	BufferBytes int
	// MaxBodyBytes bounds the sum of these buffers.
	MaxBodyBytes int64
	// AcceptLoops is how many goroutines accept connections.
	AcceptLoops int

	// Timeout bounds the wait for the headers of the upstream's answer, once the request has
	// been sent, and for each further piece of the answer.
	Timeout time.Duration
	// ReadTimeout bounds the wait for a request's head and for each piece of its body,
	// WriteTimeout the time for which a client takes nothing of its answer, and IdleTimeout
	// the time between requests of a connection.
	ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	// MaxConnections is how many may be open.
	MaxConnections int

	Logger *slog.Logger
	Events Events
	// Tracer begins the spans of requests, whose traces go on at the upstream. Nil means that
	// there are none; then the headers of traces pass as they are.
	Tracer served.Tracer
	// Slowest remembers requests, on a clock that begins at Epoch.
	Slowest *slowest.Recorder
	Epoch   time.Time

	// Tests in virtual time give these; nil are those of the system.
	listener net.Listener
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	resolver func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Events are told what happens. They must not block.
type Events struct {
	// Queue returns the hooks of a strategy's tasks.
	Queue func(strategies.Spec) dispatch.Events
	// Answered is told of an answer: the strategy under which its request came, what became
	// of that, which is good only if the upstream answered below 500, and the times until its headers and its end; of an upgrade and an event
	// stream both are that of the headers.
	Answered func(strategy, method string, code int, outcome served.Outcome, head, took time.Duration)
	// Asked is told of the same answer: the class and the client of its request.
	Asked func(class uint8, client []byte, code int, outcome served.Outcome, head, had time.Duration)
	// Left is told of a client that left before it had its answer, and for how long it had
	// waited.
	Left func(after time.Duration)
	// Routed is told of the same answer, if there are routes. It may be nil.
	Routed func(route string, outcome served.Outcome, took time.Duration)
	// Served is told of the same request. It may be nil.
	Served func(*served.Request)
	// Switched is told of a switch of the strategy.
	Switched func(from, to string)
}

// Server is a running proxy.
type Server struct {
	o          Options
	live       atomic.Pointer[Options] // o with what Change has changed
	controller *admission.Group
	strategy   atomic.Pointer[string] // that of requests that come now
	upstreams  *upstreams
	front      *httpfront.Front
	http2      *http2s
	stopping   atomic.Bool
	hooks      sync.Map // string to dispatch.Events, by strategy
	switching  sync.Mutex
	// streams counts the upgrades and event streams whose headers have been sent, and
	// unfinished all other requests.
	unfinished, streams atomic.Int64
}

// via is how the proxy calls itself (RFC 9110, 7.6.3).
const via = "spillway"

// Open binds the address and serves until Close. That the upstream is there is not
// needed: see Ready.
func Open(o Options) (*Server, error) {
	s := &Server{o: o}
	s.live.Store(&o)
	var err error
	listener := o.listener
	if listener == nil {
		if listener, err = httpfront.Listen(o.Listen); err != nil {
			return nil, fmt.Errorf("data plane: %w", err)
		}
	}
	s.upstreams = openUpstreams(&o, listener.Addr())
	queue := admission.Options{
		Strategy: o.Strategy, Capacity: o.Capacity, Concurrency: o.Concurrency, Mode: o.Mode, Objective: o.Objective, Weight: o.Weight,
		Admitted: func(e admission.Event) {
			hooks := s.of(e.Strategy)
			hooks.Submitted()
			hooks.Started(e.Waited)
		},
		Shed: func(e admission.Event) {
			hooks := s.of(e.Strategy)
			if e.Observed {
				hooks.WouldShed(e.Reason)
				return
			}
			hooks.Submitted()
			hooks.Shed(e.Reason)
		},
		Released: func(e admission.Event) {
			if e.LateWrong {
				s.of(e.Strategy).LateWrong()
			}
		},
		Broken: func(strategy, rule string) {
			o.Logger.Error("the strategy breaks a rule of its interface", "strategy", strategy, "rule", rule)
		},
	}
	s.controller, err = admission.NewGroup(admission.GroupOptions{
		Options: queue, Resources: s.upstreams.names(), Probe: s.upstreams.probe, Rests: s.upstreams.rests,
	})
	if err != nil {
		s.upstreams.closeAll()
		_ = listener.Close()
		return nil, err
	}
	s.upstreams.begin(s.controller)
	s.strategy.Store(&o.Strategy)
	s.of(o.Strategy) // from now on its series are exported
	s.http2 = &http2s{s: s, addr: listener.Addr(), open: map[time.Duration]*http2{}}
	front := httpfront.Options{
		AcceptLoops: o.AcceptLoops, Handler: s, HTTP2: s.http2.serve, Now: s.Now,
		MaxHeadBytes: maxHead, HeadLimits: [2]string{"65536 bytes in all", "65536 bytes in all"}, MaxBodyBytes: o.MaxBodyBytes,
		MaxConnections: o.MaxConnections, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, IdleTimeout: o.IdleTimeout,
		Logger: o.Logger,
	}
	if o.TLS != nil {
		front.TLS = o.TLS.Clone()
		front.TLS.NextProtos = []string{"h2", "http/1.1"}
	}
	if s.front, err = httpfront.Open(front, listener); err != nil {
		s.controller.Close()
		s.upstreams.closeAll()
		_ = listener.Close()
		return nil, fmt.Errorf("data plane: %w", err)
	}
	return s, nil
}

// of returns the hooks of a strategy.
func (s *Server) of(strategy string) dispatch.Events {
	if hooks, ok := s.hooks.Load(strategy); ok {
		return hooks.(dispatch.Events)
	}
	spec, err := strategies.Lookup(strategy)
	if err != nil {
		spec.Name = strategy // which is one's own
	}
	hooks := s.o.Events.Queue(spec)
	s.hooks.Store(strategy, hooks)
	return hooks
}

// Addr returns the address that is really bound.
func (s *Server) Addr() net.Addr { return s.front.Addr() }

// Connections returns how many connections of clients are open.
func (s *Server) Connections() int { return s.front.Connections() }

// Ready returns nil if the upstream takes connections, or why it does not.
func (s *Server) Ready() error { return s.upstreams.ready() }

// Now returns the time on the clock of Options.Slowest.
func (s *Server) Now() int64 { return int64(time.Since(s.o.Epoch)) }

// Gauge returns the state of the queue.
func (s *Server) Gauge() dispatch.Gauge {
	stats := s.controller.Stats()
	return dispatch.Gauge{
		Strategy: stats.Strategy, Observe: stats.Mode == admission.Observe, Depth: stats.Waiting, Capacity: stats.Capacity, Limit: stats.Limit, Pace: stats.Pace,
		Workers: stats.Concurrency, Busy: stats.InUse, Learned: stats.Learned,
	}
}

// Pools returns nil: there is one queue.
func (s *Server) Pools() []dispatch.Gauge { return nil }

// Switch changes the strategy.
func (s *Server) Switch(strategy string) error {
	s.switching.Lock()
	defer s.switching.Unlock()
	from := *s.strategy.Load()
	if err := s.controller.Switch(strategy); err != nil {
		return err
	}
	s.of(strategy)
	s.strategy.Store(&strategy)
	if from != strategy {
		s.o.Events.Switched(from, strategy)
	}
	return nil
}

// SetObserve changes the mode.
func (s *Server) SetObserve(observe bool) error {
	mode := admission.Enforce
	if observe {
		mode = admission.Observe
	}
	return s.controller.SetMode(mode)
}

// Objective returns the objective.
func (s *Server) Objective() *strategies.Objective { return s.controller.Objective() }

// SetWorkers changes how many requests the upstream gets at once; 0 has the number learned.
func (s *Server) SetWorkers(n int) error { return s.controller.SetConcurrency(n) }

// SetCapacity changes how many requests may wait, 0 to as many as the strategy has by default.
func (s *Server) SetCapacity(n int) error { return s.controller.SetCapacity(n) }

// Change changes, from the next request on, whom requests count for, how important they are,
// which go straight through, the names of routes, and the limits of bytes, time and
// connections: those of o from Client to Timeout, and what httpfront.Limits has. Connections of
// HTTP/2 keep their idle time-out. One call at a time is allowed.
func (s *Server) Change(o Options) {
	l := s.o
	l.Client, l.Priorities, l.Exempt, l.Routes, l.Hold, l.TrustHeaders = o.Client, o.Priorities, o.Exempt, o.Routes, o.Hold, o.TrustHeaders
	l.BufferBytes, l.Timeout = o.BufferBytes, o.Timeout
	l.ReadTimeout, l.WriteTimeout, l.IdleTimeout = o.ReadTimeout, o.WriteTimeout, o.IdleTimeout
	s.live.Store(&l)
	s.front.SetLimits(httpfront.Limits{
		MaxBodyBytes: o.MaxBodyBytes, MaxConnections: o.MaxConnections,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, IdleTimeout: o.IdleTimeout,
	})
}

// Drain stops listening, and returns when all requests have been answered. If ctx ends
// before, what still waits is turned away, what the upstream is still busy with is given
// up, and the error says so. Upgrades and event streams, which have no end of their own,
// are cut off then, or once all else has ended, and are no error.
func (s *Server) Drain(ctx context.Context) error {
	patience, enough := context.WithCancel(ctx)
	defer enough()
	go s.untilStreamsAreLeft(patience, enough)
	s.shutdown(patience) // that it ended shows in what is left
	left := s.unfinished.Load()
	_ = s.controller.Drain(patience)
	s.cut()
	// For those that now answer so.
	moment, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.shutdown(moment)
	if left > 0 && ctx.Err() != nil {
		return fmt.Errorf("%d requests were not finished: %w", left, ctx.Err())
	}
	return nil
}

// shutdown has all connections end, and waits for that until ctx ends.
func (s *Server) shutdown(ctx context.Context) {
	var second sync.WaitGroup
	for _, one := range s.http2.end() {
		second.Go(func() { _ = one.server.Shutdown(ctx) })
	}
	_ = s.front.Drain(ctx)
	second.Wait()
}

// cut gives up what the upstream is still busy with.
func (s *Server) cut() {
	s.stopping.Store(true)
	s.upstreams.cut()
}

// untilStreamsAreLeft calls then when there is nothing left but upgrades and event streams,
// unless ctx ends before.
func (s *Server) untilStreamsAreLeft(ctx context.Context, then func()) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for s.unfinished.Load() > 0 || s.streams.Load() == 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
	then()
}

// Close gives up what is left, and closes all connections.
func (s *Server) Close() {
	s.controller.Close()
	s.cut()
	s.http2.close()
	s.front.Close()
	s.upstreams.closeAll()
}
