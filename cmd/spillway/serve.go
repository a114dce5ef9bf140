package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/internal/admin"
	"github.com/spillway-go/spillway/internal/backup"
	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/logging"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/server"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/tuning"
	"github.com/spillway-go/spillway/internal/version"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

var (
	errSecondSignal = errors.New("a second signal came before the stop had ended")
	errStarting     = errors.New("starting")
	errDraining     = errors.New("draining")
)

// The rates of the profiles are such that they always hold samples and cost
// next to nothing: of contended mutexes, one event in so many; of goroutines
// that wait, one sample for so much time that they have waited. Every request
// waits for its task, so that a lower figure would be felt.
const (
	mutexProfileFraction = 100
	blockProfileRate     = 100 * time.Millisecond
)

// stuck is how long an operation of the store may take, after the drain
// time-out, before it is given up.
const stuck = 10 * time.Second

// maxBatch is how many writes a worker takes at once, to commit them together.
const maxBatch = 128

// mostLearned is how many workers there may be where their number is learned. Each is a
// goroutine, once it is needed.
const mostLearned = 4096

// serve runs the service until ctx ends or a signal comes, and stops it
// gracefully. A second signal ends the waiting, but loses nothing.
func serve(ctx context.Context, inv config.Invocation, settings *settings, memory int64, stderr *logging.Writer) error {
	p, err := prepare(ctx, &inv, settings, memory, inv.Config.CacheBytes, stderr)
	if err != nil {
		return err
	}
	defer p.close()
	started, done := make(chan *service, 1), make(chan error, 1)
	go func() { done <- lifetime(p.ctx, p.settings, p.tables, stderr.Dropped, started) }()
	return p.untilStopped(done, func() error { return abandon(started, done) })
}

// process is what serving needs of the process.
type process struct {
	*settings
	ctx     context.Context // ends when it is to stop
	end     context.CancelFunc
	signals chan os.Signal
	hangups chan os.Signal // nil if there is no configuration file
	tables  int            // that the store may hold open
}

// prepare sets up the process, for a cache of so many bytes.
func prepare(ctx context.Context, inv *config.Invocation, settings *settings, memory, cache int64, stderr *logging.Writer) (*process, error) {
	p := &process{settings: settings, signals: make(chan os.Signal, 2)}
	p.log, p.level = newLogger(&inv.Config, stderr)
	for _, warning := range inv.Warnings {
		p.log.Warn(warning)
	}
	var warning string
	var err error
	if p.tables, warning, err = inv.Config.FitDescriptors(maxDescriptors()); err != nil {
		return nil, err
	}
	if warning != "" {
		p.log.Warn(warning)
	}
	p.now.Store(inv)
	limit := limitMemory(memory, cache)
	runtime.SetMutexProfileFraction(mutexProfileFraction)
	runtime.SetBlockProfileRate(int(blockProfileRate))

	// A terminal or a reader of stderr that goes must not take the service along.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	if inv.Config.ConfigFile != "" {
		hangups := make(chan os.Signal, 1) // several at once are one
		signal.Notify(hangups, syscall.SIGHUP)
		p.hangups, p.hangup = hangups, hangups
	}
	signal.Notify(p.signals, syscall.SIGTERM, syscall.SIGINT)
	p.ctx, p.end = context.WithCancel(ctx)
	if limit > 0 {
		inSockets := func() int64 { return config.InSockets(os.DirFS("/")) }
		go leaveSockets(p.ctx, limit, inSockets, func(limit int64) { debug.SetMemoryLimit(limit) })
	}
	return p, nil
}

func (p *process) close() {
	p.end()
	signal.Stop(p.signals)
	if p.hangups != nil {
		signal.Stop(p.hangups)
	}
}

// copied is within what time of the first signal the same one is a copy of it: timeout(1), for
// one, sends it to the process and to its group.
const copied = 10 * time.Millisecond

// untilStopped waits until a lifetime is done, which the first signal has end, and calls
// abandon at the second.
func (p *process) untilStopped(done <-chan error, abandon func() error) error {
	var first os.Signal
	var at time.Time
	for {
		select {
		case err := <-done:
			return err
		case s := <-p.signals:
			switch {
			case first == nil:
				first, at = s, time.Now()
				p.log.Info("stopping", "signal", s.String())
				p.end()
			case s != first || time.Since(at) > copied:
				p.log.Error("second signal, ending without waiting for requests", "signal", s.String())
				return abandon()
			}
		}
	}
}

