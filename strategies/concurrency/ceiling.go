package concurrency

import (
	"math"
	"time"
)

// ceiling is the most that may run because of how long requests take in the resource. If that is
// much of the objective, the resource is overloaded, whoever overloads it. More at once may well
// bring more to this learner then, but at the cost of others before the same resource, of which
// it knows nothing. The ceiling falls by a part. It rises by a quarter of its root, which is the
// larger part the smaller it is. So learners that see the same delay come to have as many, as by
// TCP's additive increase (Chiu and Jain 1989); other powers: Bansal and Balakrishnan 2001.
//
// Where requests take as long with few at once, they are long, and the objective short: then a
// low ceiling would help nobody. So it does not fall before they take longer than they did. Each fall
// also raises what they did by the same part, up to half of the objective: if they take as long with fewer at
// once, they soon count as long by themselves, and the ceiling rises again.
type ceiling struct {
	objective func() time.Duration // nil if there is none
	most      float64              // requests at once
	shortest  float64              // how long requests took at least, of late: a logarithm of nanoseconds
}

const (
	ceilingPart   = 0.15  // of the objective is too long: the rest is for what waits in front
	ceilingLonger = 0.4   // more than the shortest, a logarithm, is longer: half as long again
	ceilingForget = 0.005 // more, in a slot, the shortest becomes, as work may change
	ceilingLate   = 0.001 // the same while that is more
	ceilingUsual  = 0.5   // of the objective is the longest that is taken for normal soon
	ceilingFall   = 0.8   // times what was allowed, in a slot in which requests take too long
	ceilingRise   = 0.25  // times its root, in another: from 1 to 16 in some 24 slots
)

func newCeiling(objective func() time.Duration) ceiling {
	return ceiling{objective: objective, most: math.Inf(1), shortest: math.Inf(1)}
}

// follow is told how long requests took in a slot, a logarithm, with its standard error, and the middle of the limits
// that were compared.
func (c *ceiling) follow(took, deviation, center float64) {
	if c.objective == nil {
		return
	}
	objective := float64(c.objective())
	c.shortest = min(c.shortest, took+deviation)
	switch {
	case objective <= 0:
		c.most = math.Inf(1)
	case took-deviation > max(math.Log(ceilingPart*objective), c.shortest+ceilingLonger):
		c.most = max(1, ceilingFall*min(c.most, center))
		if c.shortest < math.Log(ceilingUsual*objective) {
			c.shortest -= math.Log(ceilingFall)
		} else {
			c.shortest += ceilingLate
		}
	default:
		c.shortest += ceilingForget
		c.most += ceilingRise * math.Sqrt(c.most)
	}
}
