package server

import (
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// busy is a service whose only worker is kept busy by a client of its own.
type busy struct {
	*service
	worker  *client
	unblock func()
}

func oneWorker(o *setup) { o.queue.Workers, o.queue.MaxBatch = 1, 1 }

func serveBusy(t *testing.T, strategy string, change ...func(*setup)) *busy {
	t.Helper()
	s := serve(t, strategy, append([]func(*setup){oneWorker}, change...)...)
	b := &busy{service: s, worker: s.dial(), unblock: s.store.block("slow")}
	t.Cleanup(b.unblock)
	b.worker.send(get("/v0/entity?id=slow"))
	require.Equal(t, "slow", <-s.store.arrived)
	return b
}

// free lets the worker go on.
func (b *busy) free() {
	b.t.Helper()
	b.unblock()
	require.Equal(b.t, 404, b.worker.read("GET").status)
}

// A request that waits is answered 504 at its deadline, while the worker is
// still busy, and its operation never reaches the store.
func TestWaiting_Expires(t *testing.T) {
	eachQueue(t, func(t *testing.T, strategy string) {
		b := serveBusy(t, strategy)
		c := b.dial()
		c.send("PUT /v0/entity?id=a" + host + "Spillway-Timeout-Ms: 20\nContent-Length: 5\n\nvalue")
		a := c.read("PUT")
		require.Equal(t, 504, a.status)
		require.Equal(t, "expired", a.header.Get("Spillway-Shed"))
		require.Empty(t, a.header.Get("Retry-After"))
		b.requireShed(strategies.ReasonExpired)
		b.requireEvents(event{strategy, "PUT", 504, true})
		c.send("HEAD /v0/entity?id=a" + host + "Spillway-Timeout-Ms: 1\n\n")
		require.Equal(t, 504, c.read("HEAD").status)
		b.free()
		require.Equal(t, 404, c.do(get("/v0/entity?id=a")).status)
		c.requireOpen()
	})
}

// A request that was started in time gets its true answer, however late.
func TestWaiting_StartedTasksGetTheirTrueAnswer(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy)
		unblock := s.store.block("a")
		defer unblock()
		c := s.dial()
		c.send("PUT /v0/entity?id=a" + host + "Spillway-Timeout-Ms: 60000\nContent-Length: 5\n\nvalue")
		<-s.store.arrived
		// The deadline must not pass before the task is started, so it is far,
		// and another one with the same parker passes meanwhile.
		unblock()
		require.Equal(t, 201, c.read("PUT").status)
		v, _ := s.store.get("a")
		require.Equal(t, "value", v)
		c.requireOpen()
	})
}

// whenFull asks a discipline of the strategy what becomes of the second of two tasks
// of one client where there is room for one: the reason to shed one of them,
// ReasonNone if none is, and whether that is the first.
func whenFull(t *testing.T, strategy string) (reason strategies.Reason, displaces bool) {
	t.Helper()
	spec, err := strategies.Lookup(strategy)
	require.NoError(t, err)
	q := spec.New(strategies.Config{Capacity: 1, Workers: 1})
	task := func() *strategies.Task { return &strategies.Task{Client: "127.0.0.1"} }
	require.Equal(t, strategies.Verdict{}, q.Push(task(), 0))
	switch v := q.Push(task(), 0); {
	case v.Displaced != nil:
		return v.Displacement(), true
	case v.Outcome == strategies.TurnedAway:
		return v.Reason, false
	}
	return strategies.ReasonNone, false
}

// When the queue is full, somebody is told so at once: with the reason, when to
// come again, and on a connection that goes on.
func TestWaiting_Full(t *testing.T) {
	eachQueue(t, func(t *testing.T, strategy string) {
		want, displaces := whenFull(t, strategy)
		if want == strategies.ReasonNone {
			return // nobody is turned away
		}
		b := serveBusy(t, strategy, func(o *setup) { o.queue.Capacity = 1 })
		first, second := b.dial(), b.dial()
		first.send(put("a", "first"))
		b.waiting(1)
		second.send(put("a", "second"))
		shed, served := second, first
		if displaces {
			shed, served = first, second
		}
		a := shed.read("PUT")
		require.Equal(t, 503, a.status)
		require.Equal(t, want.String(), a.header.Get("Spillway-Shed"))
		require.Equal(t, "1", a.header.Get("Retry-After"))
		require.False(t, a.close)
		b.requireShed(want)
		b.free()
		require.Equal(t, 201, served.read("PUT").status)
		shed.requireOpen()
	})
}

