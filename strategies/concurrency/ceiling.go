package concurrency

import (
	"math"
	"time"
)

// ceiling is the most that may run because of how long requests take in the resource. If that is
// much of the objective, the resource is overloaded, whoever overloads it. More at once may well
// bring more to this learner then, but at the cost of others before the same resource, of which
// it knows nothing. The ceiling falls by a part and rises by a number, as TCP's window does, so
// that learners that see the same delay come to have as many (Chiu and Jain 1989).
//
// Where requests take as long with few at once, they are long, and the objective short: then a
// low ceiling would help nobody. So it does not fall before they take longer than they did.
type ceiling struct {
	objective func() time.Duration // nil if there is none
	most      float64              // requests at once
	shortest  float64              // nanoseconds that requests took at least, of late
}

const (
	ceilingPart   = 0.25 // of the objective is too long: the rest is for what waits in front
	ceilingTimes  = 1.5  // times the shortest is longer: hands that are all busy, and half as many wait
	ceilingForget = 1.01 // times, in a block, the shortest grows: work may change
	ceilingFall   = 0.8  // times what was allowed, in a block in which requests take too long
	ceilingRise   = 0.25 // times its root, in another: 16 again after some 24 blocks
)

func newCeiling(objective func() time.Duration) ceiling {
	return ceiling{objective: objective, most: math.Inf(1), shortest: math.Inf(1)}
}

// follow follows a block of that limit, of late with that mean service time in nanoseconds.
func (c *ceiling) follow(service float64, limit int) {
	if c.objective == nil {
		return
	}
	objective := c.objective()
	c.shortest = min(c.shortest*ceilingForget, service)
	switch {
	case objective <= 0:
		c.most = math.Inf(1)
	case service > max(ceilingPart*float64(objective), ceilingTimes*c.shortest):
		c.most = max(1, ceilingFall*min(c.most, float64(limit)))
	default:
		c.most += ceilingRise * math.Sqrt(c.most)
	}
}
