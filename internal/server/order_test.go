package server

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/strategies"
)

// What clients say of their requests decides about their order, under the
// strategies that look at it.
func TestWaiting_InTheOrderThatClientsAskFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		strategy string
		headers  [3]string // of the requests a, b and c, which arrive in this order
		want     string
	}{
		{"priority", [3]string{"Spillway-Priority: 4\n", "", "Spillway-Priority: 0\n"}, "cba"},
		// Priority is the standard's name for the same, and ours wins.
		{"priority", [3]string{"Priority: u=4, i\n", "Priority: u=9\n", "Priority: i, u=0\n"}, "cba"},
		{"priority", [3]string{"Spillway-Priority: 5\nPriority: u=0\n", "Priority: u=1\nPriority: u=4\n", ""}, "cba"},
		{"edf", [3]string{"", "Spillway-Timeout-Ms: 1800000\n", "Spillway-Timeout-Ms: 600000\n"}, "cba"},
		{"fair", [3]string{"Spillway-Client: x\n", "Spillway-Client: x\n", "Spillway-Client: y\n"}, "acb"},
		// Who does not say counts by its address. So does the request that keeps the worker busy, and pays for it.
		{"fair", [3]string{"", "Spillway-Client: 127.0.0.1\n", "Spillway-Client: y\n"}, "cab"},
		{"fifo", [3]string{"Spillway-Priority: 7\nSpillway-Client: x\n", "Spillway-Client: x\n", "Spillway-Timeout-Ms: 600000\n"}, "abc"},
	} {
		t.Run(tc.strategy, func(t *testing.T) {
			t.Parallel()
			b := serveBusy(t, tc.strategy)
			clients, gates := map[string]*client{}, map[string]func(){}
			for i, header := range tc.headers {
				key := string(rune('a' + i))
				gates[key] = b.store.block(key)
				t.Cleanup(gates[key])
				clients[key] = b.dial()
				clients[key].send("GET /v0/entity?id=" + key + host + header + "\n")
				b.waiting(1 + i)
			}
			b.free()
			for _, want := range strings.Split(tc.want, "") {
				require.Equal(t, want, <-b.store.arrived)
				gates[want]()
				require.Equal(t, 404, clients[want].read("GET").status)
			}
		})
	}
}

// A client that has more waiting than its share makes room for others, and is
// told why.
func TestWaiting_OverItsShare(t *testing.T) {
	t.Parallel()
	b := serveBusy(t, "fair", func(o *setup) { o.queue.Capacity = 3 })
	send := func(client string) *client {
		c := b.dial()
		c.send("GET /v0/entity?id=a" + host + "Spillway-Client: " + client + "\n\n")
		return c
	}
	modest := send("modest")
	b.waiting(1)
	greedy := send("greedy")
	b.waiting(2)
	second := send("greedy")
	b.waiting(3)
	third := send("another")
	a := greedy.read("GET")
	require.Equal(t, 503, a.status)
	require.Equal(t, "fair", a.header.Get("Spillway-Shed"))
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.Contains(t, a.body, "more requests waiting than its share")
	b.free()
	greedy.requireOpen()
	for _, c := range []*client{modest, second, third} {
		require.Equal(t, 404, c.read("GET").status)
	}
	b.requireShed(strategies.ReasonFair)
}

// Retry-After is the time in which the queue drains, in seconds, rounded up.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		drain time.Duration
		want  int
	}{
		{0, 1}, {1, 1}, {time.Second, 1}, {time.Second + 1, 2}, {2 * time.Second, 2},
		{29*time.Second + 1, 30}, {30 * time.Second, 30}, {30*time.Second + 1, 30}, {24 * time.Hour, 30},
	} {
		require.Equal(t, tc.want, refusal.Seconds(tc.drain), tc.drain)
	}
}
