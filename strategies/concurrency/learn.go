package concurrency

import (
	"fmt"
	"math"
)

// state is what the limit is for: see the package comment.
type state uint8

const (
	start state = iota
	learning
	cut
)

// Slots and limits.
const (
	first        = 4       // the first limit, if nothing else is said
	slotTimes    = 2.5     // service times of a slot, at least
	slotGrowth   = 2       // the logarithm, to base 2, of how many times as long the next length is
	slotOdds     = 0.5     // the same by which requests may be faster than that, so that it does not go to and fro
	slotShortest = 17      // the same of the shortest, in nanoseconds, as the end of one costs CPU: 0.26 ms, as lengths are even
	apartOne     = 0.8     // logarithm by which two limits differ that are compared, with one at once
	apartPower   = -0.35   // times the limit to that power: the smaller of several learners varies by more
	lowest       = 0.25    // quantile of the best number down to which a limit is tried
	known        = 2.      // times as far apart as the limits, the quartiles are known well enough
	doubling     = 2.      // times more, or fewer, than what was tried is the farthest
	triedForget  = 0.8     // how fast that is forgotten, in a slot
	recent       = 128     // requests of which a mean is kept, or as many as run
	outlier      = 32      // times the mean that a service time counts for at most, that a slot lasts, or the clock jumps
	latest       = 1 << 61 // no time is later, or earlier than minus that, so that differences do not overflow
)

// Slow start.
const (
	startGrow   = 2    // more begin for each good answer, so three times as many in a generation
	startLeft   = 0.25 // of a generation have not ended when the next begins
	startTimes  = 1.5  // times as long as a generation lasted before, and it ends, but for
	startLikely = 0.7  // standard errors more than that, and the next does not grow
	startSure   = 4    // standard errors: with fewer, more starts of exponential work end by chance
	startEnded  = 7.5  // the same for those that have ended, of which the short ones are first
	startSame   = 2.5  // standard errors: within them a generation lasted as long as those before
	startNoise  = 1.25 // standard error of a quartile, over that of a mean: of exponential times
	startPart   = 0.4  // of the limit that it came to is expected to be best
	startKnown  = 1.0  // standard deviation of the logarithm of the best number then
	cutKnown    = 0.46 // the same after a cut: half of the logarithm of what it was cut by
)

// Little waits, or most are dropped.
const (
	calmShare  = 0.6  // of the ends that find work waiting, below which little waits
	calmFull   = 0.8  // unless that part of the places is taken
	calmSlots  = 4    // in a row, after which the limit may rise if much waits
	calmSome   = 0.02 // of the ends that find some, and the limit may rise
	calmRise   = 1.25 // times the limit
	calmTimes  = 1.2  // times as long as requests took may they take then
	refusedAt  = 0.5  // of the time that good ones take: what is dropped sooner was refused at once
	dropMost   = 0.5  // of the requests that are not dropped anyway
	dropSure   = 1.7  // standard errors more, so that it is no chance
	dropCut    = 0.4  // of the limit is left then
	dropAll    = 0.9  // of the requests, which may be an outage
	dropHelps  = 3    // fewer are dropped than that, and that helps
	anywayOver = 32   // slots to forget what is dropped anyway
)

// law is what a Law does, without the lock.
type law struct {
	least, most int
	limit       int
	center      float64 // the middle of the limits that are compared
	tried       float64 // the most that was, of late
	state       state
	calm        int // slots in a row in which little waited

	slots      slots
	hypotheses hypotheses
	seen       float64 // requests of which service is the mean
	from       int64   // when those began, at the earliest, that count for service
	service    float64 // nanoseconds that requests take, of late
	good       float64 // the same of those that are good
	epoch      int64   // Unix nanoseconds at 0 of the clock
	length     uint    // of a slot: two to that, in nanoseconds
	index      int64   // of the present slot, since 1970

	mark, since    int64   // when the present generation of the slow start began: the first before the first ended
	ran            int     // how many ran then
	left           float64 // and how many of these have not ended
	goods, lates   float64 // requests that have ended since then: good; out of time
	rate           float64 // the most that were good in a nanosecond of a generation
	lasted, firsts float64 // nanoseconds that a generation lasted before, and requests of which that is the mean
	long           bool    // the generation before likely lasted startTimes as long: this one does not grow
	square         float64 // mean of the squares of service times
	variation      float64 // their standard deviation, in parts of the mean, at the begin of the generation
	ended, usual   mean    // service times of the generation, and of those before
	base           float64 // nanoseconds that requests took before little waited, or the first

	ends, bad float64 // requests since it was cut, and of these dropped
	uncut     float64 // center before it was cut, until it is known whether that helps
	started   bool    // the start was over then
	anyway    float64 // the part of requests that is dropped whatever the limit

	guard   guard
	ceiling ceiling
}

