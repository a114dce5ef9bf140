package sim

import (
	"hash/fnv"
	"math/rand/v2"
)

// The ways in which a load balancer chooses the node of a request. Outstanding
// requests are those that wait and those that are being served.
const (
	// RoundRobin takes one node after the other.
	RoundRobin = "round-robin"
	// Random takes any.
	Random = "random"
	// LeastOutstanding takes the node with the fewest outstanding requests, in
	// turn where several have as few.
	LeastOutstanding = "least-outstanding"
	// PowerOfTwo draws two nodes, and takes the one with fewer outstanding requests.
	PowerOfTwo = "power-of-two"
	// ClientHash takes the node that the hash of the client's name says: all that a
	// client sends, what it sends again included, goes to one.
	ClientHash = "client-hash"
)

// Balances are all of them, the default first.
var Balances = []string{RoundRobin, Random, LeastOutstanding, PowerOfTwo, ClientHash}

// balancer chooses where requests go.
type balancer struct {
	how    string
	turn   int
	random *rand.Rand
}

// choose returns which of n takes a request of that client, and each attempt anew. Outstanding tells how
// many requests one has.
func (b *balancer) choose(n int, client string, outstanding func(i int) int) int {
	switch b.how {
	case Random:
		return b.random.IntN(n)
	case PowerOfTwo:
		first := b.random.IntN(n)
		second := b.random.IntN(n - 1)
		if second >= first {
			second++
		}
		if outstanding(second) < outstanding(first) {
			return second
		}
		return first
	case ClientHash:
		return int(hashOf(client) % uint64(n))
	}
	best := b.turn % n
	if b.how == LeastOutstanding {
		for i := range n {
			if at := (b.turn + i) % n; outstanding(at) < outstanding(best) {
				best = at
			}
		}
	}
	b.turn = best + 1
	return best
}

// hashOf is the same in every process, and mixed, as the names of clients differ in
// their last digits.
func hashOf(name string) uint64 {
	f := fnv.New64a()
	_, _ = f.Write([]byte(name)) // does not fail
	h := f.Sum64()
	return h ^ h>>32
}
