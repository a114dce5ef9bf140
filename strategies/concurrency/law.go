package concurrency

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the bounds of a Law.
type Options struct {
	// Min is the least that may run at once: 1 if it is 0, and none in a pause then.
	Min int
	// Max is the most: DefaultMax if it is 0, or Min if that is more.
	Max int
	// Initial is how many run at once at first: 4, or the nearest bound, if it is 0.
	Initial int
	// Objective, if not nil, returns within which time answers should come, or 0. It is
	// called at times, and must not block.
	Objective func() time.Duration
}

// DefaultMax is how many may run at once at most, if nothing else is said.
const DefaultMax = 10_000

// Sample is one request that has ended.
type Sample struct {
	// Now is when it ended, and Began when its service began, both in nanoseconds on
	// one monotonic clock. Concurrent callers may pass slightly disordered times.
	Now, Began int64
	// Running is how many ran when it ended, itself included.
	Running int
	// Waiting says that work waited for a place when it ended, so that its place was
	// taken again at once.
	Waiting bool
	// Dropped says that it was no good: its time was up, or the resource refused it.
	// An answer that merely says no, as a 404 does, is not dropped.
	Dropped bool
}

// Law learns how many requests to run at once. Its methods may be called by any number
// of goroutines at once.
//
// Time goes by in blocks, in which the limit is constant. By Little's law the rate is how
// many run divided by how long each takes, so it is enough to know how service times grow
// with how many run. The law has some hundred hypotheses of that, curves with another best
// number each. How service times differ between blocks makes some more probable than
// others. Where requests are either short or long, the two are compared each with their own,
// so that it does not matter how many of a block are long. The limit is about the one that
// loses least in the mean of all curves. Every other block it varies by as much as is not
// known, which is how more is learned.
//
// If requests take far longer or shorter than they did with as many, what was learned is
// doubted. If much time is lost to requests that time out, few run for a moment, to see whether
// the resource goes on with those; if many in a row do under the least limit, nothing begins for
// a while. Now and then a block far above the limit sees whether there is room. While little waits
// there is nothing to learn, and the limit grows no further than service times allow.
//
// docs/concurrency.md has the sources, and what it comes to.
type Law struct {
	limit, pause atomic.Int64

	mu struct {
		sync.Mutex
		law
	}
}

// Blocks.
const (
	first       = 4       // the limit of the first, if nothing else is said
	blockTimes  = 2.5     // service times that one lasts, at least
	blockEnds   = 4       // requests that begin and end in it, at least
	blockLeast  = 1e5     // nanoseconds that it lasts, at least, as its end costs CPU
	blockError  = 0.25    // and as many as make the standard error of their mean that
	blockMost   = 4096    // but not more
	outlier     = 32      // a service time counts for so many times the mean at most
	typicalMost = 4       // the same for the typical one
	serviceOver = 64      // requests of which it is the mean, or as many as run
	jump        = 16      // service times, and a millisecond, that the clock may be disordered
	latest      = 1 << 61 // no time is later, or earlier than minus that, so that differences do not overflow
	grows       = 1.4     // times what was compared, and the limit grows
	growTimes   = 2       // service times of a block then
	growEnds    = 24      // and requests that are enough
	firstBlocks = 16      // in which it does not while some are dropped late
	startBlocks = 12      // are shorter than those in which it grows later
	startTimes  = 1       // service times that one of these lasts, at least
	startEnds   = 6       // requests that are enough for one of these
	slowMost    = 8       // times the first limit is the most before anything was compared
	slowTimes   = 1.5     // times as long as the first took in the mean, and it grows no more
)

// early are the requests before anything was compared.
type early struct{ first, all stratum }

// short reports whether requests take hardly longer, now that one took so long, than the first did
// that ran with that initial limit.
func (e *early) short(took float64, initial int) bool {
	e.all.request(took)
	if e.first.n < float64(initial) {
		e.first.request(took)
		return false
	}
	return e.all.y*e.first.n <= slowTimes*e.first.y*e.all.n
}

// Looks far above the limit, which see whether there is room.
const (
	farTimes = 1.6   // times the limit
	farEvery = 24    // blocks from one to the next, at most
	farLeast = 8     // and at least
	farLoss  = 0.003 // of the rate, that they are worth
	farAgain = 2     // blocks to the next, if requests took less long there than was expected
)