// abandon has the service acknowledge nothing any more and makes durable what it
// has acknowledged, within a second. One that has not started has nothing.
func abandon(started <-chan *service, done <-chan error) error {
	second := time.NewTimer(time.Second)
	defer second.Stop()
	var s *service
	select {
	case s = <-started:
	case err := <-done: // it did not start
		return errors.Join(errSecondSignal, err)
	case <-second.C:
		return errSecondSignal
	}
	saved := make(chan error, 1)
	go func() {
		s.data.Abandon() // what is applied later is acknowledged to nobody
		saved <- s.store.sync()
	}()
	select {
	case err := <-saved:
		if errors.Is(err, store.ErrClosed) { // it is being closed, which begins with that
			select {
			case err = <-done:
			case <-second.C:
				err = nil
			}
		}
		return errors.Join(errSecondSignal, err)
	case <-second.C:
		return fmt.Errorf("%w, and the store did not sync what was acknowledged within a second", errSecondSignal)
	}
}

// lifetime starts the service, waits for the end of ctx and stops the service.
func lifetime(ctx context.Context, settings *settings, tables int, dropped func() uint64, started chan<- *service) error {
	s, err := start(settings, tables, dropped)
	if err != nil {
		return err
	}
	started <- s
	go settings.follow(ctx, s.change)
	<-ctx.Done()
	defer s.records.close()
	return s.stop()
}

// service is the running service.
type service struct {
	*settings
	tuner *tuning.Tuner
	// notReady is why the service is not ready, if it is not for its store.
	notReady atomic.Pointer[error]
	// addresses are those really bound, by plane; nil until all are.
	addresses atomic.Pointer[map[string]string]

	// In the order in which they are opened.
	metrics    *metrics.Metrics
	records    *records
	backups    *backup.Backups
	store      openedStore
	executor   *executor.Executor
	dispatcher *dispatch.Dispatcher
	waiting    atomic.Pointer[dispatch.Dispatcher] // the same, for unblocked
	admin      *admin.Server
	data       *server.Server
}

