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

// balancer chooses the node of each request.
type balancer struct {
	how    string
	nodes  []*node
	turn   int
	random *rand.Rand
}

// choose returns the node of a request of that client, and of each attempt anew.
func (b *balancer) choose(client string) *node {
	n := len(b.nodes)
	if n == 1 {
		return b.nodes[0]
	}
	switch b.how {
	case Random:
		return b.nodes[b.random.IntN(n)]
	case PowerOfTwo:
		first := b.random.IntN(n)
		second := b.random.IntN(n - 1)
		if second >= first {
			second++
		}
		if b.nodes[second].outstanding < b.nodes[first].outstanding {
			return b.nodes[second]
		}
		return b.nodes[first]
	case ClientHash:
		return b.nodes[hashOf(client)%uint64(n)]
	case LeastOutstanding:
		best := b.turn
		for i := range n {
			at := (b.turn + i) % n
			if b.nodes[at].outstanding < b.nodes[best].outstanding {
				best = at
			}
		}
		b.turn = (best + 1) % n
		return b.nodes[best]
	default:
		chosen := b.nodes[b.turn]
		b.turn = (b.turn + 1) % n
		return chosen
	}
}

// hashOf is the same in every process, and mixed, as the names of clients differ in
// their last digits.
func hashOf(name string) uint64 {
	f := fnv.New64a()
	_, _ = f.Write([]byte(name)) // does not fail
	h := f.Sum64()
	return h ^ h>>32
}
