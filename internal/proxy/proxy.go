// Package proxy forwards HTTP requests to an upstream, each in its turn: it is the data
// plane of spillway proxy.
//
// A request waits in an admission.Controller until it may be sent on. The rest is the
// standard library's: net/http reads the request, and its reverse proxy sends it and
// streams the answer back. So each side has framing of its own.
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/socket"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Options say what is forwarded, and how. All fields but TLS, Exempt, Priorities and
// Client must be set.
type Options struct {
	// Listen is the address, whose port may be 0.
	Listen string
	// TLS makes clients speak TLS. Nil means that they do not.
	TLS *tls.Config
	// Upstream is http://host:port or https://host:port.
	Upstream *url.URL

	// Strategy, Capacity, Concurrency, Mode and Objective are those of admission.Options. A concurrency
	// that is learned goes by the time to the headers of the upstream's answers.
	Strategy              string
	Capacity, Concurrency int
	Mode                  admission.Mode
	Objective             time.Duration
	// Client says whom requests count for, Priorities how important they are, and Exempt
	// which paths go straight through.
	Client     rules.Client
	Priorities rules.Priorities
	Exempt     rules.Paths
	Hold       admissionhttp.Hold
	// TrustHeaders says that the client's Spillway-*, Priority and X-Forwarded-For count.
	TrustHeaders bool

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
	// Slowest remembers requests, on a clock that begins at Epoch.
	Slowest *slowest.Recorder
	Epoch   time.Time
}

// Events are told what happens. They must not block.
type Events struct {
	// Queue returns the hooks of a strategy's tasks.
	Queue func(strategies.Spec) dispatch.Events
	// Answered is told of an answer: the strategy under which its request came, whether it
	// was shed, and the times until its headers and its end; of an upgrade and an event
	// stream both are that of the headers.
	Answered func(strategy, method string, code int, shed bool, head, took time.Duration)
	// Asked is told of the same answer: the class and the client of its request.
	Asked func(class uint8, client []byte, method string, code int, shed bool, head time.Duration)
	// Left is told of a client that left before it had its answer, and for how long it had
	// waited.
	Left func(after time.Duration)
	// Switched is told of a switch of the strategy.
	Switched func(from, to string)
}

// Server is a running proxy.
type Server struct {
	o          Options
	controller *admission.Controller
	strategy   atomic.Pointer[string] // that of requests that come now
	upstream   *upstream
	listener   *socket.Listener
	http       *http.Server
	accepting  sync.WaitGroup
	cut        context.CancelCauseFunc // ends the requests that are being served
	hooks      sync.Map                // string to dispatch.Events, by strategy
	switching  sync.Mutex
	// streams counts the upgrades and event streams whose headers have been sent, and
	// unfinished all other requests.
	unfinished, streams atomic.Int64
}

// errStopping is why requests are given up that the upstream is still busy with.
var errStopping = errors.New("the proxy is stopping")

// maxHead bounds the head of a request, and that of an answer.
const maxHead = 64 << 10

// Open binds the address and serves until Close. That the upstream is there is not
// needed: see Ready.
func Open(o Options) (*Server, error) {
	s := &Server{o: o}
	var err error
	s.controller, err = admission.New(admission.Options{
		Strategy: o.Strategy, Capacity: o.Capacity, Concurrency: o.Concurrency, Mode: o.Mode, Objective: o.Objective,
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
	})
	if err != nil {
		return nil, err
	}
	s.strategy.Store(&o.Strategy)
	s.of(o.Strategy) // from now on its series are exported
	bound, err := net.Listen("tcp", o.Listen)
	if err != nil {
		s.controller.Close()
		return nil, fmt.Errorf("data plane: %w", err)
	}
	s.upstream = openUpstream(&o)
	serving, cut := context.WithCancelCause(context.Background())
	s.cut = cut
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.listener = &socket.Listener{Listener: bound, Most: int64(o.MaxConnections), Stall: o.WriteTimeout}
	s.http = &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return serving },
		Protocols:         protocols,
		ReadHeaderTimeout: o.ReadTimeout,
		IdleTimeout:       o.IdleTimeout,
		MaxHeaderBytes:    maxHead,
		// What clients do wrong is theirs to notice.
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	var from net.Listener = s.listener
	if o.TLS != nil {
		config := o.TLS.Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
		from = tls.NewListener(s.listener, config)
	} else {
		s.listener.Refusal = socket.Refusal("too many connections are open, allowed by SPILLWAY_MAX_CONNECTIONS")
	}
	s.accepting.Go(func() {
		if err := s.http.Serve(from); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("the data plane has stopped", "err", err)
		}
	})
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
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Connections returns how many connections of clients are open.
func (s *Server) Connections() int { return s.listener.Open() }

// Ready returns nil if the upstream takes connections, or why it does not.
func (s *Server) Ready() error { return s.upstream.ready() }

// Now returns the time on the clock of Options.Slowest.
func (s *Server) Now() int64 { return int64(time.Since(s.o.Epoch)) }

// Status returns the strategy and its settings.
func (s *Server) Status() dispatch.Status {
	stats := s.controller.Stats()
	return dispatch.Status{
		Strategy: stats.Strategy, Workers: stats.Concurrency, Capacity: stats.Capacity, Observe: stats.Mode == admission.Observe,
		Learned: (*dispatch.Learned)(stats.Learned),
	}
}

// Gauge returns the state of the queue.
func (s *Server) Gauge() dispatch.Gauge {
	stats := s.controller.Stats()
	return dispatch.Gauge{
		Strategy: stats.Strategy, Depth: stats.Waiting, Capacity: stats.Capacity, Limit: stats.Limit, Pace: stats.Pace,
		Workers: stats.Concurrency, Busy: stats.InUse, Learned: (*dispatch.Learned)(stats.Learned),
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

// Drain stops listening, and returns when all requests have been answered. If ctx ends
// before, what still waits is turned away, what the upstream is still busy with is given
// up, and the error says so. Upgrades and event streams, which have no end of their own,
// are cut off then, or once all else has ended, and are no error.
func (s *Server) Drain(ctx context.Context) error {
	patience, enough := context.WithCancel(ctx)
	defer enough()
	go s.untilStreamsAreLeft(patience, enough)
	_ = s.http.Shutdown(patience) // that it ended shows in what is left
	left := s.unfinished.Load()
	_ = s.controller.Drain(patience)
	s.cut(errStopping)
	// For those that now answer so.
	moment, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.http.Shutdown(moment)
	if left > 0 && ctx.Err() != nil {
		return fmt.Errorf("%d requests were not finished: %w", left, ctx.Err())
	}
	return nil
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
	s.cut(errStopping)
	_ = s.http.Close() // of connections that have gone
	s.accepting.Wait()
	s.upstream.close()
}
