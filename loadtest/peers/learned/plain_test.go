package learned

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
)

// plain is the law that one would write first, as a yardstick for those that know more: it regresses the
// elasticity of service time on how many run, over neighbouring blocks of requests with a few more and a few
// less, and goes up while service time grows by a smaller part than what runs.
//
//	state    it moves on                                  the limit
//	start    to dither, once service takes half as long   doubles in each block
//	         again as in the first block
//	dither   never                                        is the center times or over plainApart, in turn
//
// Its guard is that of BBR: a block with too many drops bounds what is in flight, and the bound is probed upwards
// after each without (Cardwell et al., "BBRv2", IETF 104, 2019).
type plain struct {
	dithers bool
	center  float64 // between the two limits
	bound   float64 // the guard's
	limit   int

	// Of the block: when it began, the requests that began and ended in it, those dropped and those that
	// found others waiting, and the sums of their service times and of how many ran.
	began                        int64
	n, dropped, waited, sum, ran float64

	shortest float64 // mean service time of the first block
	// The logarithms of how many ran and of the service time in the block before, if there is one.
	before bool
	x, y   float64
	// Sums over pairs of blocks, of which each counts for less than the next: the pairs, and the products of the
	// differences.
	pairs, xx, xy, yy float64
}

const (
	plainFirst  = 4    // the first limit
	plainMost   = 1e4  // the last
	plainBlock  = 2    // requests of a block for each that may run, and
	plainLeast  = 32   // at least
	plainStart  = 1.5  // times as long as in the first block, and the start is over
	plainApart  = 1.25 // over the center is the higher limit
	plainKeep   = 0.9  // of what is known is kept from pair to pair
	plainTarget = 0.7  // the elasticity aimed at: beyond it a tenth more that run bring less than a thirtieth
	plainGain   = 0.3  // by which the logarithm of the center follows how far the elasticity is from that
	plainSure   = 1    // standard errors of it are taken for chance
	plainDrops  = 0.5  // of a block dropped is too many
	plainCut    = 0.7  // times the limit is the bound then, as BBR's beta
	plainProbe  = 1.25 // times the bound after a block without, as BBR's probe
)

func newPlain() *plain {
	return &plain{center: plainFirst, bound: plainMost, limit: plainFirst}
}

func (p *plain) Limit() int { return p.limit }

func (p *plain) Ended(e sim.Ended) {
	if e.Began < p.began {
		return
	}
	p.n++
	p.sum += float64(max(1, e.Now-e.Began))
	p.ran += float64(e.Running)
	if e.Dropped {
		p.dropped++
	}
	if e.Waiting {
		p.waited++
	}
	if p.n < max(plainLeast, plainBlock*float64(p.limit)) {
		return
	}
	p.block()
	p.began, p.n, p.dropped, p.waited, p.sum, p.ran = e.Now, 0, 0, 0, 0, 0
}

// block ends a block, and chooses the limit of the next.
func (p *plain) block() {
	took := p.sum / p.n
	if p.shortest == 0 {
		p.shortest = took
	}
	switch {
	case p.dropped > plainDrops*p.n:
		p.bound = max(1, plainCut*float64(p.limit))
		p.dithers, p.before = true, false
	case p.waited < p.n/2: // what runs is what comes, not the limit
		p.before = false
		return
	default:
		p.bound = min(plainProbe*p.bound, plainMost)
		p.learn(math.Log(p.ran/p.n), math.Log(took))
	}
	switch {
	case !p.dithers && took > plainStart*p.shortest:
		p.dithers, p.before, p.center = true, false, p.center/2
	case !p.dithers:
		p.center *= 2
	}
	p.center = max(1, min(p.center, p.bound))
	n := p.center
	if p.dithers {
		if n *= plainApart; float64(p.limit) > p.center {
			n = p.center / plainApart
		}
	}
	// Of few, the two differ by one at least.
	n = min(n, p.bound)
	if p.limit = max(1, int(math.Round(n))); n > p.center && p.limit == int(p.center) {
		p.limit++
	}
}

// learn is told of a block, and moves the center by what the pairs say.
func (p *plain) learn(x, y float64) {
	dx, dy := x-p.x, y-p.y
	pair := p.before && p.dithers
	p.x, p.y, p.before = x, y, true
	if !pair {
		return
	}
	p.pairs = plainKeep*p.pairs + 1
	p.xx, p.xy, p.yy = plainKeep*p.xx+dx*dx, plainKeep*p.xy+dx*dy, plainKeep*p.yy+dy*dy
	if p.pairs < 2 || p.xx == 0 {
		return
	}
	elasticity := p.xy / p.xx
	residual := max(0, p.yy-elasticity*p.xy) / (p.pairs - 1)
	away := plainTarget - elasticity
	if chance := plainSure * math.Sqrt(residual/p.xx); math.Abs(away) > chance {
		p.center *= math.Exp(plainGain * max(-1, min(away, 1)))
	}
}

// It comes to about as many as there are hands, and stays at one that does not help.
func TestPlain_Learns(t *testing.T) {
	t.Parallel()
	for _, hands := range []int{4, 16, 100} {
		law := newPlain()
		r := sim.Unknown{
			Resource: sim.Resource{Work: sim.Constant(10 * time.Millisecond), Hands: hands}, Load: 2, Seed: 1, Limiter: law,
		}.Run()
		require.Greater(t, r.Goodput, 0.85*r.Rate, "%d hands, mean limit %.0f", hands, r.Limit)
		require.Less(t, r.Limit, 3*float64(hands))
	}
	law := newPlain()
	for now := int64(1e9); now < 2e9; now += 1e6 {
		law.Ended(sim.Ended{Now: now, Began: now - 1e6, Running: law.Limit(), Waiting: true, Dropped: true})
	}
	require.Equal(t, 1, law.Limit(), "all is dropped")
}
