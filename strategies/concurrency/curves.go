package concurrency

import "math"

// curves are hypotheses of how service times grow with how many run, each with how likely
// what was seen is under it. Their shapes are those of the universal scalability law
// (Gunther), and of a resource that works at so many and has the others wait inside:
//
//   - so many hands or cores: what is more waits, or shares them;
//   - crosstalk: each is slower by a part of the square of how many there are;
//   - cores, with some crosstalk;
//   - hands, with some work that only one can do at a time.
//
// Each shape comes with every best number, a tenth apart. How long requests take alone is
// another number for each curve, which drifts. It is followed by a filter (the local level
// model; Kalman 1960), so each block is compared with the few or many before it, as the
// noise demands. Numbers, times and rates are logarithms here, if nothing else is said.
type curves struct {
	of    []curve // ordered by the best number, then by shape
	tried float64 // the largest limit that was compared of late; no logarithm
	turns int     // choices
	step  int     // of the grid, that was the center

	excess float64 // the variance between blocks in parts of that expected; no logarithm

	y        float64 // how long requests took in the last block: the sum of all rises
	by       int     // what told the latest of these; none at first
	variance float64 // of curve.alone
	since    int     // blocks since one began to look for a shift
	at       float64 // how many ran in the last block
}

// curve is one of them.
type curve struct {
	best     float64 // how many do most
	slower   float64 // the factor of its crosstalk or of its serial work; no logarithm
	deviance float64 // minus twice its likelihood, from the likeliest curve's
	took     float64 // how many times as long requests took than alone, in the last block
	alone    float64 // how long they take alone, as it follows from the blocks so far
	soon     float64 // the mean of that over few blocks
	late     float64 // and over many
	weight   float64 // its probability, but for a factor
}

const (
	grid      = 0.11 // from one best number to the next
	shapes    = 4
	crosstalk = 0.15 // in the third shape
	serial    = 0.2  // in the fourth

	prior        = 0.2  // a curve is by that less probable for a larger best number
	drift        = 0.03 // by so much another time requests take alone, from block to block
	stepSure     = 3.   // standard errors that are a step of that
	devianceMost = 25   // of one comparison
	memory       = 45   // of all, so that a change is seen although much spoke against it
	excessMost   = 4
	excessOver   = 16   // comparisons
	doubtful     = 6    // the deviance that is added to numbers of which most were dropped
	hopeful      = 0.5  // the part of the deviance that is left where there seems to be room
	weightLeast  = 1e-6 // in parts of all; a curve of less weight is not asked

	doubling    = 2.   // the limit may be so many times what was tried
	triedForget = 0.8  // how fast that is forgotten
	latency     = 0.2  // what one more is a loss although as much is done, in parts of what one less is
	lowest      = 0.25 // the quantile of the best number from which limits are tried
	highest     = 0.93 // and to which
	fewest      = 4.   // but not so many times fewer than the center
	largest     = 1.6  // or more

	soonOver   = 3.  // blocks
	longOver   = 24. // blocks
	shiftSome  = 8   // blocks to see a shift
	shiftLeast = 0.4 // of the service time
	shiftSure  = 4.  // standard errors, too
	shiftLeft  = 0.4 // the part of the deviances that is left then
	shiftDoubt = 3.  // the deviance of numbers that are not less by as much as requests take longer
)

func newCurves(least, most int) curves {
	c := curves{excess: 1, by: none}
	for best := math.Log(float64(least)); ; best += grid {
		c.of = append(
			c.of,
			curve{best: best},
			curve{best: best, slower: math.Exp(-2 * best)},
			curve{best: best, slower: crosstalk * math.Exp(-2*best)},
			curve{best: best, slower: serial * math.Exp(-best)},
		)
		if best > math.Log(float64(most)) {
			return c
		}
	}
}

// longer returns how many times as long requests take with n at once than alone, where x
// is the logarithm of n.
func (v *curve) longer(shape int, x, n float64) float64 {
	switch shape {
	case 0:
		return max(0, x-v.best)
	case 1:
		return math.Log1p(v.slower * n * (n - 1))
	case 2:
		return max(0, x-v.best) + math.Log1p(v.slower*n*(n-1))
	default:
		return max(0, x-v.best) + math.Log1p(v.slower*(n-1))
	}
}