func newLaw(o Options, least, most, initial int) law {
	l := law{
		least: least, most: most, limit: initial, center: float64(initial),
		hypotheses: newHypotheses(least, most), guard: newGuard(), ceiling: newCeiling(o.Objective),
	}
	if !o.Epoch.IsZero() {
		l.epoch = o.Epoch.UnixNano()
	}
	l.slots.now.limit, l.slots.now.center, l.slots.spread = initial, float64(initial), 1
	return l
}

func (l *law) learn(s Sample) {
	s.Now, s.Began = min(max(s.Now, -latest), latest), min(max(s.Began, -latest), latest)
	s.Running = max(1, s.Running)
	took := float64(max(1, s.Now-s.Began)) // a time of 0 has no logarithm
	if l.service == 0 {
		l.service, l.mark, l.since = took, s.Now, s.Began
		l.ran = max(l.limit, s.Running)
		l.left = float64(l.ran)
		l.jumped(&s)
	}
	took = min(took, outlier*l.service+1)
	if s.Began >= l.from {
		l.seen = min(l.seen+1, max(recent, float64(s.Running)))
		l.service += (took - l.service) / l.seen
		l.square += (took*took - l.square) / l.seen
	}
	if long := int64(min(outlier*l.service+1e6, latest)); s.Now < l.slots.at-long || s.Began > l.slots.at+long {
		l.jumped(&s)
	}
	l.slots.ended(&s, took, s.Dropped && took < refusedAt*l.good)
	late := s.Dropped && took > l.good // rather than refused
	if !s.Dropped {
		if l.good == 0 {
			l.good = took
		}
		l.good += (took - l.good) / recent
	}
	l.guard.ended(&s, late, l.limit == l.least && s.Waiting)
	if l.state == start {
		l.ended.add(took)
		l.grow(&s, late && l.good > 0)
	}
	if l.over() {
		l.next()
		l.begin()
	}
}

// jumped begins at the time of s, as at the first request.
func (l *law) jumped(s *Sample) {
	l.from = -latest
	l.slots.jumped(min(s.Began, s.Now))
	l.align()
}

// over reports whether the slot is over: also before its time if most are dropped, or if it is too long for
// how long requests take by now.
func (l *law) over() bool {
	b := &l.slots.now
	return min(b.n, b.ended) >= slotEnds &&
		(l.now() != l.index || float64(l.slots.at-b.began) > outlier*l.service || l.mostly(l.slots.drops()) && l.mostly(b.dropped, b.ended))
}

// mostly reports whether surely more than half of the requests that are not dropped anyway were dropped.
func (l *law) mostly(bad, n float64) bool {
	most := l.anyway + dropMost*(1-l.anyway)
	return bad > most*n+dropSure*math.Sqrt(most*(1-most)*n)
}

// now returns the index of the slot of the clock.
func (l *law) now() int64 { return (l.slots.at + l.epoch) >> l.length }

// align has the next slot be as long as requests demand.
func (l *law) align() {
	want := max(math.Log2(slotTimes*l.service), slotShortest)
	if e := float64(l.length); want > e || want < e-slotGrowth-slotOdds {
		l.length = slotGrowth * uint(math.Ceil(want/slotGrowth))
	}
	l.index, l.slots.age = l.now(), math.Exp2(float64(l.length))
}

// begin begins a slot.
func (l *law) begin() {
	l.align()
	l.slots.begin(l.limit, l.center)
}

