package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// While the store stalls, writes wait, with their deadlines and their clients' hang-ups
// noticed, and all reads are answered.
func TestStall_ReadsGoOn(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy)
		s.store.set("there", "value")
		s.store.stalled.Store(true)
		var writers []*client
		for i := range 6 { // more than there are workers
			c := s.dial()
			c.send(put(fmt.Sprint("k", i), "value"))
			writers = append(writers, c)
			s.waiting(i + 1)
		}
		reader := s.dial()
		require.Equal(t, 200, reader.do(get("/v0/entity?id=there")).status)
		require.Equal(t, "there\nvalue", reader.do(get("/v0/entities?start=a")).body)

		late := s.dial()
		late.send("PUT /v0/entity?id=late" + host + "Spillway-Timeout-Ms: 20\nContent-Length: 5\n\nvalue")
		a := late.read("PUT")
		require.Equal(t, 504, a.status)
		require.Equal(t, "expired", a.header.Get("Spillway-Shed"))
		gone := s.dial()
		gone.send(put("gone", "value"))
		s.waiting(7)
		require.NoError(t, gone.conn.SetLinger(0))
		require.NoError(t, gone.conn.Close())
		s.requireShed(strategies.ReasonExpired, strategies.ReasonAbandoned)
		require.Equal(t, 200, reader.do(get("/v0/entity?id=there")).status)

		s.store.stalled.Store(false)
		s.dispatcher.Unblock()
		for _, c := range writers {
			require.Equal(t, 201, c.read("PUT").status)
		}
		for _, key := range []string{"late", "gone"} {
			_, ok := s.store.get(key)
			require.False(t, ok, key)
		}
	})
}

// While a sync hangs, reads of what it does not concern are answered, and those of
// what it does wait for it.
func TestHungSync_ReadsGoOn(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		s := serve(t, strategy, func(o *setup) {
			o.queue.Capacity = 64
			o.queue.Objective = new(strategies.Objective) // a slow machine makes nobody late
			require.NoError(t, o.queue.Objective.Set(strategies.NoObjective))
		})
		s.store.set("there", "value")
		goOn := s.store.hang()
		defer goOn()
		var writers []*client
		for i := range 21 {
			c := s.dial()
			c.send(put(fmt.Sprint("k", i), "value"))
			writers = append(writers, c)
		}
		var applied string
		eventually(t, func() bool {
			for i := range writers {
				applied = fmt.Sprint("k", i)
				if _, ok := s.store.get(applied); ok {
					return true
				}
			}
			return false
		}, "a write is applied")
		reader, concerned := s.dial(), s.dial()
		for range 3 {
			require.Equal(t, 200, reader.do(get("/v0/entity?id=there")).status)
			require.Equal(t, "there\nvalue", reader.do(get("/v0/entities?start=t")).body)
		}
		concerned.send(get("/v0/entity?id=" + applied))
		require.Equal(t, 200, reader.do(get("/v0/entity?id=there")).status)
		require.Zero(t, concerned.r.Buffered())
		goOn()
		require.Equal(t, 200, concerned.read("GET").status)
		for _, c := range writers {
			require.Equal(t, 201, c.read("PUT").status)
		}
	})
}
