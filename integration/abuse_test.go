//go:build integration

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// attack is what an ill-behaved client does on one connection, again and again.
type attack struct {
	name string
	b    build
	env  []string
	// connections is how many do it at once.
	connections int
	run         conduct
}

// conduct is what is done once on a connection that has been opened for it, rng
// being that of the client. An error is of the service: something that it should
// not have done.
type conduct func(c *client, rng *rand.Rand, stop <-chan struct{}) error

const (
	headStart = "GET /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n"
	putStart  = "PUT /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n"
	wholeGet  = headStart + "\r\n"
)

// drip sends the beginning, and then one more piece every few milliseconds,
// until the service has answered, which must be with that status, and cuts the
// connection. It asks for the time-out to be short.
func drip(status int, begin string, piece func(i int) string) conduct {
	return func(c *client, _ *rand.Rand, _ <-chan struct{}) error {
		if _, err := io.WriteString(c.conn, begin); err != nil {
			return nil // as when it was cut before
		}
		sent := make(chan struct{})
		cut := make(chan struct{})
		go func() {
			defer close(sent)
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-cut:
					return
				case <-tick.C:
				}
				if _, err := io.WriteString(c.conn, piece(i)); err != nil {
					return
				}
			}
		}()
		defer func() {
			close(cut)
			_ = c.conn.SetWriteDeadline(time.Unix(1, 0))
			<-sent
		}()
		c.sent = append(c.sent, http.MethodPut)
		if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		a, err := c.receive()
		if err != nil {
			return fmt.Errorf("a slow client got no answer: %w", err)
		}
		if a.status == http.StatusContinue {
			c.sent = append(c.sent, http.MethodPut)
			if a, err = c.receive(); err != nil {
				return fmt.Errorf("a slow client got no answer after 100: %w", err)
			}
		}
		if a.status != status || !a.close {
			return fmt.Errorf("a slow client got %d (close %v), want %d and the end: %s", a.status, a.close, status, a.body)
		}
		return nil
	}
}

// unread sends requests and reads nothing, until it is cut off. The answers must
// be more than the buffers of two sockets hold.
func unread(request string) conduct {
	return func(c *client, _ *rand.Rand, _ <-chan struct{}) error {
		batch := []byte(strings.Repeat(request, 1000))
		if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		for {
			_, err := c.conn.Write(batch)
			switch {
			case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
				return nil
			case err != nil:
				return fmt.Errorf("a client that reads nothing was not cut off: %w", err)
			}
		}
	}
}

// throw sends bytes that are no request, and expects the connection to end.
func throw(message func(rng *rand.Rand) []byte) conduct {
	return func(c *client, rng *rand.Rand, _ <-chan struct{}) error {
		if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		_, _ = c.conn.Write(message(rng)) // it may be refused meanwhile
		_ = c.conn.(*net.TCPConn).CloseWrite()
		_, err := io.Copy(io.Discard, c.conn)
		var network net.Error
		if errors.As(err, &network) && network.Timeout() {
			return errors.New("the connection does not end")
		}
		return nil
	}
}

// hold keeps the connection open, after having sent something, until the others
// are done.
func hold(begin string) conduct {
	return func(c *client, _ *rand.Rand, stop <-chan struct{}) error {
		_, _ = io.WriteString(c.conn, begin)
		<-stop
		return nil
	}
}

