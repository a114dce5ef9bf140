package httpfront

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
)

// Whenever a client leaves, in whichever way, nothing is left of it.
func TestVanishingClients(t *testing.T) {
	t.Parallel()
	fronttest.Vanish(t, func(t *testing.T) fronttest.Subject {
		t.Helper()
		f := serve(t)
		return fronttest.Subject{
			Addr: f.Addr().String(), Quick: "/", Long: "/value/33554432",
			Hold: func(_ *testing.T, running bool) (target string, there, release func()) {
				var x *Exchange
				there = func() { x = <-f.held }
				if running {
					done := false
					return "/run", there, func() {
						if !done {
							x.Done()
						}
						done = true
					}
				}
				return "/hold", there, func() {} // it is given up
			},
			Told: f.statuses,
			Idle: func() bool { return f.Connections() == 0 && f.Bodies() == 0 && len(f.turns) == 0 },
		}
	})
}

// pipes is a listener whose connections are in memory, so that time can be virtual.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.ended); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func TestSlowClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		f := serve(t, func(o *Options, l *net.Listener) { *l, o.ReadTimeout = p, 10*time.Second })
		fronttest.Slow(t, "/", 10*time.Second, func() net.Conn {
			mine, theirs := net.Pipe()
			p.conns <- theirs
			return mine
		})
		f.Close()
	})
}
