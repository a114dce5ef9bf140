package httpfront

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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

// A client that leaves while others wait for it to take its answer is cut off at once, though it has
// ended its side alone, which fails no write; one whose answer nobody waits for has its time.
func TestExchange_HurryLeft(t *testing.T) {
	t.Parallel()
	leave := func(x *Exchange) { x.conn.notify(halfGone) } // as hangups does
	hurry := func(x *Exchange) { x.Hurry(true) }
	ease := func(x *Exchange) { x.Hurry(false) }
	for name, tt := range map[string]struct {
		then []func(*Exchange)
		cut  bool
	}{
		"leaves while others wait": {[]func(*Exchange){hurry, leave}, true},
		"has left before":          {[]func(*Exchange){leave, hurry}, true},
		"others waited":            {[]func(*Exchange){hurry, ease, leave}, false},
		"stays":                    {[]func(*Exchange){hurry, ease}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := fronttest.NewPipes()
				f := serve(t, func(o *Options, l *net.Listener) { *l, o.WriteTimeout = p, time.Hour })
				c := p.Dial()
				_, err := io.WriteString(c, "GET /run HTTP/1.1\r\nHost: x\r\n\r\n")
				require.NoError(t, err)
				x := <-f.held
				x.Watch(func() {})
				wrote := make(chan bool, 1)
				go func() { wrote <- x.WriteSlowly(make([]byte, 1<<20)) }()
				synctest.Wait()
				begun := time.Now()
				for _, happens := range tt.then {
					happens(x)
				}
				synctest.Wait()
				require.Len(t, wrote, map[bool]int{true: 1}[tt.cut])
				require.False(t, <-wrote)
				require.Equal(t, tt.cut, time.Since(begun) == 0)
				x.Unwatch()
				x.Done()
				require.NoError(t, c.Close())
			})
		})
	}
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
