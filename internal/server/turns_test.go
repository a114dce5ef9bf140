package server

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const longValue = 32 << 20 // more than sockets take

// Long answers are written in turns, and no others wait for them.
func TestTurns(t *testing.T) { //nolint:paralleltest // it looks at the goroutines of the process
	s := serve(t, "fifo")
	s.store.set("long", strings.Repeat("v", longPiece+1))
	for range cap(s.turns) {
		s.turns.take()
	}
	long := s.dial()
	long.send(get("/v0/entity?id=long"))
	eventually(t, func() bool { return goroutinesIn("server.turns.take") == 1 }, "it waits for its turn")
	for range 3 {
		s.dial().requireOpen()
	}
	require.Zero(t, long.r.Buffered())
	for range cap(s.turns) {
		s.turns.give()
	}
	require.Len(t, long.read("GET").body, longPiece+1)
	eventually(t, func() bool { return len(s.turns) == 0 }, "every turn is given back")
}

// A client that takes its time keeps no turn, whichever way it is connected, and has its
// answer in the end.
func TestTurns_SlowReader(t *testing.T) {
	t.Parallel()
	certificate, roots := selfSigned(t)
	for name, secured := range map[string]bool{"plain": false, "TLS": true} {
		for what, target := range map[string]string{"value": "/v0/entity?id=long", "range": "/v0/entities?start=long"} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				s := serve(t, "fifo", func(o *setup) {
					if secured {
						o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
					}
				})
				s.store.set("long", strings.Repeat("v", longValue))
				ask := func() *http.Response {
					var c net.Conn = s.dial().conn
					if secured {
						c = tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
					}
					_, err := io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n")
					require.NoError(t, err)
					a, err := http.ReadResponse(bufio.NewReader(c), nil)
					require.NoError(t, err)
					return a
				}
				var slow []*http.Response
				for range cap(s.turns) + 2 {
					slow = append(slow, ask())
				}
				eventually(t, func() bool { return len(s.turns) == 0 }, "all wait for their clients")
				for _, a := range append(slow, ask()) {
					n, err := io.Copy(io.Discard, a.Body)
					require.NoError(t, err)
					require.GreaterOrEqual(t, n, int64(longValue))
				}
			})
		}
	}
}
