// Package admin serves the admin plane: metrics, profiles, health, the live
// switch of the strategy, the configuration and backups.
//
// It listens on an address of its own, by default on loopback only, and none of
// it can be reached through the data plane. All routes are in one table, in
// routes.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/backup"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/tuning"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Options say what the admin plane serves. All fields but TLS, Token, Logger,
// Version, Commit, Callers, ForgetCallers and Backup must be set.
type Options struct {
	// Listen is the address, whose port may be 0.
	Listen string
	// TLS makes the plane speak TLS. Nil means that it does not.
	TLS *tls.Config
	// Token must be carried by all requests but those for health.
	Token secure.Token
	// MaxConnections is how many connections are served at once, at least 1.
	MaxConnections int
	// Version and Commit say what was built.
	Version, Commit string
	// Logger is told of failures. Nil means slog.Default.
	Logger *slog.Logger

	// Dispatcher is whose strategy, objective and mode are shown, and Tuner changes them.
	Dispatcher Dispatcher
	Tuner      *tuning.Tuner
	// Metrics serves /metrics.
	Metrics http.Handler
	// Live returns the state that the console shows, and reports false while
	// the service is starting.
	Live func() (metrics.Live, bool)
	// Callers returns what was counted by class and by client, nil for nothing.
	// ForgetCallers, called once a minute, ends the counting of clients that have
	// gone.
	Callers       func() ([metrics.Classes]metrics.Tally, map[string]metrics.Tally)
	ForgetCallers func()
	// Slowest returns the slowest requests of late, and the time on their clock.
	Slowest func() (requests []slowest.Request, now int64)
	// Ready returns nil if the service is ready, or the reason why it is not.
	Ready func() error
	// Config returns the effective configuration, fit for JSON and without
	// secrets.
	Config func() any
	// Backup writes a consistent copy of the store into a folder that is not there
	// yet, unless ctx ends before. Its errors are those of backup.Backups.Write. It is nil
	// where there is no store.
	Backup func(ctx context.Context, dir string) (backup.Result, error)
}

// Dispatcher is what the admin plane needs of a dispatch.Dispatcher.
type Dispatcher interface {
	Gauge() dispatch.Gauge
	Pools() []dispatch.Gauge
	Objective() *strategies.Objective
}

var _ Dispatcher = (*dispatch.Dispatcher)(nil)

// Server is a running admin plane.
type Server struct {
	http     *http.Server
	consoles *feed
	listener net.Listener
	limit    *connections
	log      *slog.Logger
	serving  sync.WaitGroup
}

// Time limits. There is none on handlers: a profile takes as long as was asked for.
const (
	writeTimeout = 10 * time.Second // for a client to take something of an answer
	headTimeout  = 10 * time.Second // for a request's head
	bodyTimeout  = 10 * time.Second // for its body
	idleTimeout  = time.Minute      // between requests
	closeTimeout = 2 * time.Second  // for the requests that run at Close
)

// Open binds the address and serves until Close.
func Open(o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	bound, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin plane: %w", err)
	}
	past, consoles := newHistory(&o, time.Now()), newFeed()
	limit := &connections{}
	limit.most.Store(int64(o.MaxConnections))
	s := &Server{
		http: &http.Server{
			Handler:           limit.limited(o.routes(past, consoles)),
			ConnContext:       limit.opened,
			ConnState:         limit.changed,
			ReadHeaderTimeout: headTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    16 << 10,
			// What clients do wrong is theirs to notice.
			ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		},
		consoles: consoles,
		listener: bound,
		limit:    limit,
		log:      o.Logger,
	}
	var from net.Listener = impatient{bound, writeTimeout}
	if o.TLS != nil {
		from = tls.NewListener(from, o.TLS)
	}
	s.serving.Go(func() { watch(past, consoles) })
	s.serving.Go(func() {
		if err := s.http.Serve(from); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the admin plane has stopped", "err", err)
		}
	})
	return s, nil
}

// watch samples once a second, and tells the consoles that are open, until the
// feed is closed.
func watch(past *history, consoles *feed) {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		if past.sample() && consoles.watched() {
			consoles.publish(past.frame())
		}
		select {
		case <-ticker.C:
		case <-consoles.done:
			return
		}
	}
}

// Addr returns the address that is really bound.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// SetMaxConnections changes Options.MaxConnections. Those that are open stay so.
func (s *Server) SetMaxConnections(n int) { s.limit.most.Store(int64(n)) }

// Close stops listening, gives the requests that are being served a moment to
// end, and closes all connections.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.consoles.close() // their streams would not end
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // it has nothing to say that Shutdown did not
	}
	s.serving.Wait()
}