// start opens everything, from the store upwards. If something cannot be
// opened, what has been is closed again, in reverse.
func start(settings *settings, tables int, dropped func() uint64) (_ *service, err error) {
	s := &service{settings: settings}
	c, log := s.config(), s.log
	s.notReady.Store(&errStarting)
	var opened []func()
	defer func() {
		if err != nil {
			for _, closeIt := range slices.Backward(opened) {
				closeIt()
			}
		}
	}()

	tlsConfig, err := secure.TLS(c.TLSCert, c.TLSKey, log)
	if err != nil {
		return nil, err
	}
	built := version.Get()
	s.metrics = metrics.New(metrics.Options{Version: built.Version, Commit: built.Commit, Store: c.Store})

	slow := new(slowest.Recorder)
	epoch := time.Now()
	if s.records, err = s.openRecords("spillway", epoch, func() int { return s.dispatcher.Gauge().Depth }); err != nil {
		return nil, err
	}
	opened = append(opened, s.records.close)

	s.backups = backup.New(c.DataDir)
	if s.store, err = openStore(c, tables, log, s.metrics, s.backups.FS(), s.unblocked); err != nil {
		return nil, err
	}
	opened = append(opened, func() { _ = s.store.Close() }) // nothing was written
	opened = append(opened, s.backups.Close)

	s.executor = executor.Open(executor.Options{
		Store:      s.store.Store,
		MaxCommits: maxCommits(int(c.Workers)),
		Unblocked:  s.unblocked,
		Logger:     log,
		Epoch:      epoch,
		Events:     executor.Events{Committed: s.metrics.Committed, Operated: s.metrics.Operated},
	})
	opened = append(opened, s.executor.Close)

	batch := maxBatch
	if !c.StoreDelay.IsZero() || c.Store == config.StoreCassandra {
		batch = 1 // over a slow store the others could be started by other workers
	}
	var learn *concurrency.Options
	if c.Workers == config.Auto {
		learn = &concurrency.Options{Max: mostLearned}
	}
	objective := new(strategies.Objective)
	if err = objective.Set(time.Duration(c.SLO)); err != nil {
		return nil, err
	}
	s.dispatcher, err = dispatch.Open(dispatch.Options{
		Strategy: c.Strategy,
		Capacity: c.QueueCapacity,
		Workers:  int(c.Workers),
		Learn:    learn,
		Split:    c.Pools == "split",
		MaxBatch: batch, MaxBatchBytes: executor.MaxBatchBytes,
		Run:       s.executor.Run,
		Blocked:   s.executor.Blocked,
		Epoch:     epoch,
		Objective: objective,
		Observe:   c.Mode == config.ModeObserve,
		Weight:    weight(c.FairWeights),
		Events:    s.metrics.Queue,
		Switched: func(from, to string) {
			s.metrics.Switched(from, to)
			log.Info("strategy switched", "from", from, "to", to)
		},
		Broken: func(strategy, rule string) {
			log.Error("the strategy breaks a rule of its interface", "strategy", strategy, "rule", rule)
		},
	})
	if err != nil {
		return nil, err
	}
	s.waiting.Store(s.dispatcher)
	opened = append(opened, s.dispatcher.Close)

	s.tuner = tuning.New(tunable{s.dispatcher, s.executor, c.Pools == "split"}, tuned(s.now.Load()), log)
	s.admin, err = admin.Open(admin.Options{
		Listen:         c.AdminListen,
		TLS:            tlsConfig,
		Token:          secure.NewToken(c.AdminToken),
		MaxConnections: c.AdminMaxConnections,
		Version:        built.Version,
		Commit:         built.Commit,
		Logger:         log,
		Dispatcher:     s.dispatcher,
		Tuner:          s.tuner,
		Metrics:        s.metrics.Handler(),
		Live:           s.metrics.Live,
		Callers:        s.metrics.Callers,
		ForgetCallers:  s.metrics.ForgetCallers,
		Slowest: func() ([]slowest.Request, int64) {
			now := s.dispatcher.Now()
			return slow.List(now), now
		},
		Ready:  s.ready,
		Config: s.effective,
		Backup: func(ctx context.Context, dir string) (backup.Result, error) {
			return s.backups.Write(ctx, dir, s.store.checkpoint)
		},
	})
	if err != nil {
		return nil, cannotListen(err, "admin", "SPILLWAY_ADMIN_LISTEN", c.AdminListen)
	}
	opened = append(opened, s.admin.Close)

	s.data, err = server.Open(server.Options{
		Listen: c.Listen,
		Options: httpfront.Options{
			AcceptLoops:    c.AcceptLoops,
			MaxBodyBytes:   c.MaxBodyBytes,
			MaxConnections: c.MaxConnections, MaxConnectionsPerAddress: c.MaxConnectionsPerAddress,
			ReadTimeout:  c.ReadTimeout,
			WriteTimeout: c.WriteTimeout,
			IdleTimeout:  c.IdleTimeout,
			TLS:          tlsConfig,
			Logger:       log,
		},
		Dispatcher:    s.dispatcher,
		MaxKeyBytes:   c.MaxKeyBytes,
		MaxValueBytes: c.MaxValueBytes,
		MaxBatchBytes: c.MaxBatchBytes,
		Token:         secure.NewToken(c.DataToken),
		AllowedHosts:  c.AllowedHosts,
		CORSOrigins:   c.CORSOrigins, TrustRequestStart: c.TrustRequestStart == "true",
		Events:  server.Events{Answered: s.metrics.Answered, Asked: s.metrics.Asked, Left: s.metrics.Left, Served: s.records.served()},
		Tracer:  s.records.tracer(),
		Slowest: slow,
	})
	if err != nil {
		return nil, cannotListen(err, "data", "SPILLWAY_LISTEN", c.Listen)
	}
	s.metrics.Watch(s.records.watched(metrics.Sources{
		Gauge:        s.dispatcher.Gauge,
		Objective:    objective,
		Connections:  s.data.Connections,
		Writable:     s.store.Writable,
		Store:        s.store.stats,
		Dropped:      dropped,
		ReloadFailed: settings.failed.Load,
	}))
	addresses := map[string]string{"admin": s.admin.Addr().String(), "data": s.data.Addr().String()}
	s.addresses.Store(&addresses)
	s.notReady.Store(nil)
	// Not before both are bound: a start that fails says one line alone.
	sayListening(log, addresses)
	s.sayStart(built.Version, addresses["admin"])
	return s, nil
}

// weight returns the weights of clients as strategies ask for them: 0 stands for 1.
func weight(of map[string]int) func(string) int {
	if len(of) == 0 {
		return nil
	}
	return func(client string) int { return of[client] }
}

// unblocked lets writes go on that were held back. The store calls it at any time.
func (s *service) unblocked() {
	if d := s.waiting.Load(); d != nil {
		d.Unblock()
	}
}