// When little waits.
const (
	calmShare  = 0.6  // the part of completions that find work waiting, below which little waits
	calmFull   = 0.8  // unless that part of the places is taken
	calmSome   = 64   // requests to see whether they take longer
	calmBlocks = 4    // in which little waits, and it may rise when more does
	busyBlocks = 3    // in a row that find more, before it learns again
	rare       = 0.02 // the part from which now and then something waits
	riseTimes  = 1.25 // it rises by that
	riseSlow   = 1.2  // service times may grow so much in all
)

// New returns a law that begins with the first request it is told of, or an error that says
// which bounds are wrong.
func New(o Options) (*Law, error) {
	if o.Min < 0 || o.Max < 0 {
		return nil, fmt.Errorf("concurrency: at least %d, at most %d: neither may be less than 0", o.Min, o.Max)
	}
	least := max(o.Min, 1)
	most := o.Max
	if most == 0 {
		most = max(DefaultMax, least)
	}
	if least > most {
		return nil, fmt.Errorf("concurrency: at least %d is more than at most %d", least, most)
	}
	if o.Initial != 0 && (o.Initial < least || o.Initial > most) {
		return nil, fmt.Errorf("concurrency: %d at first, %d to %d is allowed, or 0 for the default", o.Initial, least, most)
	}
	l := &Law{}
	l.mu.law = newLaw(least, most, cmp.Or(o.Initial, min(max(first, least), most)))
	l.mu.ceiling = newCeiling(o.Objective)
	l.limit.Store(int64(l.mu.limit))
	return l, nil
}

// Bounds returns the bounds, with their defaults.
func (l *Law) Bounds() Options { return Options{Min: l.mu.least, Max: l.mu.most} } // which never change

// Limit returns how many may run at once now.
func (l *Law) Limit() int { return int(l.limit.Load()) }

// Service returns how long requests take of late, in nanoseconds, or 0 before the first has
// ended. A few that take far longer change it little.
func (l *Law) Service() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.mu.typical)
}

// Pause returns how long nothing may begin after an end, in nanoseconds: 0 as a rule. Then one
// request may begin, and what becomes of it decides whether there is another pause.
func (l *Law) Pause() int64 { return l.pause.Load() }

// Why tells, in words for people, why the limit is what it is.
func (l *Law) Why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.why()
}

// Completed is told of each request that has ended. It returns the limit, and whether
// that is another than before, or a pause has begun or is over.
func (l *Law) Completed(s Sample) (limit int, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, pause := l.mu.limit, l.mu.guard.pause()
	l.mu.learn(s)
	if l.mu.limit != before {
		l.limit.Store(int64(l.mu.limit))
	}
	now := l.mu.guard.pause()
	if now != pause {
		l.pause.Store(now)
	}
	return l.mu.limit, l.mu.limit != before || (now > 0) != (pause > 0)
}

// state is why the limit is what it is.
type state uint8

const (
	unknown  state = iota // nothing has been compared
	growing               // more at once was no worse so far
	known                 // about that is best
	cut                   // more were dropped
	relieved              // so that the resource can be done with what timed out
	loose                 // too little waits to learn from
	rising                // much waits again, and the resource may do more than it could
)

// law is what a Law does, without the lock.
type law struct {
	least, most int
	limit       int
	center      float64 // about which the limit moves
	state       state

	past    past
	service float64 // the mean service time of late
	typical float64 // the same, of which long ones are a smaller part
	waited  int     // completions of the present block that found work waiting
	taken   float64 // the integral of how many of the places were taken in it
	offered float64 // and of how many there were

	initial int // the first limit
	early   early

	curves curves
	noise  noise   // of late
	ends   float64 // by that, how many requests begin and end in a block, at least
	seen   int64   // blocks of the past that have been compared
	last   figures // of the latest of them
	probe  int     // blocks until there is one far above

	calm int // blocks in which little waited, since that began
	busy int // in a row in which that was no longer so

	timeouts timeouts
	drops    drops
	relief   relief
	guard    guard
	ceiling  ceiling

	some stratum // the requests of late, while little waits
	base float64 // their mean service time when this began
}

func newLaw(least, most, initial int) law {
	l := law{least: least, most: most, curves: newCurves(least, most), probe: farEvery, relief: newRelief(), guard: newGuard()}
	l.limit, l.initial = initial, initial
	l.center = float64(l.limit)
	l.curves.tried = l.center / doubling
	l.measure()
	return l
}