// A client that resets its connection while its request waits is not worked for.
func TestWaiting_Reset(t *testing.T) {
	eachQueue(t, func(t *testing.T, strategy string) {
		b := serveBusy(t, strategy)
		c := b.dial()
		c.send(put("a", "value"))
		b.waiting(1)
		require.NoError(t, c.conn.SetLinger(0))
		require.NoError(t, c.conn.Close())
		b.requireShed(strategies.ReasonAbandoned)
		b.requireEvents(event{strategy, "PUT", 503, true})
		b.free()
		eventually(t, func() bool { return b.Connections() == 1 }, "the connection is gone")
		_, ok := b.store.get("a")
		require.False(t, ok)
	})
}

// One that resets it although it has sent further requests, neither.
func TestWaiting_ResetWithMorePending(t *testing.T) {
	t.Parallel()
	b := serveBusy(t, "fifo")
	c := b.dial()
	c.send(put("a", "value") + strings.ReplaceAll(get("/v0/entity?id=a"), "\n", "\r\n"))
	b.waiting(1)
	require.NoError(t, c.conn.SetLinger(0))
	require.NoError(t, c.conn.Close())
	b.requireShed(strategies.ReasonAbandoned)
	b.free()
}

// One that ends its side of the connection is told.
func TestWaiting_HalfClosed(t *testing.T) {
	eachQueue(t, func(t *testing.T, strategy string) {
		b := serveBusy(t, strategy)
		c := b.dial()
		c.send(put("a", "value"))
		b.waiting(1)
		require.NoError(t, c.conn.CloseWrite())
		a := c.read("PUT")
		require.Equal(t, 503, a.status)
		require.Equal(t, "abandoned", a.header.Get("Spillway-Shed"))
		require.True(t, a.close)
		c.requireClosed()
		b.requireShed(strategies.ReasonAbandoned)
		b.free()
	})
}

// One that ended its side before its request began to wait, too.
func TestWaiting_HalfClosedBefore(t *testing.T) {
	t.Parallel()
	left := make(chan time.Duration, 1)
	b := serveBusy(t, "fifo", func(o *setup) { o.Events.Left = func(after time.Duration) { left <- after } })
	c := b.dial()
	c.send(put("a", "value"))
	require.NoError(t, c.conn.CloseWrite())
	require.Equal(t, "abandoned", c.read("PUT").header.Get("Spillway-Shed"))
	require.Positive(t, <-left)
	b.free()
}

// One that has sent further requests waits for its answers, until only the last
// of them waits.
func TestWaiting_HalfClosedWithMorePending(t *testing.T) {
	t.Parallel()
	b := serveBusy(t, "fifo")
	other := b.store.block("other")
	defer other()
	c := b.dial()
	// The second does not fit into the reader beside the first: that part is in
	// the socket.
	c.send(put("a", "value") + strings.ReplaceAll(get("/v0/entity?id=a&x="+strings.Repeat("x", 6000)), "\n", "\r\n") +
		strings.ReplaceAll(get("/v0/entity?id=other"), "\n", "\r\n"))
	b.waiting(1)
	require.NoError(t, c.conn.CloseWrite())
	third := b.dial()
	third.send(get("/v0/entity?id=a"))
	b.waiting(2)
	b.free()
	require.Equal(t, 201, c.read("PUT").status)
	require.Equal(t, 200, c.read("GET").status)
	// A request that runs is not abandoned, unlike one that has to wait, as the worker may
	// not have ended its turn yet.
	eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.store.arrived) == 1 || len(b.shed) == 1
	}, "it runs, or is given up")
	if len(b.store.arrived) == 1 {
		require.Equal(t, "other", <-b.store.arrived)
		other()
		require.Equal(t, 404, c.read("GET").status)
		b.requireShed()
	} else {
		require.Equal(t, "abandoned", c.read("GET").header.Get("Spillway-Shed"))
	}
	c.requireClosed()
	require.Equal(t, 200, third.read("GET").status)
}

// Requests that arrive together are answered in order, and no answer waits for
// a request behind it.
func TestPipelining(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy)
		unblock := s.store.block("slow")
		defer unblock()
		c := s.dial()
		var text strings.Builder
		for _, r := range []string{
			put("a", "1"), get("/v0/entity?id=a"), get("/v0/entity?id=b"), "HEAD /v0/entity?id=a" + host + "\n",
			get("/bad"), put("b", strings.Repeat("v", 9000)), get("/v0/entity?id=b"), get("/v0/entities?start=a"),
			get("/v0/entity?id=b"), get("/v0/entity?id=slow"), put("c", "last"),
		} {
			head, body, _ := strings.Cut(r, "\n\n")
			text.WriteString(strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body)
		}
		c.sendRaw(text.String())
		statuses := func(methods ...string) (all []int) {
			for _, m := range methods {
				all = append(all, c.read(m).status)
			}
			return all
		}
		require.Equal(t, []int{201, 200, 404, 200, 400, 201, 200, 200, 200},
			statuses("PUT", "GET", "GET", "HEAD", "GET", "PUT", "GET", "GET", "GET"))
		<-s.store.arrived
		unblock()
		require.Equal(t, []int{404, 201}, statuses("GET", "PUT"))
		c.requireOpen()
	})
}