// grow is the slow start. In a generation, in which three of four that ran when it began end, the limit grows
// to three times as many at most, and no more once it has lasted half as long again as before. After one that likely
// has, the next does not grow at all, so that fewer run should the start be over; but not two in a row, as the first
// may have been chance. The start is over once requests surely take longer. Then a generation lasts longer, and that
// is known before they have ended. If those that have ended took longer, that is known sooner still: short ones end
// first, so all will have taken longer than these.
func (l *law) grow(s *Sample, late bool) {
	// The first generation is of requests that run together: lone ones have gaps between them.
	if lone := s.Running == 1 && !s.Waiting && !late; l.firsts == 0 && (lone || l.ran == 0) {
		l.mark, l.since, l.ran = s.Now, s.Began, max(l.limit, s.Running)
		l.left = float64(l.ran)
		if lone {
			l.ran, l.ended, l.goods = 0, mean{}, 0
			return
		}
	}
	if !s.Dropped {
		l.goods++
	}
	if late {
		l.lates++
	}
	if s.Began <= l.mark || l.firsts == 0 {
		l.left--
	}
	lasted := float64(s.Now - l.since)
	switch {
	case l.limit == l.most:
		l.expect(startKnown)
	case l.firsts > 0 && l.longer(l.ended.mean, l.usual.mean, startEnded, 1/l.usual.n+1/l.ended.n),
		l.firsts > 0 && l.longer(lasted, l.lasted, startSure*startNoise, 1/l.firsts+1/float64(l.ran)), lasted > outlier*l.service,
		l.lates > dropMost*float64(l.ran):
		l.center = max(l.fit(s, max(lasted, l.service)), float64(l.least))
		if l.firsts > 0 { // those that still run took longer than the next will
			l.service, l.seen, l.from = l.lasted, l.firsts, s.Now
			l.ceiling.shortest = math.Log(l.lasted) + startNoise*l.variation/math.Sqrt(l.firsts)
		}
		l.expect(startKnown)
		l.set(l.center)
		l.begin()
		l.slots.last.skip = true
		return
	case l.long || l.firsts > 0 && lasted > startTimes*l.lasted: // which may be chance, so the start goes on, but no more begin
	case s.Waiting && !s.Dropped && l.calm == 0 && l.limit < (1+startGrow)*l.ran:
		l.limit = min(l.limit+startGrow, l.most)
		l.center = float64(l.limit)
	}
	if l.left <= startLeft*float64(l.ran) {
		l.generation(s, max(lasted, l.service))
	}
}

// fit returns how many the resource does at once, by a start whose last generation has lasted that long. By Little's law
// it is the rate at which requests end times how long one takes alone. The rate is measured in two ways: by those
// that have ended, which leaves out the work on those that have not; and as how many run by how long they take, which
// leaves out how much longer those take that have not ended. One is too low, the other too high, so it is the
// geometric mean of both. It is weighed against startPart of the limit, each by its variance.
func (l *law) fit(s *Sample, lasted float64) float64 {
	prior := startPart * l.center
	switch {
	case l.lates > l.goods: // no more than had been good, had they taken no longer than before
		return min(prior, l.goods/lasted*l.lasted)
	case l.firsts == 0 || l.goods == 0:
		return prior
	}
	run := math.Sqrt(float64(l.ran) * float64(s.Running))
	rate := math.Sqrt(run / max(lasted, l.ended.mean) * max(l.rate, l.goods/lasted))
	variance := startNoise * startNoise * max(1, l.variation*l.variation) * (1/l.firsts + 1/l.goods)
	weight := 1 / (1 + variance/(startKnown*startKnown))
	return math.Exp((1-weight)*math.Log(prior) + weight*math.Log(rate*l.lasted))
}

// longer reports whether x is surely startTimes as long as before, by so many errors. The variance of one request is
// times that. While little waits the start goes on, so what takes long to compute is computed last.
func (l *law) longer(x, before, errors, times float64) bool {
	return x > startTimes*before && x > startTimes*math.Exp(errors*l.variation*math.Sqrt(times))*before
}

