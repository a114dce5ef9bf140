package concurrency

import "math"

// noise is how much service times differ by chance, as blocks tell.
type noise struct {
	sums
	generations generations
	mix         mix
}

const (
	noiseDecay = 0.96 // of the noise, for each block
	noisePrior = 16   // requests that are as noisy as exponential times, at first
	noiseLeast = 0.02 // the standard error that more requests do not lower
	muchLess   = 0.85 // what is so much less noisy is compared instead
)

// add adds a block.
func (o *noise) add(b *block) {
	o.sums.decay(noiseDecay)
	o.sums.add(&b.sums)
	if b.cut > 0 {
		o.mix.add(b.sums.x/max(1, b.w), &b.strata)
	}
}

// spread returns the standard deviation of one service time in parts of the mean, as that
// power, or apart, tells it. It is so large that the mean of many is as noisy as if they had
// nothing to do with each other.
func (o *noise) spread(k int) float64 {
	return o.single(k) * math.Sqrt(o.generations.excess(o.single(plain)))
}

// single returns it as single requests tell it.
func (o *noise) single(k int) float64 {
	if k == apart {
		if o.strata[0].n == 0 || o.strata[1].n == 0 {
			return math.Inf(1)
		}
		variance := 0.
		for i := range o.strata {
			v := &o.strata[i]
			variance += o.share(i) * o.share(i) * v.noise() * (o.strata[0].n + o.strata[1].n) / v.n
		}
		return math.Sqrt(variance)
	}
	if o.y[k] == 0 {
		return 1
	}
	mean := o.y[k] / o.n
	power := float64(k + 1)
	variance := power * power * max(0, o.yy[k]/o.n/mean/mean-1)
	return math.Sqrt((variance*o.n + noisePrior) / (o.n + noisePrior))
}

// clearest returns what tells most: a power, or apart.
func (o *noise) clearest() int {
	k := o.power()
	if o.spread(apart) < muchLess*o.spread(k) {
		return apart
	}
	return k
}

// power returns the power that tells most.
func (o *noise) power() int {
	if o.spread(root) < muchLess*o.spread(plain) {
		return root
	}
	return plain
}

// figures are what is compared of a block, in logarithms.
type figures struct {
	known    bool
	x        float64         // how many ran
	y        [powers]float64 // how long requests took
	variance [powers]float64

	stratified     bool
	strata         [2]float64 // how long they took in each stratum
	strataVariance [2]float64

	dropped         float64 // how many times as long a good one took, as others were dropped
	droppedVariance float64
}

// figures returns those of a block, with that noise.
func (o *noise) figures(b *block) figures {
	f := figures{known: true, x: b.sums.x / max(1, b.w)}
	for k := range powers {
		spread := o.spread(k)
		f.y[k] = float64(k+1) * math.Log(max(1, b.y[k]/b.n))
		f.variance[k] = spread * spread / b.n
	}
	f.strata, f.strataVariance, f.stratified = o.stratified(b)
	f.dropped = math.Log((1 + b.n) / (1 + b.n - b.bad))
	f.droppedVariance = noiseLeast*noiseLeast + b.bad/(1+b.n-b.bad)/b.n
	return f
}

// difference is how many times as long a good request took in a block as in the one before,
// as a logarithm.
type difference struct {
	rise         float64
	before, then float64 // the variance of the one before, and of this
	by           int     // what tells it: a power, or apart
}

// difference returns that between two blocks, with that noise.
func (o *noise) difference(f, last *figures) difference {
	d := difference{rise: f.dropped - last.dropped, before: last.droppedVariance, then: f.droppedVariance}
	if o.clearest() == apart && f.stratified && last.stratified {
		d.by = apart
		for i := range f.strata {
			part := o.share(i)
			d.rise += part * (f.strata[i] - last.strata[i])
			d.before += part * part * last.strataVariance[i]
			d.then += part * part * f.strataVariance[i]
		}
		return d
	}
	d.by = o.power()
	d.rise += f.y[d.by] - last.y[d.by]
	d.before += last.variance[d.by]
	d.then += f.variance[d.by]
	return d
}

// stratified returns how long requests of a block took in each stratum, in logarithms, and
// the variances of that. It says nothing if not both were seen, or if all of the block were
// long: short ones may take as long by now. A stratum of which the block has few is thought
// to have changed as the other did.
func (o *noise) stratified(b *block) (y, variance [2]float64, ok bool) {
	const few = 0.5
	if b.cut == 0 || b.strata[0].n == 0 || o.strata[0].n == 0 || o.strata[1].n == 0 {
		return y, variance, false
	}
	for i := range y {
		mine, other := &b.strata[i], &b.strata[1-i]
		y[i] = mine.log()
		variance[i] = o.strata[i].noise() / (mine.n + few)
		if other.n > 0 {
			as := o.strata[i].log() + other.log() - o.strata[1-i].log()
			y[i] = (mine.n*y[i] + few*as) / (mine.n + few)
		}
	}
	return y, variance, true
}

// share returns the part of all service time that is in a stratum.
func (o *noise) share(i int) float64 { return o.strata[i].y / (o.strata[0].y + o.strata[1].y) }
