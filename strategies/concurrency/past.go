package concurrency

import "math"

// past remembers the blocks of late, and what was seen of the requests that began in
// each.
type past struct {
	at     int64   // the latest time seen
	x      float64 // the integral of the logarithm of how many ran, until then
	blocks [96]block
	n      int // how many blocks there were
	from   int // the first of these that counts
}

// recent is how many blocks are compared at most.
const recent = 24

// arm says what a block is for.
type arm uint8

const (
	skip arm = iota // nothing is compared
	low
	high
	far // much more than the limit, to see whether there is room
)

// block is a time in which the limit is constant.
type block struct {
	began   int64
	x       float64 // past.x when it began
	arm     arm
	limit   int
	dropped int // of these, how many were dropped
	ended   int // requests that ended in it
	begun   int // requests that began in it, about
	// of those requests that began in it and have ended, whenever that was
	sums
}

// sums are over requests, for each of powers.
type sums struct {
	n   float64
	bad float64         // dropped
	x   float64         // of the logarithm of how many ran with them, in the mean over their life
	y   [powers]float64 // of their service time to that power
	yy  [powers]float64 // of its square
	xy  [powers]float64 // of the product
}

// powers are those to which service times are taken, before their means are compared:
// 1, and 1/2, which makes less of the few that take long.
const powers = 2

func (s *sums) request(x, took float64, dropped bool) {
	s.n++
	if dropped {
		s.bad++
	}
	s.x += x
	for i, y := range [powers]float64{took, math.Sqrt(took)} {
		s.y[i] += y
		s.yy[i] += y * y
		s.xy[i] += x * y
	}
}

func (s *sums) add(t *sums) {
	s.n += t.n
	s.bad += t.bad
	s.x += t.x
	for i := range powers {
		s.y[i] += t.y[i]
		s.yy[i] += t.yy[i]
		s.xy[i] += t.xy[i]
	}
}

func (p *past) now() *block { return p.block(p.n - 1) }

func (p *past) block(i int) *block { return &p.blocks[i%len(p.blocks)] }

// begin begins a block.
func (p *past) begin(at int64, a arm, limit int) {
	p.at = at
	*p.block(p.n) = block{began: at, x: p.x, arm: a, limit: limit}
	p.n++
	p.from = max(p.from, p.n-len(p.blocks))
}

// jumped goes on at another time. What was seen before it counts no more.
func (p *past) jumped(now int64) {
	b := *p.now()
	p.begin(now, b.arm, b.limit)
	p.forget()
}

// forget has the blocks so far count no more.
func (p *past) forget() { p.from = p.n }

// advance goes on to a time until which so many ran.
func (p *past) advance(now int64, x float64) {
	if d := now - p.at; d > 0 {
		p.x += x * float64(d)
		p.at = now
	}
}

// add notes a request that ends now.
func (p *past) add(began int64, took float64, dropped bool) {
	p.now().ended++
	if dropped {
		p.now().dropped++
	}
	i := p.n - 1
	for ; i >= 0 && p.n-i < len(p.blocks); i-- {
		if p.block(i).began <= began {
			break
		}
	}
	if i < 0 || p.n-i >= len(p.blocks) {
		return
	}
	b := p.block(i)
	next := point{p.at, p.x}
	if i+1 < p.n {
		next = point{p.block(i + 1).began, p.block(i + 1).x}
	}
	before := b.x
	if next.at > b.began {
		before += (next.x - b.x) * float64(began-b.began) / float64(next.at-b.began)
	}
	var mean float64
	switch {
	case p.at > began:
		mean = (p.x - before) / float64(p.at-began)
	case next.at > b.began:
		mean = (next.x - b.x) / float64(next.at-b.began)
	default:
		return
	}
	b.request(mean, took, dropped)
}

// whole reports whether nearly all that began in the block have ended.
func (b *block) whole() bool { return b.n >= 0.96*float64(b.begun) }

// ended returns the first block of late in which most that began in it have not ended.
func (p *past) ended() int {
	last := p.n - 1
	for last > p.from && last > p.n-8 && !p.block(last-1).whole() {
		last--
	}
	return last
}

type point struct {
	at int64
	x  float64
}

// slope returns by how many percent the service time grows for each percent more that
// run, its standard error, and the noise of service times.
func (p *past) slope() (slope, se, noise float64, ok bool) {
	last := p.ended()
	p.from = max(p.from, last-recent)
	slope, se, noise, ok = p.slopeOf(0, last)
	if !ok {
		return slope, se, noise, ok
	}
	slope2, se2, noise2, ok := p.slopeOf(1, last)
	if ok && se2 < 0.7*se {
		return slope2, se2, noise2, ok
	}
	return slope, se, noise, true
}

