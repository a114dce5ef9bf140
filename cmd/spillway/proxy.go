package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/internal/admin"
	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/internal/logging"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/proxy"
	"github.com/spillway-go/spillway/internal/proxy/rules"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/tuning"
	"github.com/spillway-go/spillway/internal/version"
)

// serveProxy runs the proxy as serve does the service.
func serveProxy(ctx context.Context, inv config.Invocation, settings *settings, memory int64, stderr *logging.Writer) error {
	p, err := prepare(ctx, &inv, settings, memory, 0, stderr)
	if err != nil {
		return err
	}
	defer p.close()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	done := make(chan error, 1)
	go func() { done <- proxyLifetime(p.ctx, p.settings, stderr.Dropped) }()
	return p.untilStopped(done, func() error { return errSecondSignal })
}

// collectAt is how far the heap grows, in percent, before it is collected: what lives of it
// is so little that it would be collected hundreds of times a second. The limit on memory
// holds all the same.
const collectAt = 400

// proxying is the running proxy.
type proxying struct {
	*settings
	tuner    *tuning.Tuner
	metrics  *metrics.Metrics
	records  *records
	notReady atomic.Pointer[error] // why it is not ready, if it is not for its upstream
	admin    *admin.Server
	data     *proxy.Server
}

// proxyLifetime starts the proxy, waits for the end of ctx and stops the proxy.
func proxyLifetime(ctx context.Context, settings *settings, dropped func() uint64) error {
	p := &proxying{settings: settings}
	defer func() { p.records.close() }()
	if err := p.start(dropped); err != nil {
		return err
	}
	go settings.follow(ctx, p.change)
	<-ctx.Done()
	return p.stop()
}

func (p *proxying) start(dropped func() uint64) (err error) {
	inv := p.now.Load()
	c, f := &inv.Config, &inv.Proxy
	p.notReady.Store(&errStarting)
	tlsConfig, err := secure.TLS(c.TLSCert, c.TLSKey, p.log)
	if err != nil {
		return err
	}
	upstreams, err := rules.Upstreams(f.Upstream)
	if err != nil {
		return err
	}
	built := version.Get()
	m := metrics.New(metrics.Options{Version: built.Version, Commit: built.Commit, Proxy: true, Routes: f.Routes.Names()})
	p.metrics = m
	epoch := time.Now()
	var running atomic.Pointer[proxy.Server] // requests come before Open has returned
	if p.records, err = p.openRecords("spillway-proxy", epoch, func() int {
		if s := running.Load(); s != nil {
			return s.Gauge().Depth
		}
		return 0
	}); err != nil {
		return err
	}
	slow := new(slowest.Recorder)
	o := changeable(inv)
	o.Listen, o.TLS, o.Upstreams, o.AcceptLoops, o.Logger = c.Listen, tlsConfig, upstreams, c.AcceptLoops, p.log
	o.Strategy, o.Capacity, o.Concurrency, o.Objective = c.Strategy, c.QueueCapacity, int(c.Workers), time.Duration(c.SLO)
	o.Weight = weight(rules.Weights(c.FairWeights))
	if c.Mode == config.ModeObserve {
		o.Mode = admission.Observe
	}
	o.Events = proxy.Events{
		Queue: m.Queue, Answered: m.Forwarded, Asked: m.Asked, Left: m.Left, Routed: m.Routed, Served: p.records.served(),
		Switched: func(from, to string) {
			m.Switched(from, to)
			p.log.Info("strategy switched", "from", from, "to", to)
		},
	}
	o.Slowest, o.Epoch, o.Tracer = slow, epoch, p.records.tracer()
	if p.data, err = proxy.Open(o); err != nil {
		return cannotListen(err, "data", "SPILLWAY_LISTEN", c.Listen)
	}
	running.Store(p.data)
	p.tuner = tuning.New(p.data, tuned(inv), p.log)
	p.admin, err = admin.Open(admin.Options{
		Listen: c.AdminListen, TLS: tlsConfig, Token: secure.NewToken(c.AdminToken), MaxConnections: c.AdminMaxConnections,
		Version: built.Version, Commit: built.Commit, Logger: p.log,
		Dispatcher: p.data, Tuner: p.tuner, Metrics: m.Handler(), Live: m.Live, Callers: m.Callers, ForgetCallers: m.ForgetCallers,
		Slowest: func() ([]slowest.Request, int64) {
			now := p.data.Now()
			return slow.List(now), now
		},
		Ready: p.ready, Config: p.effective,
	})
	if err != nil {
		p.data.Close()
		return cannotListen(err, "admin", "SPILLWAY_ADMIN_LISTEN", c.AdminListen)
	}
	p.data.Own(p.admin.Addr())
	m.Watch(p.records.watched(metrics.Sources{Gauge: p.data.Gauge, Upstreams: p.upstreams, Objective: p.data.Objective(), Connections: p.data.Connections, Dropped: dropped, ReloadFailed: p.failed.Load}))
	p.notReady.Store(nil)
	addresses := p.addresses()
	sayListening(p.log, addresses)
	status := p.data.Gauge()
	p.log.Info("proxying", "version", built.Version, "upstream", f.Upstream, "strategy", status.Strategy, "workers", c.Workers.Shown(),
		"capacity", status.Capacity, "mode", c.Mode, "console", consoleAt(c, addresses["admin"]))
	return nil
}