// What cannot be known before the store says so is 503 or 500, with a detail
// that tells what became of the operation.
func TestStoreErrors(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy)
		for _, r := range []struct {
			err    error
			status int
			detail string
		}{
			{errTest, 500, "on fire"},
			{&fs.PathError{Op: "read", Path: "/srv/data/000007.sst", Err: errTest}, 500, `failed: \"read 000007.sst: the disk`},
			{errUnwritable, 503, "cannot write"},
			{errUnknown, 503, "outcome of the write is unknown"},
		} {
			s.store.failAt("a", r.err)
			c := s.dial()
			a := c.do(put("a", "value"))
			require.Equal(t, r.status, a.status)
			require.Contains(t, a.body, r.detail)
			require.Empty(t, a.header.Get("Spillway-Shed"))
			require.Equal(t, r.status, c.do(get("/v0/entity?id=a")).status)
			require.Equal(t, r.status, c.do(get("/v0/entities?start=a")).status)
			require.Equal(t, r.status, c.do("DELETE /v0/entity?id=a"+host+"\n").status)
			require.Equal(t, 404, c.do(get("/v0/entity?id=b")).status)
		}
	})
}

// A range of many turns is complete, and each entry is one chunk.
func TestRange_ManyTurns(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy)
		var want strings.Builder
		for i := range 40 {
			key, value := string(rune('A'+i)), strings.Repeat(string(rune('A'+i)), 50_000)
			s.store.set(key, value)
			want.WriteString(key + "\n" + value)
		}
		c := s.dial()
		a := c.do(get("/v0/entities?start=A"))
		require.NoError(t, a.broken)
		require.Equal(t, want.Len(), len(a.body))
		require.Equal(t, want.String(), a.body)
		c.requireOpen()
		a = c.do("GET /v0/entities?start=A HTTP/1.0\n\n")
		require.Equal(t, want.String(), a.body)
	})
}

// A failure after the header ends the connection without the last chunk.
func TestRange_FailsAfterTheHeader(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	for i := range 40 {
		s.store.set(string(rune('A'+i)), strings.Repeat("v", 50_000))
	}
	s.store.failAt("next:Z", errTest)
	c := s.dial()
	a := c.do(get("/v0/entities?start=A"))
	require.Equal(t, 200, a.status)
	require.Error(t, a.broken)
	c.requireClosed()
	s.requireEvents(event{"fifo", "GET", 500, false})
}

// A client that stops reading holds no worker, and is cut off when it has taken
// nothing for the write time-out.
func TestRange_SlowReader(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy, oneWorker, func(o *setup) { o.WriteTimeout = 100 * time.Millisecond })
		for i := range 600 {
			s.store.set(string(rune('A'+i)), strings.Repeat("v", 60_000))
		}
		slow := s.dial()
		slow.send(get("/v0/entities?start=A"))
		_, err := slow.r.Peek(1) // it has begun
		require.NoError(t, err)
		require.Equal(t, 404, s.dial().do(get("/v0/entity?id=none")).status)
		eventually(t, func() bool { return s.Connections() <= 1 }, "cut off")
		a, err := readAnswer(slow.r, http.MethodGet)
		if err == nil {
			err = a.broken
		}
		require.Error(t, err)
	})
}

// A client that goes in the middle of a range releases its snapshot.
func TestRange_ClientGoes(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	for i := range 600 {
		s.store.set(string(rune('A'+i)), strings.Repeat("v", 60_000))
	}
	c := s.dial()
	c.send(get("/v0/entities?start=A"))
	_, err := c.r.Peek(1)
	require.NoError(t, err)
	require.NoError(t, c.conn.SetLinger(0))
	require.NoError(t, c.conn.Close())
	eventually(t, func() bool { return s.Connections() == 0 }, "gone")
	eventually(t, func() bool { return s.store.open.Load() == 0 }, "released")
}

// A client that ends its side together with its request gets its answer, and
// then the end, not only after the idle time-out.
func TestHalfClosed_EndsAtOnce(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy, func(o *setup) { o.IdleTimeout = time.Hour })
		for range 200 {
			c := s.dial()
			require.NoError(t, c.conn.SetDeadline(time.Now().Add(time.Minute)))
			c.send(get("/v0/entity?id=a"))
			require.NoError(t, c.conn.CloseWrite())
			status := c.read("GET").status // it may have had to wait, and be abandoned
			require.Contains(t, []int{404, 503}, status)
			c.requireClosed()
			_ = c.conn.Close()
		}
	})
}
