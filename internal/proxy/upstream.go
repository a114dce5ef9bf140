package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/internal/socket"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

const (
	// connectTimeout is how long a connection to the upstream may take to open.
	connectTimeout = 5 * time.Second
	// lookEvery passes between two looks for an upstream that is not there.
	lookEvery = time.Second
	// warnEvery passes between two warnings that an answer did not come.
	warnEvery = 10 * time.Second
	// idleUpstream is how long a connection to the upstream is kept for another request.
	idleUpstream = 30 * time.Second
)

// upstream is where requests are sent. It can be reached until a connection fails to open;
// then it is tried once a second, until one opens.
type upstream struct {
	url       *url.URL
	address   string
	transport *http.Transport
	log       *slog.Logger
	missing   atomic.Pointer[error] // why it cannot be reached, nil if it can
	stall     time.Duration
	troubled  atomic.Int64 // when warned of an answer that did not come, in nanoseconds of Unix time

	end     context.Context
	stop    context.CancelFunc
	looking sync.WaitGroup
	mu      sync.Mutex // held while looking begins or ends
	looks   bool
}

func openUpstream(o *Options) *upstream {
	port := o.Upstream.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[o.Upstream.Scheme]
	}
	u := &upstream{url: o.Upstream, address: net.JoinHostPort(o.Upstream.Hostname(), port), log: o.Logger, stall: o.Timeout}
	u.end, u.stop = context.WithCancel(context.Background())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	u.transport = &http.Transport{
		Protocols:   protocols,
		DialContext: u.dial,
		// One for each request that there may be at once.
		MaxIdleConnsPerHost:    max(cmp.Or(o.Concurrency, concurrency.DefaultMax), http.DefaultMaxIdleConnsPerHost),
		IdleConnTimeout:        idleUpstream,
		TLSHandshakeTimeout:    connectTimeout,
		ResponseHeaderTimeout:  o.Timeout,
		MaxResponseHeaderBytes: maxHead,
		DisableCompression:     true,
	}
	if err := u.try(); err != nil {
		u.lost(err)
	}
	return u
}

// dial opens a connection for a request.
func (u *upstream) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: connectTimeout}
	c, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		if ctx.Err() == nil {
			u.lost(err)
		}
		return nil, err
	}
	u.found()
	return socket.NewConn(c, u.stall), nil
}

// try opens a connection and closes it.
func (u *upstream) try() error {
	dialer := net.Dialer{Timeout: connectTimeout}
	c, err := dialer.DialContext(u.end, "tcp", u.address)
	if err != nil {
		return err
	}
	return c.Close()
}

// lost says that the upstream cannot be reached, and has it looked for.
func (u *upstream) lost(err error) {
	if cause, ok := errors.AsType[syscall.Errno](err); ok {
		err = cause
	}
	missing := fmt.Errorf("the upstream %s cannot be reached: %w", u.url, err)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.missing.Store(&missing)
	if u.looks || u.end.Err() != nil {
		return
	}
	u.looks = true
	u.log.Warn("the upstream cannot be reached; looking for it every second", "upstream", u.url.String(), "err", err)
	u.looking.Go(u.look)
}

func (u *upstream) found() {
	if u.missing.Load() != nil {
		u.missing.Store(nil)
	}
}

// noAnswer logs why an answer did not come. Where many do not, one in a while is a warning.
func (u *upstream) noAnswer(method string, err error, now time.Time) {
	level := slog.LevelDebug
	if last := u.troubled.Load(); now.UnixNano()-last >= int64(warnEvery) && u.troubled.CompareAndSwap(last, now.UnixNano()) {
		level = slog.LevelWarn
	}
	u.log.Log(u.end, level, "no answer from the upstream", "upstream", u.url.String(), "method", method, "err", err)
}

// look tries until the upstream is there.
func (u *upstream) look() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-u.end.Done():
			return
		}
		if u.missing.Load() != nil && u.try() != nil {
			continue
		}
		u.mu.Lock()
		u.found()
		u.looks = false
		u.mu.Unlock()
		u.log.Info("the upstream can be reached", "upstream", u.url.String())
		return
	}
}

func (u *upstream) ready() error {
	if err := u.missing.Load(); err != nil {
		return *err
	}
	return nil
}

func (u *upstream) close() {
	u.mu.Lock()
	u.stop()
	u.mu.Unlock()
	u.looking.Wait()
	u.transport.CloseIdleConnections()
}