// upstreams returns the state of each upstream.
func (p *proxying) upstreams() (all []metrics.Upstream) {
	for _, u := range p.data.Upstreams() {
		all = append(all, metrics.Upstream{
			Name: u.Name, Up: u.Up, InFlight: u.InUse, Limit: u.Concurrency, Answered: u.Answered, Failed: u.Failed, Unwell: u.Unwell,
		})
	}
	return all
}

// addresses returns those that are bound, by plane, none while the proxy is starting.
func (p *proxying) addresses() map[string]string {
	if p.notReady.Load() == &errStarting {
		return map[string]string{}
	}
	return map[string]string{"admin": p.admin.Addr().String(), "data": p.data.Addr().String()}
}

// holds are the values of SPILLWAY_PROXY_HOLD.
var holds = map[string]proxy.Hold{
	"auto": proxy.HoldAuto, "body": proxy.HoldBody, "headers": proxy.HoldHeaders,
}

func (p *proxying) ready() error {
	if reason := p.notReady.Load(); reason != nil {
		return *reason
	}
	return p.data.Ready()
}

// effective returns the configuration that is in force.
func (p *proxying) effective() any {
	return effective(p.now.Load(), p.tuner.Now(), p.addresses())
}

// changeable are the options that can change while the proxy runs, but for those that are tuned.
func changeable(inv *config.Invocation) proxy.Options {
	c, f := &inv.Config, &inv.Proxy
	return proxy.Options{
		Client: f.Client, Priorities: f.Priority, Exempt: f.Exempt, Routes: f.Routes, Hold: holds[f.Hold], TrustHeaders: f.TrustHeaders == "true",
		Timeout: f.Timeout, ReadTimeout: c.ReadTimeout, WriteTimeout: c.WriteTimeout, IdleTimeout: c.IdleTimeout,
		BufferBytes: int(f.BufferBytes), MaxBodyBytes: c.MaxBodyBytes, MaxConnections: c.MaxConnections,
	}
}

// change makes what can change live that of inv, or nothing.
func (p *proxying) change(inv *config.Invocation) (undone []string, err error) {
	if undone, err = p.tune(p.tuner, inv); err != nil {
		return nil, err
	}
	p.metrics.SetRoutes(inv.Proxy.Routes.Names())
	p.data.Change(changeable(inv))
	p.admin.SetMaxConnections(inv.Config.AdminMaxConnections)
	return undone, nil
}

// stop closes everything, the admin plane last. The error says that not all requests
// were finished.
func (p *proxying) stop() error {
	c := p.config()
	p.notReady.Store(&errDraining)
	if c.DrainDelay > 0 {
		p.log.Info("serving on until the drain begins, /readyz is 503", "delay", c.DrainDelay.String())
		time.Sleep(c.DrainDelay)
	}
	p.log.Info("draining", "timeout", c.DrainTimeout.String())
	ctx, cancel := context.WithTimeout(context.Background(), c.DrainTimeout)
	defer cancel()
	late := p.data.Drain(ctx)
	p.data.Close()
	p.admin.Close()
	if late != nil {
		return fmt.Errorf("not all requests were finished within the drain time-out of %v", c.DrainTimeout)
	}
	p.log.Info("stopped")
	return nil
}