func (l *law) learn(s Sample) {
	s.Now, s.Began = min(max(s.Now, -latest), latest), min(max(s.Began, -latest), latest)
	took := float64(max(1, s.Now-s.Began)) // a time of 0 has no logarithm
	if l.past.n == 0 {
		l.service, l.typical = took, took
		l.past.begin(min(s.Began, s.Now), near, l.limit, 0)
		l.relief.began = l.past.at
		l.noise.generations.begin(l.past.at, l.limit)
	}
	took = min(took, outlier*l.service+1)
	// As many begin at once as the limit rises by, and the short of these end first.
	over := max(serviceOver, float64(s.Running))
	l.service += (took - l.service) / over
	l.typical += (min(took, typicalMost*l.typical+1) - l.typical) / over
	long := jump*l.service + 1e6
	if float64(l.past.now().began-s.Now) > long {
		l.jumped(s.Now)
	} else if float64(s.Began-l.past.at) > long { // nothing has ended for long
		l.jumped(s.Began)
	}
	if d := float64(s.Now - l.past.at); d > 0 {
		l.taken += d * float64(min(s.Running, l.limit))
		l.offered += d * float64(l.limit)
	}
	l.past.advance(s.Now, math.Log(float64(max(1, s.Running))))
	l.past.add(s.Began, took, s.Dropped)
	l.noise.generations.end(s.Now)
	if s.Waiting {
		l.waited++
	}
	b := l.past.now()
	if s.Dropped {
		b.dropped++
	}
	if l.state == unknown && l.past.n <= startBlocks && s.Waiting && !s.Dropped && l.early.short(took, l.initial) && l.limit < slowMost*l.initial {
		l.limit = min(l.limit+1, l.most)
		l.center = float64(l.limit)
		l.curves.tried = max(l.curves.tried, l.center/doubling)
	}
	late := l.timeouts.ended(took, s.Dropped)
	if late {
		b.late++
	}
	l.relief.ended(took, s.Dropped, late)
	l.guard.ended(&s, late, l.limit == l.least && s.Waiting)
	ends, times := l.ends, blockTimes
	switch {
	case l.overloads(b), l.relief.phase == relieving: // nothing is compared
		ends, times = blockEnds, dropTimes
	case l.state != unknown && l.state != growing:
	case l.past.n <= startBlocks: // all that has come meanwhile waits for the limit to grow
		ends, times = min(ends, startEnds), startTimes
	default:
		ends, times = min(ends, growEnds), growTimes
	}
	if b.n < ends || float64(s.Now-b.began) < max(times*l.service, blockLeast) {
		return
	}
	l.past.close(s.Running)
	l.next(s.Running - 1)
	l.waited, l.taken, l.offered = 0, 0, 0
}

// jumped goes on at another time.
func (l *law) jumped(now int64) {
	l.past.jumped(now)
	l.waited, l.taken, l.offered = 0, 0, 0
	l.noise.generations.void()
	l.relief.jumped(now)
}

// next begins the next block.
func (l *law) next(running int) {
	b := l.past.now()
	if n := l.relieve(); n > 0 {
		b.arm, l.state = skip, relieved
		l.turn(n, skip, running)
		return
	}
	l.ceiling.follow(l.service, l.limit)
	l.center = min(l.center, l.relief.cap, l.ceiling.most)
	if waited := float64(l.waited) / float64(b.ended); waited < calmShare && l.taken < calmFull*l.offered {
		l.busy, b.arm, l.drops.uncut = 0, skip, 0
		l.noise.generations.void()
		if l.calm == 0 {
			l.some, l.base = stratum{}, 0
		}
		if l.overloads(b) && b.slow() { // too many run, whatever waits
			l.center = max(float64(l.least), min(l.center, math.Ceil(float64(l.limit)*l.taken/l.offered)))
		} else if waited > rare {
			l.rises()
		}
		l.calm++
		l.state = loose
		l.turn(int(math.Ceil(l.center)), skip, running)
		return
	}
	if l.calm > 0 {
		// One that is overloaded is calm but for a moment.
		most := min(doubling*l.curves.tried, l.relief.cap, float64(l.most))
		if l.calm >= calmBlocks && l.center < most && float64(b.dropped) <= manyLate*float64(b.ended) && l.rises() {
			l.state = rising
			l.turn(int(math.Ceil(l.center)), skip, running)
			return
		}
		if l.busy++; l.busy < busyBlocks {
			l.turn(l.limit, skip, running)
			return
		}
		l.calm = 0
		l.curves.tried = max(l.curves.tried, l.center/doubling)
	}
	if l.dropped(b) {
		l.turn(int(l.center), skip, running)
		return
	}
	l.compare()
	l.choose(running)
}

