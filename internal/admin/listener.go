package admin

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/socket"
)

// impatient is a listener that cuts off clients that take nothing of what they are sent for
// that time.
type impatient struct {
	net.Listener
	stall time.Duration
}

func (l impatient) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return socket.NewConn(nc, l.stall), nil
}

// connections bounds how many connections of an http.Server are open. The requests of a few
// beyond are refused, and the others are just closed.
type connections struct {
	most atomic.Int64 // may change at any time
	open atomic.Int64
}

// mostRefused is how many connections are open beyond the limit.
const mostRefused = 16

// beyond is the key under which the context of a connection tells that it is beyond the limit.
type beyond struct{}

// opened is for http.Server.ConnContext.
func (c *connections) opened(ctx context.Context, nc net.Conn) context.Context {
	n, most := c.open.Add(1), c.most.Load()
	if n > most+mostRefused {
		_ = nc.Close()
	}
	return context.WithValue(ctx, beyond{}, n > most)
}

// changed is for http.Server.ConnState.
func (c *connections) changed(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed { // none is hijacked
		c.open.Add(-1)
	}
}

// limited is the handler for connections that opened has seen.
func (c *connections) limited(within http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if is, _ := r.Context().Value(beyond{}).(bool); !is {
			within.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "too many connections to the admin plane are open, allowed by SPILLWAY_ADMIN_MAX_CONNECTIONS")
	})
}
