package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// Names lists the peers.
var Names = []string{"bare", "plain", "nethttp", "limiter"}

// path is the only one that the peers know.
const path = "/v0/entity"

// Options say what a peer is.
type Options struct {
	// Name is one of Names.
	Name string
	// Listen and AdminListen are TCP addresses; port 0 chooses one.
	Listen, AdminListen string
	// Dir is the data folder. It is made if it is not there.
	Dir string
	// Sync says that a write is synced before it is answered.
	Sync bool
	// CacheBytes is the size of the block cache.
	CacheBytes int64
	// Delay is how long each request works before it reaches the store, as in
	// SPILLWAY_STORE_DELAY: 4ms, exp:4ms, or nothing. Workers is how many do so at
	// once, at least 1; without a delay it has no meaning.
	Delay   string
	Workers int
}

// Peer is a running server. All methods are safe for concurrent use.
type Peer struct {
	data, admin net.Listener
	failed      chan error
	serving     sync.WaitGroup
	stops       []func() error
}

// Open starts a peer, which serves until Close.
func Open(o Options) (_ *Peer, err error) {
	p := &Peer{failed: make(chan error, 2)}
	defer func() {
		if err != nil {
			_ = p.Close()
		}
	}()
	serve, err := p.server(&o)
	if err != nil {
		return nil, err
	}
	if p.data, err = net.Listen("tcp", o.Listen); err != nil {
		return nil, err
	}
	if p.admin, err = net.Listen("tcp", o.AdminListen); err != nil {
		_ = p.data.Close()
		return nil, err
	}
	admin := &http.Server{Handler: adminPlane(o.Name), ReadHeaderTimeout: 10 * time.Second}
	p.stops = append(p.stops, admin.Close)
	p.serving.Go(func() { p.failed <- serve(p.data) })
	p.serving.Go(func() { p.failed <- admin.Serve(p.admin) })
	return p, nil
}

// server opens the store, if the peer has one, and returns what serves. What
// has to be stopped is added to p.stops, in the order of opening.
func (p *Peer) server(o *Options) (serve func(net.Listener) error, err error) {
	if o.Name == "bare" {
		return p.fast(bare), nil
	}
	kv, err := openKeyValue(o)
	if err != nil {
		return nil, err
	}
	p.stops = append(p.stops, kv.close)
	switch o.Name {
	case "plain":
		return p.fast(kv.plain), nil
	case "nethttp":
		s := &http.Server{Handler: kv.netHTTP(), ReadHeaderTimeout: 10 * time.Second}
		p.stops = append(p.stops, s.Close)
		return s.Serve, nil
	case "limiter":
		return p.fast(limited(kv.plain)), nil
	default:
		return nil, fmt.Errorf("there is no peer %q, choose one of %s", o.Name, strings.Join(Names, ", "))
	}
}

// fast serves with fasthttp, as it comes.
func (p *Peer) fast(h fasthttp.RequestHandler) func(net.Listener) error {
	s := &fasthttp.Server{Handler: h, CloseOnShutdown: true}
	p.stops = append(p.stops, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := s.ShutdownWithContext(ctx)
		if p.data != nil {
			_ = p.data.Close() // which fasthttp leaves open if it has not begun to serve
		}
		return err
	})
	return s.Serve
}

// Addr is where the data plane listens.
func (p *Peer) Addr() net.Addr { return p.data.Addr() }

// AdminAddr is where the admin plane listens.
func (p *Peer) AdminAddr() net.Addr { return p.admin.Addr() }

// Failed yields why a plane no longer serves, if Close is not the reason.
func (p *Peer) Failed() <-chan error { return p.failed }

// Close stops serving and closes the store, in the reverse order of opening.
// Requests under way are answered first, for five seconds at most; net/http's
// are cut off. It must be called once.
func (p *Peer) Close() error {
	var errs []error
	for i := len(p.stops) - 1; i >= 0; i-- {
		errs = append(errs, p.stops[i]())
	}
	p.serving.Wait()
	return errors.Join(errs...)
}

// bareValue is what bare answers to every GET, as long as the values of the
// comparisons.
var bareValue = []byte(strings.Repeat("v", 100))

// bare answers at once. What it is asked for it does not look at, beyond the
// method.
func bare(ctx *fasthttp.RequestCtx) {
	switch {
	case ctx.IsGet():
		ctx.SetContentType("application/octet-stream")
		ctx.SetBody(bareValue)
	case ctx.IsPut():
		ctx.SetStatusCode(fasthttp.StatusCreated)
	case ctx.IsDelete():
		ctx.SetStatusCode(fasthttp.StatusAccepted)
	default:
		ctx.SetStatusCode(fasthttp.StatusMethodNotAllowed)
	}
}
