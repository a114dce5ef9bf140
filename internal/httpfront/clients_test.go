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
			Idle: func() bool { return f.Connections() == 0 && f.Bodies() == 0 && len(f.writers) == 0 },
		}
	})
}

func TestSlowClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fronttest.NewPipes()
		f := serve(t, func(o *Options, l *net.Listener) { *l, o.ReadTimeout = p, 10*time.Second })
		fronttest.Slow(t, "/", 10*time.Second, p.Dial)
		f.Close()
	})
}
