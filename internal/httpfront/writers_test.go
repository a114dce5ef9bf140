package httpfront

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
)

const longAnswer = 32 << 20 // more than sockets take

// Long answers are written by few at once, and no others wait for them.
func TestWriters(t *testing.T) { //nolint:paralleltest // it looks at the goroutines of the process
	f := serve(t)
	for range cap(f.writers) {
		f.writers.acquire()
	}
	long := f.dial()
	long.send("GET /value/" + strconv.Itoa(quantum+1) + " HTTP/1.1\r\nHost: x\r\n\r\n")
	eventually(t, func() bool { return goroutinesIn("httpfront.writers.acquire") == 1 }, "it waits for a writer")
	for range 3 {
		f.dial().requireOpen()
	}
	require.Zero(t, long.r.Buffered())
	for range cap(f.writers) {
		f.writers.release()
	}
	_, body := long.read("GET")
	require.Len(t, body, quantum+1)
	eventually(t, func() bool { return len(f.writers) == 0 }, "every writer is released")
}

// A client that takes its time holds no writer, whichever way it is connected, and has its
// answer in the end.
func TestWriters_SlowReader(t *testing.T) {
	t.Parallel()
	certificate, roots := fronttest.SelfSigned(t)
	for name, secured := range map[string]bool{"plain": false, "TLS": true} {
		for what, target := range map[string]string{"value": "/value/", "stream": "/stream/"} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				f := serve(t, func(o *Options, _ *net.Listener) {
					if secured {
						o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
					}
				})
				ask := func() *http.Response {
					var c net.Conn = f.dial().conn
					if secured {
						c = tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
					}
					_, err := io.WriteString(c, "GET "+target+strconv.Itoa(longAnswer)+" HTTP/1.1\r\nHost: x\r\n\r\n")
					require.NoError(t, err)
					a, err := http.ReadResponse(bufio.NewReader(c), nil)
					require.NoError(t, err)
					return a
				}
				var slow []*http.Response
				for range cap(f.writers) + 2 {
					slow = append(slow, ask())
				}
				eventually(t, func() bool { return len(f.writers) == 0 }, "all wait for their clients")
				for _, a := range append(slow, ask()) {
					n, err := io.Copy(io.Discard, a.Body)
					require.NoError(t, err)
					require.GreaterOrEqual(t, n, int64(longAnswer))
				}
			})
		}
	}
}