func (p *past) slopeOf(k, last int) (slope, se, noise float64, ok bool) {
	var t [3]sums
	var all sums
	for i := p.from; i < last; i++ {
		if b := p.block(i); b.arm == low || b.arm == high {
			t[b.arm].add(&b.sums)
			all.add(&b.sums)
		}
	}
	l, h := &t[low], &t[high]
	if l.n < 4 || h.n < 4 || all.y[k] == 0 {
		return 0, 0, 0, false
	}
	power := 1 / float64(k+1)
	my, mx := all.y[k]/all.n, all.x/all.n
	noise = math.Sqrt(max(0, all.yy[k]/all.n-my*my)) / my
	lift := power * ((h.xy[k]-mx*h.y[k])/h.n - (l.xy[k]-mx*l.y[k])/l.n)
	if lift < 0.01*my {
		return 0, 0, noise / power, false
	}
	d := h.y[k]/h.n - l.y[k]/l.n
	slope = d / lift
	if lever := math.Log(float64(p.limitOf(high)) / float64(p.limitOf(low))); lever > 0 {
		slope += math.Log((1+l.n-l.bad)/(1+l.n)*(1+h.n)/(1+h.n-h.bad)) / lever
	}
	// The error: what pairs of blocks differ by, together with what requests do.
	within := noise * my * math.Sqrt(1/l.n+1/h.n)
	pairs, squares := 0., 0.
	for i := p.from + 1; i < last; i++ {
		a, b := p.block(i-1), p.block(i)
		if a.arm == skip || a.arm == far || b.arm == skip || b.arm == far || a.arm == b.arm || a.n == 0 || b.n == 0 {
			continue
		}
		e := b.y[k]/b.n - a.y[k]/a.n
		if b.arm == low {
			e = -e
		}
		pairs++
		squares += (e - d) * (e - d)
	}
	if pairs == 0 {
		return 0, 0, noise / power, false
	}
	const prior = 2
	blocks := (pairs + 1) / 2 // of each arm
	between := (prior*within*within*blocks + squares) / (prior + pairs) / blocks
	se = math.Sqrt(max(between, within*within)) / lift
	if pairs < 3 {
		se *= 1.5
	}
	return slope, se + 0.02, noise / power, true
}

// growth returns the slope between the present limit, while it is doubled, and those
// between from and to, its standard error, and how many times as long requests take: 0 if
// too few of those that began with the present limit have ended.
func (p *past) growth(from, to int) (slope, se, grew float64) {
	var a, b sums
	for i := p.ended() - 1; i >= p.from; i-- {
		c := p.block(i)
		if c.arm != low {
			continue
		}
		switch {
		case c.limit == p.now().limit:
			b.add(&c.sums)
		case c.limit >= from && c.limit <= to:
			a.add(&c.sums)
		}
	}
	if b.n == 0 {
		return 0, 0, 0
	}
	return rise(&a, &b)
}

// room returns the slope from the limits that are compared to the blocks far above.
func (p *past) room() (slope, se float64) {
	var a, b sums
	for i, last := p.from, p.ended(); i < last; i++ {
		switch c := p.block(i); c.arm {
		case far:
			b.add(&c.sums)
		case low, high:
			a.add(&c.sums)
		}
	}
	slope, se, _ = rise(&a, &b)
	return slope, se
}

// rise returns by how many percent service times grow from a to b for each percent more
// that run, its standard error, and how many times as long they are.
func rise(a, b *sums) (slope, se, grew float64) {
	if a.n == 0 || b.n == 0 {
		return 0, 1, 1
	}
	se = math.Inf(1)
	for k := range powers {
		power := 1 / float64(k+1)
		my, mx := a.y[k]/a.n, b.x/b.n-a.x/a.n
		if my == 0 || mx < 0.1 {
			return 0, 1, 1
		}
		noise := math.Sqrt(max(0, a.yy[k]/a.n-my*my)) / my / power
		if e := noise * math.Sqrt(1/a.n+1/b.n) / mx; k == 0 || e < 0.7*se {
			longer := b.y[k] / b.n / my
			refused := math.Log((1 + a.n - a.bad) / (1 + a.n) * (1 + b.n) / (1 + b.n - b.bad))
			slope, se, grew = (math.Log(longer)/power+refused)/mx, e, math.Pow(longer, 1/power)
		}
	}
	return slope, se + 0.02, grew
}

// limitOf returns the limit of the latest block of an arm.
func (p *past) limitOf(a arm) int {
	for i := p.n - 1; i >= p.from; i-- {
		if b := p.block(i); b.arm == a {
			return b.limit
		}
	}
	return 1
}
