package concurrency

// generations tell how much less many requests say than as many that have nothing to do with
// each other. All that come behind one that is long take long, where they wait inside, so single
// requests are less spread than their mean is noisy. By Little's law, while all places are taken,
// the mean service time is how many run divided by the rate at which they end. So it is as noisy
// as the time is in which as many end as run: a generation. That of several in a row are batch
// means (Conway, Management Science 1963).
type generations struct {
	began int64 // the present one
	size  int   // how many are one
	ends  int   // in the present one
	skip  bool  // it does not count: when its block began, more or fewer ran

	// In the present block: how many there were, the sum of their times, and of the squares.
	n, t, tt float64

	// Of late: how much they differed from the mean of their block, in parts of it and for one
	// request, and by how many degrees of freedom.
	variance, freedom float64
}

const (
	generationsFirst = 20  // generations that seem to have been seen at first
	generationsNoise = 4.  // and times as much variance
	generationsPrior = 10  // that are no noisier than single requests
	generationsOver  = 200 // of late
	generationsMost  = 16  // times as much variance
)

// end notes that a request has ended.
func (g *generations) end(now int64) {
	if g.ends++; g.ends < g.size {
		return
	}
	if !g.skip {
		t := float64(now - g.began)
		g.n, g.t, g.tt = g.n+1, g.t+t, g.tt+t*t
	}
	g.began, g.ends, g.skip = now, 0, false
}

// void forgets what was seen in this block: not all places were taken, or the time jumped.
func (g *generations) void() {
	g.n, g.t, g.tt = 0, 0, 0
	g.ends, g.skip = 0, true
}

// begin begins a block with that limit.
func (g *generations) begin(now int64, limit int) {
	switch {
	case g.size == 0:
		g.variance, g.freedom = generationsNoise*generationsFirst, generationsFirst
	case g.n >= 2 && g.t > 0:
		mean := g.t / g.n
		keep := 1 - min(0.5, g.n/generationsOver)
		g.variance = keep*g.variance + float64(g.size)*max(0, g.tt-g.t*mean)/(mean*mean)
		g.freedom = keep*g.freedom + g.n - 1
	}
	g.skip = limit != g.size
	g.began, g.size, g.ends = now, limit, 0
	g.n, g.t, g.tt = 0, 0, 0
}

// excess returns how many times as much variance there is as in the mean of requests that have
// nothing to do with each other, each of that standard deviation, in parts of the mean.
func (g *generations) excess(spread float64) float64 {
	known := (g.variance/(spread*spread) + generationsPrior) / (g.freedom + generationsPrior)
	return min(max(1, known), generationsMost)
}