// compare tells the curves of the blocks of which nearly all has ended.
func (l *law) compare() {
	if l.seen < l.past.from {
		l.seen, l.last.known = l.past.from, false
	}
	for last := l.past.ended(); l.seen < last; l.seen++ {
		b := l.past.block(l.seen)
		if b.arm == skip || b.n < blockEnds {
			continue
		}
		l.noise.add(b)
		l.measure()
		f := l.noise.figures(b)
		if !l.last.known {
			l.curves.start(f.x)
		} else {
			if l.curves.learn(f.x, l.noise.difference(&f, &l.last)) && b.arm == far {
				l.probe = farAgain
				l.curves.hope(f.x)
			}
			l.curves.tried = max(float64(b.limit), l.curves.tried*triedForget)
		}
		l.last = f
	}
}

// measure has blocks be as long as the noise demands.
func (l *law) measure() {
	if !l.past.strata.split() || l.center < mixFew && !l.noise.mix.same() {
		l.noise.strata = [2]stratum{}
	}
	l.ends = min(max(blockEnds, math.Pow(l.noise.spread(l.noise.clearest())/blockError, 2)), blockMost)
}

// choose begins a block with a limit near the one that loses least.
func (l *law) choose(running int) {
	var n float64
	l.center, n = l.curves.choose()
	switch {
	case !l.last.known:
		l.state = unknown
	case l.center > grows*l.curves.tried:
		l.state = growing
	default:
		l.state = known
	}
	arm := near
	if l.probe--; l.probe <= 0 {
		n, arm = l.center*farTimes, far
		l.probe = int(min(max(farLeast, l.curves.loss(farTimes)/farLoss), farEvery))
	}
	n = min(n, doubling*l.curves.tried)
	// If the resource goes on with what timed out, more is inside than counts.
	if b := l.past.now(); float64(b.late) > manyLate*float64(b.ended) && l.seen <= firstBlocks {
		l.center = min(l.center, l.curves.tried)
		n, arm = min(n, l.center), near
	}
	l.turn(int(math.Round(n)), arm, running)
}

// turn begins a block with that limit, while so many run.
func (l *law) turn(n int, arm arm, running int) {
	n = int(min(float64(n), l.relief.cap, l.ceiling.most))
	l.limit = min(max(n, l.least), l.most)
	l.past.begin(l.past.at, arm, l.limit, running)
	l.noise.generations.begin(l.past.at, l.limit)
}

// rises lets more run, where work waits, as long as requests take hardly longer with it than they
// did when this began. It reports whether they do not, or that it is not known yet.
func (l *law) rises() bool {
	b := l.past.now()
	l.some.n, l.some.y = l.some.n+b.n, l.some.y+b.w
	if l.some.n < calmSome {
		return true
	}
	mean := l.some.y / l.some.n
	l.some = stratum{}
	if l.base == 0 {
		l.base = mean
	}
	if mean > l.base*riseSlow {
		return false
	}
	l.center = min(l.center*riseTimes, float64(l.most))
	return true
}

func (l *law) why() string {
	if pause := l.guard.pause(); pause > 0 {
		return fmt.Sprintf("nothing for %.2g s, then one: the last %d timed out, and may still be worked on", float64(pause)/1e9, l.guard.row)
	}
	bounded := func(n int) int { return min(max(n, l.least), l.most) }
	n, tried := bounded(int(math.Round(l.center))), ""
	if l.limit != n {
		tried = fmt.Sprintf("; %d are tried now", l.limit)
	}
	switch l.limit {
	case l.most:
		tried += "; more are not allowed"
	case l.least:
		if l.least > 1 {
			tried += "; fewer are not allowed"
		}
	}
	if (l.state == growing || l.state == known) && l.center > l.relief.cap+0.5 {
		return fmt.Sprintf("%d at once for now: of more, too many timed out", l.limit)
	}
	if (l.state == growing || l.state == known) && l.center > l.ceiling.most+0.5 {
		return fmt.Sprintf("%d at once for now: with more, requests take too much of the objective", l.limit)
	}
	switch l.state {
	case growing:
		return fmt.Sprintf("%d at once, and more as long as that brings more%s", n, tried)
	case known:
		low, high := l.curves.between()
		return fmt.Sprintf("about %d at once do most; by what was seen, %d to %d%s", n, bounded(low), bounded(high), tried)
	case cut:
		return fmt.Sprintf("%d at once: of more, most were dropped", l.limit)
	case relieved:
		return fmt.Sprintf("%d at once for a moment: of %d, many timed out, and may still be worked on", l.limit, bounded(l.relief.limit))
	case rising:
		return fmt.Sprintf("%d at once, and more as long as requests take no longer", l.limit)
	case loose:
		return fmt.Sprintf("%d at once are enough, as little waits", l.limit)
	default:
		return "nothing is known yet"
	}
}
