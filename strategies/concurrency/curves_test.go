package concurrency

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Blocks are noisy, and how long requests take alone drifts, or steps in the midst. Each says
// little, but all of them together tell how many are best.
func TestCurves_LearnFromManyBlocks(t *testing.T) {
	t.Parallel()
	const (
		best   = 8.
		blocks = 250
		noise  = 0.15
		runs   = 50
	)
	hands := func(x float64) float64 { return max(0, x-math.Log(best)) }
	crosstalk := func(x float64) float64 { return math.Log1p(math.Exp(2*x) / best / best) }
	steady := func(int) float64 { return 0 }
	for _, c := range []struct {
		name   string
		longer func(x float64) float64
		alone  func(block int) float64
	}{
		{"hands", hands, steady},
		{"crosstalk", crosstalk, steady},
		{"slower and slower", hands, func(i int) float64 { return 0.01 * float64(i) }},
		{"faster and faster", hands, func(i int) float64 { return -0.01 * float64(i) }},
		{"faster by half at once", hands, func(i int) float64 { return -0.7 * float64(i/(blocks/2)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			good := 0
			for seed := range uint64(runs) {
				r := rand.New(rand.NewPCG(seed, 1))
				curves := newCurves(1, DefaultMax)
				curves.tried = 4
				var x, last float64
				for i := range blocks {
					y := c.longer(x) + c.alone(i) + noise*r.NormFloat64()
					if i == 0 {
						curves.start(x)
					} else {
						curves.learn(x, difference{rise: y - last, before: noise * noise, then: noise * noise})
						curves.tried = max(math.Exp(x), curves.tried*triedForget)
					}
					last = y
					_, n := curves.choose()
					x = math.Log(max(1, math.Round(min(n, doubling*curves.tried))))
				}
				if center, _ := curves.choose(); center > best/1.3 && center < best*1.3 {
					good++
				}
			}
			require.GreaterOrEqual(t, good, runs*7/10)
		})
	}
}

// What tells the difference may change from one block to the next. Where the one and the other
// stand apart by chance says nothing.
func TestCurves_GoOnWithAnotherPower(t *testing.T) {
	t.Parallel()
	const rise, variance = 0.2, 0.01
	curves := newCurves(1, 100)
	curves.start(math.Log(4))
	for i := range 100 {
		curves.learn(math.Log(4), difference{rise: rise * float64(1-2*(i%2)), before: variance, then: variance, by: i % 2})
	}
	// Each is compared with the one before it alone, of which it differs by chance. Followed over
	// all of them, the same would be taken for steps.
	before := curves.of[0].alone
	curves.learn(math.Log(4), difference{before: variance, then: variance, by: 0})
	require.InDelta(t, before, curves.of[0].alone, rise)
	require.InDelta(t, curves.y-curves.of[0].took, curves.of[0].alone, 1e-9, "it goes on from the last block")
}