// losses are how much less is done with so many times the best number, by shape and step
// of the grid. More than is needed is a loss too: it waits inside, where it has no order.
var losses = func() (l [shapes][2*farthest + 1]float64) {
	for i := range l[0] {
		x := float64(i-farthest) * grid
		few, many := max(0, -x), latency*max(0, x)
		l[0][i] = few + many
		l[1][i] = math.Log((math.Exp(x) + math.Exp(-x)) / 2)
		l[2][i] = few + many + max(0, math.Log1p(crosstalk*math.Exp(2*x))-math.Log1p(crosstalk))
		l[3][i] = few + many + max(0, math.Log1p(serial*math.Exp(x))-math.Log1p(serial))
	}
	return l
}()

// farthest is how many steps of the grid there are at most: up to the largest int.
const farthest = 410

// none is what tells nothing yet.
const none = -1

// start notes how many ran in a block to which the next is compared.
func (c *curves) start(x float64) {
	n := max(1, math.Exp(x))
	for i := range c.of {
		v := &c.of[i]
		v.took = v.longer(i%shapes, x, n)
	}
	c.by, c.at = none, x
	c.settle()
}

// settle begins anew to look for a shift.
func (c *curves) settle() {
	c.since = 0
	for i := range c.of {
		v := &c.of[i]
		v.soon, v.late = c.y-v.took, c.y-v.took
	}
}

// learn is told how many ran in a block, and of its difference to the one before. It reports
// whether requests took less long than was foretold, by more than a standard error.
func (c *curves) learn(x float64, d difference) (room bool) {
	if d.by != c.by {
		c.by, c.variance = d.by, c.excess*d.before
		for i := range c.of {
			c.of[i].alone = c.y - c.of[i].took
		}
	}
	noise := c.excess * d.then
	variance := c.variance + c.excess*drift*drift + noise
	best := c.likeliest()
	n := max(1, math.Exp(x))
	c.y += d.rise
	c.at = x
	for i := range c.of {
		v := &c.of[i]
		v.took = v.longer(i%shapes, x, n)
		alone := c.y - v.took
		r := alone - v.alone
		v.deviance += min(r*r/variance, devianceMost)
		v.soon += (alone - v.soon) / soonOver
		v.late += (alone - v.late) / longOver
	}
	off := c.y - c.of[best].took - c.of[best].alone
	gain := 1 - noise/variance
	if off*off > stepSure*stepSure*variance {
		gain = 1 - noise/(off*off)
	}
	for i := range c.of {
		v := &c.of[i]
		v.alone += gain * (c.y - v.took - v.alone)
	}
	c.variance = gain * noise
	c.level(1)
	c.shifted(noise)
	c.excess = min(max(c.excess+(min(off*off/variance*c.excess, devianceMost)-c.excess)/excessOver, 1), excessMost)
	return off < -math.Sqrt(variance)
}

// likeliest returns the curve under which what was seen is the likeliest.
func (c *curves) likeliest() int {
	best := 0
	for i := range c.of {
		if c.of[i].deviance < c.of[best].deviance {
			best = i
		}
	}
	return best
}

// shifted sees whether requests take longer or shorter than they did with as many. Then
// what is known may hold no more, and less of it is kept. If they take longer, the resource
// may do as much less at once, and the longer they take, the less is kept.
func (c *curves) shifted(noise float64) {
	c.since++
	v := &c.of[c.likeliest()]
	shift := v.soon - v.late
	se := math.Sqrt(noise * (1/(2*soonOver-1) + 1/(2*longOver-1)))
	if c.since <= shiftSome || math.Abs(shift) < max(shiftLeast, shiftSure*se) {
		return
	}
	left := shiftLeft
	if shift > 0 {
		left *= shiftLeast / shift * shiftLeast / shift
	}
	c.level(left)
	for i := range c.of {
		if v := &c.of[i]; shift > 0 && v.best > c.at-shift {
			v.deviance += shiftDoubt
		}
	}
	c.settle()
}

