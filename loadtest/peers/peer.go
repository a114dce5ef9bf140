package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

// Names lists the peers.
var Names = []string{"bare", "plain", "nethttp"}

// path is the only one that the peers know.
const path = "/v0/entity"

// Options say what a peer is.
type Options struct {
	// Name is one of Names.
	Name string
	// Dir is the data folder. It is made if it is not there.
	Dir string
	// Sync says that a write is synced before it is answered.
	Sync bool
	// CacheBytes is the size of the block cache.
	CacheBytes int64
}

// Serve answers at l until ctx ends or l fails. Then l is closed, requests under way are
// answered, for five seconds at most, and the store is closed. net/http's are cut off.
func Serve(ctx context.Context, l net.Listener, o Options) error {
	defer func() { _ = l.Close() }()
	kv := new(keyValue)
	if o.Name != "bare" {
		var err error
		if kv, err = openKeyValue(&o); err != nil {
			return err
		}
		defer func() { _ = kv.db.Close() }()
	}
	fast := func(h fasthttp.RequestHandler) error {
		s := &fasthttp.Server{Handler: h, CloseOnShutdown: true}
		return until(ctx, l, func() error { return s.Serve(l) }, s.ShutdownWithContext)
	}
	switch o.Name {
	case "bare":
		return fast(bare)
	case "plain":
		return fast(kv.plain)
	case "nethttp":
		s := &http.Server{Handler: kv.netHTTP(), ReadHeaderTimeout: 10 * time.Second}
		return until(ctx, l, func() error { return s.Serve(l) }, func(context.Context) error { return s.Close() })
	default:
		return fmt.Errorf("there is no peer %q, choose one of %s", o.Name, strings.Join(Names, ", "))
	}
}

// until serves until ctx ends, and stops then.
func until(ctx context.Context, l net.Listener, serve func() error, stop func(context.Context) error) error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := stop(patience)
	_ = l.Close() // fasthttp leaves it open if it has not begun to serve
	if serving := <-served; !errors.Is(serving, http.ErrServerClosed) && !errors.Is(serving, net.ErrClosed) {
		err = errors.Join(err, serving)
	}
	return err
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
