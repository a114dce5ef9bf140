package workload

import (
	"math/bits"
	"math/rand/v2"
)

// Distribution is how keys are chosen.
type Distribution uint8

const (
	// Uniform chooses every key equally often.
	Uniform Distribution = iota
	// Zipf chooses few keys very often and most of them rarely: the n-th most
	// popular in proportion to 1/n^1.01. The popular ones are scattered over all keys.
	Zipf
	// Sequential goes through the keys in their order, and begins again.
	Sequential
	// Latest writes new keys and reads those best that were written last, as
	// YCSB's workload D does.
	Latest
)

var distributionNames = []string{"uniform", "zipf", "sequential", "latest"}

// UnmarshalText takes a name.
func (d *Distribution) UnmarshalText(text []byte) error {
	return choose(d, distributionNames, "key distribution", text)
}

const zipfExponent = 1.01

// keys chooses keys.
type keys struct {
	kind   Distribution
	n      uint64 // how many there are
	seq    uint64 // how many have been chosen
	newest uint64 // how many have been written beyond the n
	random *rand.Rand
	zipf   *rand.Zipf
	half   uint // bits of half a scattered number
	mask   uint64
}

func newKeys(kind Distribution, n uint64, random *rand.Rand) keys {
	half := uint(bits.Len64(n-1)+1) / 2
	return keys{kind: kind, n: n, random: random, zipf: rand.NewZipf(random, zipfExponent, 1, n-1), half: half, mask: 1<<half - 1}
}

// next chooses the key of the next request.
func (k *keys) next(write bool) uint64 {
	k.seq++
	switch k.kind {
	case Zipf:
		return k.scatter(k.zipf.Uint64())
	case Sequential:
		return (k.seq - 1) % k.n
	case Latest:
		if write {
			k.newest++
			return k.n + k.newest - 1
		}
		return k.n + k.newest - 1 - k.zipf.Uint64()
	default:
		return k.random.Uint64N(k.n)
	}
}

// scatter maps the numbers below n to themselves, one to one, so that neighbours
// end far apart: a Feistel network over the next power of four, walked until it
// falls below n.
func (k *keys) scatter(x uint64) uint64 {
	if k.half == 0 {
		return x
	}
	for {
		left, right := x>>k.half, x&k.mask
		for round := range uint64(3) {
			h := (right + round + 1) * 0x9e3779b97f4a7c15
			left, right = right, left^(h>>32)&k.mask
		}
		if x = left<<k.half | right; x < k.n {
			return x
		}
	}
}
