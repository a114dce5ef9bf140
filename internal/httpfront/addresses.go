package httpfront

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// addresses counts the connections of each client, by its address: an IPv4 address,
// or a network of 64 bits, in which a client of IPv6 chooses its address.
type addresses struct {
	limit atomic.Int64 // of each; 0 for none, then nothing is counted
	mu    sync.Mutex
	open  map[netip.Prefix]int // above 0, so as many as connections at the most
}

// take counts another connection from that address, unless there are enough.
func (a *addresses) take(peer string) bool {
	client, limited := a.client(peer)
	if !limited {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if int64(a.open[client]) >= a.limit.Load() {
		return false
	}
	if a.open == nil {
		a.open = map[netip.Prefix]int{}
	}
	a.open[client]++
	return true
}

// give takes back what take has counted.
func (a *addresses) give(peer string) {
	client, limited := a.client(peer)
	if !limited {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// Connections that came before there was a limit are not counted.
	if a.open[client]--; a.open[client] <= 0 {
		delete(a.open, client)
	}
}

func (a *addresses) setLimit(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limit.Store(int64(n)); n == 0 {
		a.open = nil
	}
}

func (a *addresses) client(peer string) (_ netip.Prefix, limited bool) {
	address, err := netip.ParseAddr(peer)
	if a.limit.Load() == 0 || err != nil { // which no connection over TCP has
		return netip.Prefix{}, false
	}
	address = address.Unmap().WithZone("")
	client, err := address.Prefix(min(64, address.BitLen()))
	return client, err == nil
}