// ready returns nil if the service is ready, or why it is not.
func (s *service) ready() error {
	if reason := s.notReady.Load(); reason != nil {
		return *reason
	}
	return s.store.Writable()
}

// effective returns the configuration that is in force.
func (s *service) effective() any {
	addresses := map[string]string{}
	if bound := s.addresses.Load(); bound != nil {
		addresses = *bound
	}
	return effective(s.now.Load(), s.tuner.Now(), addresses)
}

// maxCommits is how many batches may be on their way to the disk.
func maxCommits(workers int) int {
	if workers == 0 { // their number is learned
		workers = 2 * runtime.GOMAXPROCS(0) // as many as there are by default
	}
	return 4 * workers
}

// tunable is the queue of the service.
type tunable struct {
	*dispatch.Dispatcher
	executor *executor.Executor
	split    bool
}

// SetWorkers is tuning.Queue's.
func (t tunable) SetWorkers(n int) error {
	if t.split {
		return tuning.ErrSplit
	}
	if n == 0 {
		if err := t.Learn(concurrency.Options{Max: mostLearned}); err != nil {
			return err
		}
	} else {
		t.Resize(n)
	}
	t.executor.SetMaxCommits(maxCommits(n))
	return nil
}

// change makes what can change live that of inv, or nothing.
func (s *service) change(inv *config.Invocation) (undone []string, err error) {
	c := &inv.Config
	if undone, err = s.tune(s.tuner, inv); err != nil {
		return nil, err
	}
	s.data.SetLimits(httpfront.Limits{
		MaxBodyBytes:   c.MaxBodyBytes,
		MaxConnections: c.MaxConnections, MaxConnectionsPerAddress: c.MaxConnectionsPerAddress,
		ReadTimeout: c.ReadTimeout, WriteTimeout: c.WriteTimeout, IdleTimeout: c.IdleTimeout,
	}, c.MaxValueBytes, c.MaxBatchBytes)
	s.admin.SetMaxConnections(c.AdminMaxConnections)
	return undone, nil
}

// stop closes everything, from the data plane downwards and the admin plane
// last. The error says that not all went well.
func (s *service) stop() error {
	c := s.config()
	s.notReady.Store(&errDraining)
	if c.DrainDelay > 0 {
		s.log.Info("serving on until the drain begins, /readyz is 503", "delay", c.DrainDelay.String())
		time.Sleep(c.DrainDelay)
	}
	s.log.Info("draining", "timeout", c.DrainTimeout.String())
	ctx, cancel := context.WithTimeout(context.Background(), c.DrainTimeout)
	defer cancel()
	late := s.data.Drain(ctx)
	// Out of time, this sheds what waits, and their connections answer so.
	if err := s.dispatcher.Drain(ctx); err != nil {
		late = err
	}
	if late != nil {
		s.store.leave()
	}
	closed, backedUp := make(chan struct{}), make(chan struct{})
	go func() {
		s.backups.Close() // gives up the one that is being written
		close(backedUp)
	}()
	go func() {
		// These wait for what has been started.
		s.data.Close()
		s.dispatcher.Close()
		s.executor.Close()
		close(closed)
	}()
	timeout := time.NewTimer(stuck)
	defer timeout.Stop()
	select {
	case <-closed:
	case <-timeout.C:
		// Below what is still running the store cannot be closed.
		return errors.Join(fmt.Errorf("the store has not finished an operation %v after the drain time-out of %v, exiting without closing it", stuck, c.DrainTimeout), s.save())
	}
	select {
	case <-backedUp:
	case <-timeout.C:
		// It reads from the store, but all that was acknowledged can be saved.
		return errors.Join(fmt.Errorf("a backup does not end %v after the drain time-out of %v, exiting without closing the store", stuck, c.DrainTimeout), s.save())
	}
	err := s.store.Close()
	s.admin.Close()
	if late != nil {
		late = fmt.Errorf("not all requests were finished within the drain time-out of %v", c.DrainTimeout)
	}
	if err = errors.Join(late, err); err == nil {
		s.log.Info("stopped")
	}
	return err
}

// save makes durable what was acknowledged, if the disk does so in time.
func (s *service) save() error {
	saved := make(chan error, 1)
	go func() { saved <- s.store.sync() }()
	timeout := time.NewTimer(stuck)
	defer timeout.Stop()
	select {
	case err := <-saved:
		return err
	case <-timeout.C:
		return fmt.Errorf("the disk has not synced the log in %v: what was acknowledged since the last sync may be lost", stuck)
	}
}