// doubt makes it less probable that so many at once, or more, are best.
func (c *curves) doubt(x float64) {
	for i := range c.of {
		if v := &c.of[i]; v.best > x-0.75*grid {
			v.deviance += doubtful
		}
	}
	c.level(1)
}

// hope makes it less improbable that about so many at once, or more, are best.
func (c *curves) hope(x float64) {
	for i := range c.of {
		if v := &c.of[i]; v.best > x-2*grid {
			v.deviance *= hopeful
		}
	}
	c.level(1)
}

// level has the deviance of the best curve be 0, and keeps that part of the others'.
func (c *curves) level(part float64) {
	least := math.Inf(1)
	for i := range c.of {
		least = min(least, c.of[i].deviance)
	}
	for i := range c.of {
		v := &c.of[i]
		v.deviance = min(v.deviance-least, memory) * part
	}
}

// choose returns the limit that loses least in the mean of all curves, and one to try. Every
// other time that is the same. Else it is the best number of one of the curves, each as often
// as it is probable, as in Thompson sampling: what is not known is tried, and what is known
// is not.
func (c *curves) choose() (center, try float64) {
	all := 0.
	for i := range c.of {
		v := &c.of[i]
		if v.weight = 0; v.deviance < memory {
			v.weight = math.Exp(-v.deviance/2 - prior*v.best)
		}
		all += v.weight
	}
	most := math.Log(doubling * c.tried)
	loss := func(at int) float64 { // with the best number of that step
		sum := 0.
		for i := range c.of {
			if w := c.of[i].weight; w > weightLeast*all {
				sum += w * losses[i%shapes][at-i/shapes+farthest]
			}
		}
		return sum
	}
	last := min(len(c.of)/shapes-1, max(0, int((most-c.best(0))/grid+0.5)))
	c.step = min(c.step, last)
	least := loss(c.step)
	for stride := 8; stride > 0; stride /= 2 {
		for _, by := range [...]int{-stride, stride} {
			for to := c.step + by; to >= 0 && to <= last; to += by {
				sum := loss(to)
				if sum >= least {
					break
				}
				c.step, least = to, sum
			}
		}
	}
	at := c.best(c.step)
	if c.step > 0 && c.step < last { // between the steps: where a parabola is least
		fewer, more := loss(c.step-1), loss(c.step+1)
		if bend := fewer - 2*least + more; bend > 0 {
			at += grid * (fewer - more) / (2 * bend)
		}
	}
	center = math.Exp(min(at, max(most, c.best(0))))
	if c.turns++; c.turns%2 == 0 {
		return center, center
	}
	const golden = 0.6180339887 // its multiples spread evenly
	_, part := math.Modf(float64(c.turns) * golden)
	try = math.Exp(c.quantile(lowest + (highest-lowest)*part))
	return center, min(max(try, center/fewest), center*largest)
}

// loss returns by how much less is done with so many times the center, in the mean of all
// curves.
func (c *curves) loss(times float64) float64 {
	x := math.Log(times)
	by := int(math.Round(x / grid))
	var all, sum float64
	for i := range c.of {
		w := c.of[i].weight
		lost := losses[i%shapes][c.step+by-i/shapes+farthest]
		if i%shapes != 1 {
			lost -= latency * max(0, float64(c.step+by-i/shapes)*grid)
		}
		all += w
		sum += w * lost
	}
	return sum / all
}

// best returns the best number of a step of the grid.
func (c *curves) best(i int) float64 { return c.of[i*shapes].best }

// quantile returns the number above that part of the curves' best.
func (c *curves) quantile(part float64) float64 {
	all := 0.
	for i := range c.of {
		all += c.of[i].weight
	}
	sum := 0.
	for i := range c.of {
		w := c.of[i].weight
		if sum+w >= part*all {
			return c.of[i].best + ((part*all-sum)/w-0.5)*grid
		}
		sum += w
	}
	return c.of[len(c.of)-1].best
}

// between returns the numbers between which the best is, in nine of ten.
func (c *curves) between() (low, high int) {
	at := func(part float64) int { return int(math.Round(math.Exp(min(max(0, c.quantile(part)), 40)))) }
	return at(0.05), at(0.95)
}
