package concurrency

import "math"

// blocks is how many blocks are remembered.
const blocks = 16

// past remembers the blocks of late, and what was seen of the requests that began in
// each.
type past struct {
	at     int64   // the latest time seen
	x      float64 // the integral of the logarithm of how many ran, until then
	blocks [blocks]block
	n      int64 // how many blocks there were
	from   int64 // the first of these that counts
	strata strata
}

// arm says what a block is for.
type arm uint8

const (
	skip arm = iota // nothing is compared
	near            // about the best
	far             // much more, to see whether there is room
)

// block is a time in which the limit is constant.
type block struct {
	began   int64
	x       float64 // past.x when it began
	cut     float64 // past.strata.cut when it began
	arm     arm
	limit   int
	ran     int // when it began
	ended   int // requests that ended in it
	dropped int // of these
	late    int // of those, as they timed out
	begun   int // that began in it, once it is over
	// of those requests that began in it and have ended, whenever that was
	sums
}

// The powers to which service times are taken before their means are compared. Roots make
// less of the few that take long.
const (
	plain = iota
	root
	powers
	apart = powers // short and long requests are compared each with their own
)

// sums are over requests, for each of powers.
type sums struct {
	n   float64
	bad float64         // dropped
	w   float64         // service times
	x   float64         // of the logarithm of how many ran with them, by their service times
	y   [powers]float64 // of their service time to that power
	yy  [powers]float64 // of its square

	strata [2]stratum // of the short and of the long
}

func (s *sums) request(cut, x, took float64, dropped bool) {
	s.n++
	if dropped {
		s.bad++
	}
	s.w += took
	s.x += x * took
	for i, y := range [powers]float64{took, math.Sqrt(took)} {
		s.y[i] += y
		s.yy[i] += y * y
	}
	switch {
	case cut == 0:
	case took > cut:
		s.strata[1].request(took)
	default:
		s.strata[0].request(took)
	}
}

// add adds the sums of a block.
func (s *sums) add(t *sums) {
	s.n += t.n
	s.bad += t.bad
	s.w += t.w
	s.x += t.x
	for i := range powers {
		s.y[i] += t.y[i]
		s.yy[i] += t.yy[i]
	}
	if t.strata[0].n == 0 || t.strata[1].n == 0 {
		return // it may be the limit that makes these requests short or long
	}
	for i, u := range t.strata {
		v := &s.strata[i]
		*v = stratum{v.n + u.n, v.y + u.y, v.yy + u.yy}
	}
}

// decay has what was added count for that part of it.
func (s *sums) decay(part float64) {
	t := *s
	*s = sums{n: part * t.n, bad: part * t.bad, w: part * t.w, x: part * t.x}
	for i := range powers {
		s.y[i], s.yy[i] = part*t.y[i], part*t.yy[i]
	}
	for i, u := range t.strata {
		s.strata[i] = stratum{part * u.n, part * u.y, part * u.yy}
	}
}

func (p *past) now() *block { return p.block(p.n - 1) }

func (p *past) block(i int64) *block { return &p.blocks[i%blocks] }

// begin begins a block while so many run.
func (p *past) begin(at int64, a arm, limit, running int) {
	p.at = at
	*p.block(p.n) = block{began: at, x: p.x, cut: p.strata.cut, arm: a, limit: limit, ran: running}
	p.n++
	p.from = max(p.from, p.n-blocks)
}

// close ends the present block, with a request that ended while so many ran.
func (p *past) close(running int) {
	b := p.now()
	b.begun = max(0, b.ended+running-1-b.ran)
}

// jumped goes on at another time. What was seen before it counts no more.
func (p *past) jumped(now int64) {
	b := *p.now()
	p.x = 0 // which has the precision of a float64
	p.begin(now, b.arm, b.limit, b.ran)
	p.from = p.n
}

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
	p.strata.add(took)
	i := p.n - 1
	for ; i >= 0 && p.n-i < blocks; i-- {
		if p.block(i).began <= began {
			break
		}
	}
	if i < 0 || p.n-i >= blocks {
		return
	}
	b := p.block(i)
	nextAt, nextX := p.at, p.x
	if i+1 < p.n {
		nextAt, nextX = p.block(i+1).began, p.block(i+1).x
	}
	before := b.x
	if nextAt > b.began {
		before += (nextX - b.x) * float64(began-b.began) / float64(nextAt-b.began)
	}
	switch {
	case p.at > began:
		b.request(b.cut, (p.x-before)/float64(p.at-began), took, dropped)
	case nextAt > b.began:
		b.request(b.cut, (nextX-b.x)/float64(nextAt-b.began), took, dropped)
	}
}

// whole reports whether nearly all that began in the block have ended.
func (b *block) whole() bool { return b.n >= 0.96*float64(b.begun) }

// ended returns the first block of late in which most that began in it have not ended.
func (p *past) ended() int64 {
	last := p.n - 1
	for last > p.from && last > p.n-8 && !p.block(last-1).whole() {
		last--
	}
	return last
}
