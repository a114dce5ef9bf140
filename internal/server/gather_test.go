package server

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// What comes while a sync hangs has begun and is not in the store. All of it is answered
// when the sync ends, and is there then, also if its client has gone, or has changed the
// strategy meanwhile.
func TestGather_WhateverBecomesOfClients(t *testing.T) {
	eachStrategy(t, func(t *testing.T, strategy string) {
		var started atomic.Int64
		s := serve(t, strategy, func(o *setup) {
			shed := o.queue.Events(strategies.Spec{}).Shed
			o.queue.Events = func(strategies.Spec) dispatch.Events {
				return dispatch.Events{Submitted: func() {}, Started: func(time.Duration) { started.Add(1) }, Shed: shed}
			}
		})
		begun := func(n int64) {
			t.Helper()
			eventually(t, func() bool { return started.Load() == n }, fmt.Sprint(n, " have begun"))
		}
		goOn := s.store.hang()
		defer goOn()
		first := s.dial()
		first.send(put("first", "value"))
		eventually(t, func() bool { _, ok := s.store.get("first"); return ok }, "the first is applied")

		plain, pipelined, expiring, gone, halfGone, batch, other := s.dial(), s.dial(), s.dial(), s.dial(), s.dial(), s.dial(), s.dial()
		plain.send(put("plain", "value"))
		pipelined.sendRaw(strings.ReplaceAll("PUT /v0/entity?id=a"+host+"Content-Length: 1\n\n", "\n", "\r\n") + "1" +
			strings.ReplaceAll("PUT /v0/entity?id=a"+host+"Content-Length: 1\n\n", "\n", "\r\n") + "2" +
			strings.ReplaceAll("DELETE /v0/entity?id=first"+host+"\n", "\n", "\r\n") +
			strings.ReplaceAll(get("/v0/entity?id=a"), "\n", "\r\n"))
		expiring.send("PUT /v0/entity?id=expiring" + host + "Spillway-Ttl: 100\nContent-Length: 5\n\nvalue")
		gone.send(put("gone", "value"))
		halfGone.send(put("half", "value"))
		lines := `{"op":"put","key":"eA==","value":"eA=="}` + "\n" + `{"op":"delete","key":"Zmlyc3Q="}` + "\n"
		batch.send("POST /v0/entities" + host + "Content-Type: application/x-ndjson\n" + fmt.Sprintf("Content-Length: %d\n\n", len(lines)) + lines)
		begun(7)
		require.NoError(t, gone.conn.SetLinger(0))
		require.NoError(t, gone.conn.Close())
		require.NoError(t, halfGone.conn.CloseWrite())
		for _, key := range []string{"plain", "a", "expiring", "gone", "half", "x"} {
			_, ok := s.store.get(key)
			require.False(t, ok, key)
		}
		require.Equal(t, 404, other.do(get("/v0/entity?id=plain")).status)
		require.Empty(t, other.do(get("/v0/entities?start=g")).body)
		require.NoError(t, s.dispatcher.Switch("lifo"))
		require.NoError(t, s.dispatcher.Switch(strategy))
		conditional := s.dial()
		conditional.send("PUT /v0/entity?id=conditional" + host + "If-None-Match: *\nContent-Length: 5\n\nvalue")
		eventually(t, func() bool { _, ok := s.store.get("conditional"); return ok }, "what looks at the store does not gather")

		drained := make(chan error, 1)
		go func() { drained <- s.dispatcher.Drain(context.Background()) }()
		goOn()
		for _, c := range []*client{first, plain, expiring, halfGone, conditional} {
			require.Equal(t, 201, c.read("PUT").status)
		}
		require.Equal(t, 200, batch.read("POST").status)
		for _, want := range []struct {
			method string
			status int
		}{{"PUT", 201}, {"PUT", 201}, {"DELETE", 202}, {"GET", 200}} {
			require.Equal(t, want.status, pipelined.read(want.method).status)
		}
		require.NoError(t, <-drained)
		for key, want := range map[string]string{"plain": "value", "a": "2", "expiring": "value", "gone": "value", "half": "value", "x": "x"} {
			got, ok := s.store.get(key)
			require.True(t, ok, key)
			require.Equal(t, want, got)
		}
		require.Equal(t, "100", other.do(get("/v0/entity?id=expiring")).header.Get("Spillway-Ttl"))
		s.requireShed()
	})
}
