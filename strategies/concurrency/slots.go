package concurrency

import "math"

// slot is a time in which the limit is constant, and what was seen of the requests that began in it.
type slot struct {
	began  int64
	x      float64 // slots.x when it began
	opened bool    // it has had no more running than the limit
	open   int64   // when that was so first, or when it began; as a rule nothing begins before
	openX  float64 // slots.x then
	limit  int
	center float64 // the middle of the limits that were compared
	run    float64 // how many ran when it began
	skip   bool    // it tells nothing: little waited, or the limit was not held

	ended, waited, dropped float64 // requests that ended in it; found work waiting; of no good
	taken, offered         float64 // integrals of how many ran, and of the limit

	// Of the requests that began in it and have ended: how many, those dropped, of these those refused at once, the
	// sums of their service times, slots.age at most, of the roots of these, and of these by how many ran with them.
	n, bad, refused, sum, root, ran float64
}

// slots measure how long requests take. A request counts for the slot in which it began, and that is looked
// at when the next is over. Those that run on then count too, by their age. If they did not, those that are
// short would count alone; and no request counts for more than that age, so that it does not matter how early
// in its slot it began (the restricted mean; Irwin 1949).
type slots struct {
	at        int64   // the latest time seen
	x         float64 // the integral of the logarithm of how many ran, until then
	now, last slot
	age       float64 // nanoseconds that a slot lasts
	running   float64 // how many run, after the latest end
	spread    float64 // variance of the service time of one request, in parts of the square of the mean
}

const (
	slotEnds   = 4.   // requests that begin and end in a slot, at least
	leastNoise = 4e-4 // variance between slots that more requests do not lower: two percent
)

// begin begins a slot.
func (s *slots) begin(limit int, center float64) {
	s.last, s.now = s.now, slot{
		began: s.at, x: s.x, opened: s.running <= float64(limit), open: s.at, openX: s.x,
		limit: limit, center: center, run: s.running,
	}
}

// jumped goes on at another time. What was seen before it counts no more.
func (s *slots) jumped(now int64) {
	s.at, s.x = now, 0
	s.begin(s.now.limit, s.now.center)
	s.last = slot{skip: true}
}

// ended notes a request that took so many nanoseconds, and whether it was refused at once.
func (s *slots) ended(r *Sample, took float64, refused bool) {
	running := float64(max(1, r.Running))
	if d := float64(r.Now - s.at); d > 0 {
		s.x += d * math.Log(running)
		s.now.taken += d * min(running, float64(s.now.limit))
		s.now.offered += d * float64(s.now.limit)
		s.at = r.Now
	}
	s.running = running - 1
	if b := &s.now; !b.opened && s.running <= float64(b.limit) {
		b.opened, b.open, b.openX = true, s.at, s.x
	}
	s.now.ended++
	if r.Waiting {
		s.now.waited++
	}
	if r.Dropped {
		s.now.dropped++
	}
	b, until, x := &s.now, s.at, s.x
	if r.Began < b.began {
		b, until, x = &s.last, s.now.began, s.now.x
	}
	if r.Began < b.began || b.skip {
		return
	}
	b.n++
	if r.Dropped {
		b.bad++
	}
	if refused {
		b.refused++
	}
	took = min(took, s.age)
	b.sum += took
	b.root += math.Sqrt(took)
	// Once a slot is open, about as many run all the time. What began before, did so beside those that drained.
	from := max(r.Began, b.open)
	if s.at <= from {
		b.ran += took * math.Log(running)
		return
	}
	before := b.openX + (x-b.openX)*float64(from-b.open)/float64(max(1, until-b.open))
	b.ran += took * (s.x - before) / float64(s.at-from)
}

// drops returns how many of the requests that began in the present slot were dropped, and of how many. Where most
// of these were refused at once, those that run on count too: they were not, and take longer.
func (s *slots) drops() (bad, n float64) {
	b := &s.now
	if 2*b.refused > b.bad {
		return b.bad, max(b.n, b.ended+s.running-b.run)
	}
	return b.bad, b.n
}

// figures returns, of a slot, the logarithms of how many ran and of how long requests took, and the
// variance of that. Roots make less of the few requests that take long.
func (s *slots) figures(b *slot) (x, took, variance float64) {
	// As many began as have ended in it and run more at its end.
	if rest := min(b.ended+s.now.run-b.run-b.n, s.running); rest > 0 {
		age := min(s.age, float64(s.at-s.now.began))
		b.ran += rest * age * (s.x - b.openX) / float64(max(1, s.at-b.open))
		b.sum += rest * age
		b.root += rest * math.Sqrt(age)
		b.n += rest
	}
	root := b.root / b.n
	s.spread += (4*max(0, b.sum/b.n/(root*root)-1) - s.spread) * min(0.5, b.n/recent)
	return b.ran / b.sum, 2 * math.Log(root), s.spread/b.n + leastNoise
}

// lost returns by how much longer requests would have to take for as few to be good as are if some are
// dropped, a logarithm, and its variance.
func (b *slot) lost() (longer, variance float64) {
	good := 1 + b.n - b.bad
	return math.Log((1 + b.n) / good), b.bad / good / (1 + b.n)
}