// generation begins one, after one that lasted so many nanoseconds.
func (l *law) generation(s *Sample, lasted float64) {
	if l.firsts == 0 {
		l.base, l.lasted = l.service, lasted
	}
	n := float64(l.ran)
	l.long = !l.long && l.longer(lasted, l.lasted, startLikely*startNoise, 1/l.firsts+1/n)
	l.rate = max(l.rate, l.goods/lasted)
	// What lasted longer is not what is usual, or else that would grow with the work that waits inside.
	if l.firsts == 0 || lasted <= math.Exp(startSame*startNoise*l.variation*math.Sqrt(1/l.firsts+1/n))*l.lasted {
		l.firsts += n
		l.lasted += (min(lasted, doubling*l.lasted) - l.lasted) * n / l.firsts
		l.usual.pool(l.ended, startTimes)
	}
	// Of few requests that is not known well. One counts as if it were exponential.
	l.variation = math.Sqrt((max(0, l.square/(l.service*l.service)-1)*l.firsts + 1) / (l.firsts + 1))
	l.ended, l.goods, l.lates = mean{}, 0, 0
	l.ran, l.mark, l.since, l.left = s.Running, s.Now, s.Now, float64(s.Running-1)
}

// mean is that of so many service times, in nanoseconds.
type mean struct{ n, mean float64 }

func (m *mean) add(took float64) {
	m.n++
	m.mean += (took - m.mean) / m.n
}

// pool adds those of o. Their mean counts for so many times that of m at most.
func (m *mean) pool(o mean, most float64) {
	if m.n == 0 {
		*m = o
		return
	}
	m.n += o.n
	m.mean += (min(o.mean, most*m.mean) - m.mean) * o.n / m.n
}

// expect begins to learn anew about the center, whose logarithm has that standard deviation.
func (l *law) expect(deviation float64) {
	l.state = learning
	l.hypotheses.expect(math.Log(l.center), deviation)
	l.hypotheses.choose(func(float64) float64 { return 0 })
	l.tried = l.center
}

// next ends a slot, and chooses the limit of the next.
func (l *law) next() {
	b, before := &l.slots.now, &l.slots.last
	if !before.skip && before.n >= slotEnds {
		longer, more := before.lost()
		x, took, variance := l.slots.figures(before)
		l.hypotheses.learn(x, took+longer, variance+more)
		l.ceiling.follow(took, math.Sqrt(variance), before.center)
		l.tried = max(l.tried*triedForget, float64(before.limit))
	}
	calm := b.waited < calmShare*b.ended && b.taken < calmFull*b.offered
	switch {
	case calm && l.calm == 0 && l.state != start:
		l.base = l.service
	case calm:
		l.base += min(0, l.service-l.base) / calmSlots
	case !calm && l.calm >= calmSlots && l.short() && l.limit < l.most && b.dropped <= calmSome*b.ended:
		calm = true // more comes, and perhaps more can be done
	}
	b.skip = calm || l.state == start
	if !calm && l.calm > 0 && l.state == start {
		l.expect(cutKnown)
	}
	if l.calm++; !calm || l.state == start && l.firsts == 0 {
		l.calm = 0
	}
	switch {
	case calm:
		l.rest(b)
	case l.dropped(b):
		b.skip = true
	case l.state == start:
	default:
		l.compare()
	}
}

// rest has the limit be enough while little waits.
func (l *law) rest(b *slot) {
	switch {
	case b.dropped > dropMost*b.ended: // too many run, whatever waits
		l.center = min(l.center, math.Ceil(float64(l.limit)*b.taken/max(1, b.offered)))
	case b.waited > calmSome*b.ended && l.short():
		l.center *= calmRise
	}
	l.center = min(max(l.center, float64(l.least)), float64(l.most))
	l.tried = max(l.tried, l.center/doubling)
	l.set(l.center)
}

// short reports whether requests take hardly longer than they did before little waited.
func (l *law) short() bool { return l.service < calmTimes*l.base }