func attacks() []attack {
	short := []string{
		"SPILLWAY_READ_TIMEOUT=1s", "SPILLWAY_WRITE_TIMEOUT=1s",
		"SPILLWAY_IDLE_TIMEOUT=10m", // for the good one, while all the others come
		// Nobody is turned away because there is much to do.
		"SPILLWAY_STRATEGY=fifo", "SPILLWAY_QUEUE_CAPACITY=65536",
	}
	// What ends by its length may not end by its time before, if this machine is slow.
	patient := []string{"SPILLWAY_READ_TIMEOUT=10m"}
	always := func(s string) func(int) string { return func(int) string { return s } }
	list := []attack{
		{name: "slow heads", connections: 50, run: drip(408, headStart, always("X"))},
		{name: "slow headers", connections: 50, run: drip(408, headStart, func(i int) string { return fmt.Sprintf("X-%d: y\r\n", i) })},
		{name: "slow bodies", connections: 50, run: drip(408, putStart+"Content-Length: 100000\r\n\r\n", always("v"))},
		{name: "slow bodies that asked first", connections: 50, run: drip(408, putStart+"Expect: 100-continue\r\nContent-Length: 100000\r\n\r\n", always("v"))},
		{name: "chunks without end", connections: 50, run: drip(408, putStart+"Transfer-Encoding: chunked\r\n\r\n", always("1\r\nv\r\n"))},
		{name: "extensions without end", connections: 50, env: patient, run: drip(400, putStart+"Transfer-Encoding: chunked\r\n\r\n1;", always(strings.Repeat("x", 1000)))},
		{name: "trailers without end", connections: 50, env: patient, run: drip(431, putStart+"Transfer-Encoding: chunked\r\n\r\n0\r\n", always("X: "+strings.Repeat("x", 1000)+"\r\n"))},
		{name: "headers without end", connections: 50, env: patient, run: drip(431, headStart, always("X: "+strings.Repeat("x", 1000)+"\r\n"))},
		{name: "a target without end", connections: 50, env: patient, run: drip(414, "GET /v0/entity?id=", always(strings.Repeat("x", 1000)))},
		{name: "requests whose answers nobody reads", connections: 10, run: unread("GET /v0/entity?id=a0 HTTP/1.1\r\nHost: x\r\n\r\n")},
		{name: "ranges that nobody reads", connections: 10, run: unread("GET /v0/entities?start=a HTTP/1.1\r\nHost: x\r\n\r\n")},
		{name: "requests that are refused and whose answers nobody reads", b: plain, connections: 2, run: unread("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")},
		{name: "noise", connections: 10, run: throw(func(rng *rand.Rand) []byte {
			b := make([]byte, 1+rng.IntN(20_000))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			return b
		})},
		{name: "other protocols", connections: 10, run: throw(func(rng *rand.Rand) []byte {
			all := []string{
				"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
				"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + strings.Repeat("\x5a", 194),
				"\x05\x01\x00", "SSH-2.0-OpenSSH_9.2\r\n", "*1\r\n$4\r\nPING\r\n", "\x00", "\r\n\r\n\r\n", "\n",
			}
			return []byte(all[rng.IntN(len(all))])
		})},
		{name: "halves of requests", connections: 10, run: throw(func(rng *rand.Rand) []byte {
			whole := putStart + "Content-Length: 5\r\n\r\nhello" + wholeGet
			return []byte(whole[:rng.IntN(len(whole))])
		})},
		{name: "resets", connections: 4, run: func(c *client, rng *rand.Rand, _ <-chan struct{}) error {
			whole := putStart + "Content-Length: 5\r\n\r\nhello" + strings.Repeat(wholeGet, 3)
			_, _ = io.WriteString(c.conn, whole[:rng.IntN(len(whole)+1)])
			return c.reset()
		}},
		{name: "new names", connections: 20, env: []string{"SPILLWAY_STRATEGY=fair"}, run: func(c *client, rng *rand.Rand, _ <-chan struct{}) error {
			for range 50 {
				if _, err := c.do(http.MethodGet, entity("a"), "", fmt.Sprintf("Spillway-Client: %0100x", rng.Uint64())); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "more connections than are allowed", connections: 400, env: []string{"SPILLWAY_MAX_CONNECTIONS=20"}, run: hold("")},
		{name: "more connections than are allowed, with requests", connections: 400, env: []string{"SPILLWAY_MAX_CONNECTIONS=20"}, run: hold(wholeGet)},
		// The race detector knows of 8,128 goroutines at most.
		{name: "idle connections", b: plain, connections: 10_000, run: hold("")},
		{name: "idle connections that have worked", b: plain, connections: 10_000, run: hold(wholeGet)},
	}
	for i := range list {
		list[i].env = slices.Concat(short, list[i].env)
		if list[i].b == nil {
			list[i].b = raced
		}
	}
	return list
}

// openFiles is how many files a process may have open, less some for other uses.
func openFiles(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	return int(min(limit.Max, 1<<20)) - 500
}

// Whatever some clients do, the others are served, all of them and rightly. What
// is left of the ill-behaved ones is cut off, and goes.
func TestAbuse_OthersAreServed(t *testing.T) {
	t.Parallel()
	seed := seedOr(t, rand.Uint64())
	t.Logf("run again with SPILLWAY_TORTURE_SEED=%d", seed)
	for _, tt := range attacks() {
		t.Run(tt.name, func(t *testing.T) {
			connections := tt.connections
			if most := openFiles(t); connections > most {
				t.Logf("%d connections rather than %d, for lack of descriptors", most, connections)
				connections = most
			}
			s := start(t, tt.b, tt.env...)
			good := s.dial()
			for i := range 200 { // for ranges
				a, err := good.do(http.MethodPut, entity(fmt.Sprint("a", i)), strings.Repeat("v", 5000))
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, a.status)
			}
			series := len(s.metrics())

			stop := make(chan struct{})
			var stopping sync.Once
			defer stopping.Do(func() { close(stop) })
			var begun sync.WaitGroup
			begun.Add(connections)
			attacked := make(chan error, 1)
			go func() {
				attacked <- concurrently(connections, func(i int) error {
					rng := rand.New(rand.NewPCG(seed, uint64(i)))
					first := sync.OnceFunc(begun.Done)
					defer first()
					for {
						c, err := dial(s.data)
						first()
						if errors.Is(err, syscall.EADDRNOTAVAIL) { // this machine has no port left for a while
							time.Sleep(10 * time.Millisecond)
							continue
						}
						if err != nil {
							return err
						}
						err = tt.run(c, rng, stop)
						c.close()
						if err != nil {
							return err
						}
						select {
						case <-stop:
							return nil
						default:
						}
					}
				})
			}()
			begun.Wait()
			for i := range 50 {
				key, value := entity("good"), fmt.Sprint("value", i)
				for _, step := range []struct {
					method, target, body string
					status               int
					want                 string
				}{
					{http.MethodPut, key, value, http.StatusCreated, ""},
					{http.MethodGet, key, "", http.StatusOK, value},
					{http.MethodGet, "/v0/entities?start=good&end=goodz", "", http.StatusOK, "good\n" + value},
					{http.MethodDelete, key, "", http.StatusAccepted, ""},
					{http.MethodGet, key, "", http.StatusNotFound, ""},
				} {
					a, err := good.do(step.method, step.target, step.body)
					require.NoError(t, err)
					require.Equal(t, step.status, a.status, a.body)
					require.Equal(t, step.want, a.body)
				}
			}
			stopping.Do(func() { close(stop) })
			require.NoError(t, <-attacked)
			s.eventually("their connections have gone", func() bool { return s.metrics().sum("spillway_connections") == 1 })
			// Codes and methods add a few series, clients must not.
			require.Less(t, len(s.metrics()), series+400)
			good.close()
			s.awaitConserved("fifo", "fair")
			s.stop()
		})
	}
}

// A hundred thousand requests in one breath are answered one after the other.
func TestAbuse_Pipeline(t *testing.T) {
	t.Parallel()
	const requests = 100_000
	s := start(t, raced, "SPILLWAY_READ_TIMEOUT=10m", "SPILLWAY_WRITE_TIMEOUT=10m")
	c := s.dial()
	a, err := c.do(http.MethodPut, entity("a"), "value")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, a.status)
	sent := make(chan error, 1)
	go func() {
		_, err := c.conn.Write(bytes.Repeat([]byte(wholeGet), requests))
		sent <- err
	}()
	require.NoError(t, c.conn.SetDeadline(time.Now().Add(2*patience)))
	for range requests {
		c.sent = append(c.sent, http.MethodGet)
		a, err := c.receive()
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, "value", a.body)
	}
	require.NoError(t, <-sent)
	s.stop()
}
