package concurrency

import "math"

// hypotheses are of how service times grow with how many run. Their shapes are those of a queue with
// several servers and of the universal scalability law (Gunther), each with every best number, a tenth
// apart. How long requests take alone drifts, and each hypothesis follows it by a Kalman filter (the
// local level model; Kalman 1960). So only differences between slots tell one from another. Numbers and
// times are logarithms here.
type hypotheses struct {
	of     []hypothesis // ordered by the best number, then by shape
	known  bool         // there was a slot to compare with
	noise  float64      // variance of alone
	excess float64      // the variance of slots in parts of that expected
}

type hypothesis struct {
	best     float64 // how many do most
	alone    float64 // how long requests take alone
	deviance float64 // minus twice the logarithm of the posterior, from that of the most probable
	weight   float64 // the posterior, but for a factor
}

// shape is how many times as long requests take with r times the best number at once:
// max(1, r)^servers·(1 + serial·r + crosstalk·r²).
type shape struct {
	servers, serial, crosstalk float64
	// more is what a number too large by a part loses, where one too small by it loses one.
	more float64
	// above is how far above the best number the middle of two limits should be, in parts of their
	// distance: where fewer lose more than more do, the lower should not be below.
	above float64
}

var shapes = [...]shape{
	{servers: 1, more: 0.6, above: 0.4},
	{servers: 1, serial: 0.2, more: 0.35, above: 0.4},
	{servers: 1, crosstalk: 0.15, more: 0.4, above: 0.4},
	{crosstalk: 1, more: 1, above: 0},
}

const (
	grid        = 0.1  // from one best number to the next
	prior       = 0.2  // a best number is less probable by that power of it
	worth       = 0.92 // of the logarithm that requests take longer by: more that bring a twelfth of their part are not worth it
	drift       = 0.03 // standard deviation of the service time alone, from slot to slot
	jumpSure    = 3.   // standard deviations that are no drift but another level
	jumpKeep    = 0.4  // of what is known is left then
	surprise    = 25.  // the most that one comparison counts
	memory      = 15.  // the most that all do, so that a change is soon seen
	excessFirst = 8.   // at first, as noise is not known
	excessMost  = 16.  // at most
	excessOver  = 16.  // comparisons of which it is the mean
)

func newHypotheses(least, most int) hypotheses {
	h := hypotheses{excess: excessFirst}
	for best := math.Log(float64(least)); ; best += grid {
		for range shapes {
			h.of = append(h.of, hypothesis{best: best})
		}
		if best > math.Log(float64(most)) {
			return h
		}
	}
}

// expect begins anew with a normal prior.
func (h *hypotheses) expect(best, deviation float64) {
	h.known = false
	for i := range h.of {
		r := (h.of[i].best - best) / deviation
		h.of[i].deviance = min(r*r, memory)
	}
}

// longer returns by how much longer than alone requests take with x at once, under a hypothesis.
func (h *hypotheses) longer(i int, x float64) float64 {
	s, over := &shapes[i%len(shapes)], x-h.of[i].best
	took := s.servers * max(0, over)
	if s.serial+s.crosstalk > 0 {
		r := math.Exp(over)
		took += math.Log1p(r * (s.serial + s.crosstalk*r))
	}
	return worth * took
}

// learn is told how long requests took with x at once, and the variance of that.
func (h *hypotheses) learn(x, took, variance float64) {
	if !h.known {
		h.known, h.noise = true, variance
		for i := range h.of {
			h.of[i].alone = took - h.longer(i, x)
		}
		return
	}
	best := 0
	for i := range h.of {
		if h.of[i].deviance < h.of[best].deviance {
			best = i
		}
	}
	off := took - h.longer(best, x) - h.of[best].alone
	variance *= h.excess
	all := h.noise + drift*drift + variance
	gain := 1 - variance/max(all, off*off/(jumpSure*jumpSure))
	h.excess += (min(off*off/all, surprise)*h.excess - h.excess) / excessOver
	h.excess = min(max(h.excess, 1), excessMost)
	h.noise = gain * variance
	least := math.Inf(1)
	for i := range h.of {
		v := &h.of[i]
		r := took - h.longer(i, x) - v.alone
		v.alone += gain * r
		v.deviance += min(r*r/all, surprise)
		least = min(least, v.deviance)
	}
	keep := 1.
	if off*off > jumpSure*jumpSure*all { // the resource is another
		keep = jumpKeep
	}
	for i := range h.of {
		h.of[i].deviance = keep * min(h.of[i].deviance-least, memory)
	}
}

// choose returns the number that loses least in the mean of all hypotheses, as the middle of two limits
// that far apart. It is the quantile of the newsvendor problem: as much too many as too few, each by
// what it loses.
func (h *hypotheses) choose(apart func(x float64) float64) float64 {
	var all, few, above float64
	for i := range h.of {
		v := &h.of[i]
		v.weight = math.Exp(-v.deviance/2 - prior*v.best)
		all += v.weight
		above += v.weight * shapes[i%len(shapes)].above
	}
	few = all
	for i := range h.of {
		v := &h.of[i]
		by := v.weight * (1 + shapes[i%len(shapes)].more)
		if few < by {
			x := v.best + grid*(few/by-0.5)
			return x + above/all*apart(x)
		}
		few -= by
	}
	return h.of[len(h.of)-1].best
}

// quantile returns the number below which the best is with that probability.
func (h *hypotheses) quantile(part float64) float64 {
	all := 0.
	for i := range h.of {
		all += h.of[i].weight
	}
	for i := range h.of {
		if h.of[i].weight >= part*all {
			return h.of[i].best
		}
		part -= h.of[i].weight / all
	}
	return h.of[len(h.of)-1].best
}