// dropped cuts the limit while surely most requests are dropped. If that does not help, they are dropped
// whatever the limit, which is then what it was; unless nearly all are, of which nothing can be said.
func (l *law) dropped(b *slot) bool {
	bad, n := l.slots.drops()
	l.ends, l.bad = l.ends+n, l.bad+bad
	known := startKnown
	over := l.mostly(bad, n) && l.mostly(b.dropped, b.ended)
	l.anyway = min(l.anyway, l.anyway+(bad/n-l.anyway)/anywayOver)
	switch {
	case over && l.state != cut && float64(l.limit) > l.center: // it was but a try
		return false
	case over && l.limit > l.least:
		if l.state != cut {
			l.uncut, l.started = l.center, l.state != start
		}
		l.state, l.center = cut, max(dropCut*float64(l.limit), float64(l.least))
		l.ends, l.bad = 0, 0
		l.set(l.center)
		return true
	case l.state != cut:
		return false
	case l.bad+dropHelps <= (l.anyway+dropMost*(1-l.anyway))*l.ends: // it helps: the best is between this limit and the one before
		known = cutKnown
		l.center = min(float64(l.limit)/math.Sqrt(dropCut), l.uncut)
	case l.ends < recent/2 || l.bad > dropAll*l.ends:
		if l.ends > recent { // what was long ago counts for less
			l.ends, l.bad = l.ends/2, l.bad/2
		}
		return true
	default:
		l.anyway, l.center = min(1, l.bad/l.ends+1/math.Sqrt(l.ends)), l.uncut
		if !l.started { // it goes on, with another first generation
			l.state, l.firsts, l.ran, l.long = start, 0, 0, false
			l.ended, l.goods, l.lates = mean{}, 0, 0
			l.set(l.center)
			return true
		}
	}
	l.expect(known)
	return false
}

// compare has the limit be one of two about the best, each in every other slot. Where the best is known
// well enough, in every other pair of slots neither is. Where it is not, the lower one of these pairs may
// be far lower: if too many run, fewer tell most.
func (l *law) compare() {
	apart := func(x float64) float64 { return apartOne * math.Exp(apartPower*x) }
	l.center = min(math.Exp(l.hypotheses.choose(apart)), doubling*l.tried, l.ceiling.most, float64(l.most))
	half := apart(math.Log(l.center)) / 2
	odd, down := l.now()>>1&1 == 1, l.now()&1 == 0
	if l.mostly(l.slots.drops()) {
		down = true
	}
	sure := l.hypotheses.quantile(0.75)-l.hypotheses.quantile(0.25) < 2*known*half
	n := l.center * math.Exp(half)
	switch {
	case sure && odd:
		n = l.center
	case down:
		n = l.center * math.Exp(-half)
		if !sure && !odd {
			n = min(n, max(math.Exp(l.hypotheses.quantile(lowest)), l.center/doubling))
		}
	}
	l.set(min(n, l.ceiling.most))
}

// set has the limit be about n. Where few run, a step of one is more than is needed to tell. Then it is
// made in so many of the slots that as much is told.
func (l *law) set(n float64) {
	c := math.Round(l.center)
	if step := n - c; math.Abs(step) < 1 {
		n = c
		const golden = 0.6180339887 // its multiples spread evenly
		if _, part := math.Modf(float64(l.now()>>1&0xffff) * golden); part < step*step {
			n += math.Copysign(1, step)
		}
	}
	l.limit = min(max(int(math.Round(n)), l.least), l.most)
}

func (l *law) why() string {
	if pause := l.guard.pause(); pause > 0 {
		return fmt.Sprintf("nothing for %.2g s, then one: the last %d timed out, and may still be worked on", float64(pause)/1e9, l.guard.row)
	}
	bounded := func(n float64) int { return int(min(max(math.Round(n), float64(l.least)), float64(l.most))) }
	n, tried := bounded(l.center), ""
	if l.limit != n {
		tried = fmt.Sprintf("; %d are tried now", l.limit)
	}
	switch {
	case l.limit == l.most:
		tried += "; more are not allowed"
	case l.limit == l.least && l.least > 1:
		tried += "; fewer are not allowed"
	}
	switch {
	case l.service == 0:
		return "nothing is known yet"
	case l.calm > 0:
		return fmt.Sprintf("%d at once are enough, as little waits", l.limit)
	case l.state == start:
		return fmt.Sprintf("%d at once, and more as long as requests take no longer%s", n, tried)
	case l.state == cut:
		return fmt.Sprintf("%d at once: of more, most were dropped", l.limit)
	case l.center >= l.ceiling.most:
		return fmt.Sprintf("%d at once for now: with more, requests take too much of the objective", l.limit)
	}
	low, high := bounded(math.Exp(l.hypotheses.quantile(0.05))), bounded(math.Exp(l.hypotheses.quantile(0.95)))
	return fmt.Sprintf("about %d at once do most; by what was seen, %d to %d%s", n, min(low, n), max(high, n), tried)
}
