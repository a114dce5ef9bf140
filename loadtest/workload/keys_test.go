//go:build !race

package workload

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeys_UniformChoosesAllEquallyOften(t *testing.T) {
	t.Parallel()
	counts := make([]int, 100)
	for _, r := range take(Options{Keys: 100}, 100_000) {
		counts[r.Key]++
	}
	shares := make([]float64, len(counts))
	for i := range shares {
		shares[i] = 1.0 / float64(len(shares))
	}
	requireShares(t, shares, counts)
}

func TestKeys_SequentialBeginsAgain(t *testing.T) {
	t.Parallel()
	for i, r := range take(Options{Keys: 7, Distribution: Sequential}, 30) {
		require.EqualValues(t, i%7, r.Key)
	}
}

// zipfShares are the probabilities of the ranks, summed up as the law says.
func zipfShares(n int) []float64 {
	shares := make([]float64, n)
	var total float64
	for i := range shares {
		shares[i] = math.Pow(float64(i+1), -zipfExponent)
		total += shares[i]
	}
	for i := range shares {
		shares[i] /= total
	}
	return shares
}

func TestZipf_FollowsItsLaw(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 10, 1000} {
		k := newKeys(Zipf, uint64(n), rand.New(rand.NewPCG(1, uint64(n))))
		counts := make([]int, n)
		for range 300_000 {
			counts[k.zipf.Uint64()]++
		}
		requireShares(t, zipfShares(n), counts)
	}
}

// Of many ranks, which cannot be counted one by one, the shares of decades are
// compared.
func TestZipf_FollowsItsLawOverManyRanks(t *testing.T) {
	t.Parallel()
	const n = 1_000_000
	k := newKeys(Zipf, n, rand.New(rand.NewPCG(1, 2)))
	counts, shares := make([]int, 6), make([]float64, 6)
	decade := func(rank int) int { return min(5, int(math.Log10(float64(rank+1)))) }
	for rank, share := range zipfShares(n) {
		shares[decade(rank)] += share
	}
	for range 300_000 {
		counts[decade(int(k.zipf.Uint64()))]++
	}
	requireShares(t, shares, counts)
	// And as many as there may be are no trouble.
	k = newKeys(Zipf, 1e12, rand.New(rand.NewPCG(1, 2)))
	for range 10_000 {
		require.Less(t, k.zipf.Uint64(), uint64(1e12))
	}
}

func TestKeys_ZipfScattersAllRanks(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{1, 2, 3, 4, 5, 7, 64, 1000, 4095, 4096, 4097, 100_000} {
		k := newKeys(Zipf, n, nil)
		seen := make([]bool, n)
		for rank := range n {
			key := k.scatter(rank)
			if key >= n || seen[key] {
				t.Fatalf("rank %d has the key %d of %d, seen already or too large", rank, key, n)
			}
			seen[key] = true
		}
	}
	// The hundred most popular keys are spread over all: in no tenth are none, or
	// so many as only neighbours would be.
	k := newKeys(Zipf, 100_000, nil)
	tenths := make([]int, 10)
	for rank := range uint64(100) {
		tenths[k.scatter(rank)/10_000]++
	}
	for _, n := range tenths {
		require.Greater(t, n, 1)
		require.Less(t, n, 25)
	}
}

func TestKeys_LatestReadsWhatWasWrittenLast(t *testing.T) {
	t.Parallel()
	const keys = 1000
	newest := uint64(keys - 1)
	counts := make([]int, keys)
	for _, r := range take(Options{Keys: keys, Distribution: Latest, Mix: Mix{Put: 1, Get: 8, Scan: 1}}, 300_000) {
		if r.Op == Put {
			newest++
			require.Equal(t, newest, r.Key, "a put appends the next key")
			continue
		}
		if r.Key > newest {
			t.Fatalf("request %d reads key %d, which nobody has written", r.Seq, r.Key)
		}
		counts[newest-r.Key]++
	}
	requireShares(t, zipfShares(keys), counts)
}
