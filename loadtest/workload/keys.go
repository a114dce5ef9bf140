package workload

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// Distribution is how keys are chosen.
type Distribution uint8

const (
	// Uniform chooses every key equally often.
	Uniform Distribution = iota
	// Zipf chooses few keys very often and most of them rarely: the n-th most
	// popular in proportion to 1/n^0.99, as YCSB does. The popular ones are
	// scattered over all keys.
	Zipf
	// Sequential goes through the keys in their order, and begins again.
	Sequential
	// Latest writes new keys and reads those best that were written last, as
	// YCSB's workload D does.
	Latest
)

var distributionNames = []string{"uniform", "zipf", "sequential", "latest"}

func (d Distribution) String() string { return nameOf(distributionNames, d) }

// MarshalText returns the name.
func (d Distribution) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText takes a name.
func (d *Distribution) UnmarshalText(text []byte) error {
	return choose(d, distributionNames, "key distribution", text)
}

const zipfExponent = 0.99

// keys chooses keys.
type keys struct {
	kind   Distribution
	n      uint64 // how many there are
	seq    uint64 // how many have been chosen
	newest uint64 // how many have been written beyond the n
	zipf   zipf
	half   uint // bits of half a scattered number
	mask   uint64
}

func newKeys(kind Distribution, n uint64) keys {
	half := uint(bits.Len64(n-1)+1) / 2
	return keys{kind: kind, n: n, zipf: newZipf(n, zipfExponent), half: half, mask: 1<<half - 1}
}

// next chooses the key of the next request.
func (k *keys) next(random *rand.Rand, write bool) uint64 {
	k.seq++
	switch k.kind {
	case Zipf:
		return k.scatter(k.zipf.next(random))
	case Sequential:
		return (k.seq - 1) % k.n
	case Latest:
		if write {
			k.newest++
			return k.n + k.newest - 1
		}
		return k.n + k.newest - 1 - k.zipf.next(random)
	default:
		return random.Uint64N(k.n)
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

// zipf draws ranks 0 to n-1 with probability in proportion to 1/(rank+1)^s, by
// rejection-inversion: W. Hörmann and G. Derflinger, "Rejection-inversion to
// generate variates from monotone discrete distributions", 1996. Unlike the
// standard library's it takes exponents below 1, and unlike YCSB's it need not
// sum over all ranks first.
type zipf struct {
	n, s             float64
	first, last, cut float64
}

func newZipf(n uint64, s float64) zipf {
	z := zipf{n: float64(n), s: s}
	z.first = z.area(1.5) - 1
	z.last = z.area(z.n + 0.5)
	z.cut = 2 - z.inverse(z.area(2.5)-z.weight(2))
	return z
}

func (z *zipf) weight(x float64) float64 { return math.Exp(-z.s * math.Log(x)) }

// area is the integral of the weight, up to a constant; inverse is its inverse.
func (z *zipf) area(x float64) float64 {
	return math.Expm1((1-z.s)*math.Log(x)) / (1 - z.s)
}

func (z *zipf) inverse(y float64) float64 {
	return math.Exp(math.Log1p(y*(1-z.s)) / (1 - z.s))
}

func (z *zipf) next(random *rand.Rand) uint64 {
	for {
		u := z.last + random.Float64()*(z.first-z.last)
		x := z.inverse(u)
		k := math.Round(min(max(x, 1), z.n))
		if k-x <= z.cut || u >= z.area(k+0.5)-z.weight(k) {
			return uint64(k) - 1
		}
	}
}
