package concurrency

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// Options are the bounds of a Law.
type Options struct {
	// Min is the least that may run at once: 1 if it is 0.
	Min int
	// Max is the most: DefaultMax if it is 0, or Min if that is more.
	Max int
}

// DefaultMax is how many may run at once at most, if nothing else is said.
const DefaultMax = 10_000

// Sample is one request that has ended.
type Sample struct {
	// Now is when it ended, and Began when its service began, both in nanoseconds on
	// one monotonic clock. Concurrent callers may pass slightly disordered times.
	Now, Began int64
	// Waiting says that work waited for a place when it ended, so that its place was
	// taken again at once.
	Waiting bool
	// Dropped says that it was no good: its time was up, or the resource refused it.
	// An answer that merely says no, as a 404 does, is not dropped.
	Dropped bool
}

// Law learns how many requests to run at once. Its methods may be called by any number
// of goroutines at once.
type Law struct {
	limit atomic.Int64

	mu struct {
		sync.Mutex
		law
	}
}

const (
	first      = 4    // where it begins
	startSlope = 0.45 // the slope at which the start ends
	startSure  = 0.7  // and how many standard errors more
	startSome  = 24   // requests that are enough to double again

	target     = 0.  // the gain below which more at once is not worth it
	leverLeast = 1.2 // one of the two limits that are compared, in parts of the other
	leverMost  = 1.25
	leverNoise = 0.43 // the logarithm of that, for each standard deviation of service times
	stepFirst  = 0.2  // the logarithm of a move
	stepLeast  = 0.06
	stepMost   = 0.4
	stepGrow   = 1.5
	far        = 0.4  // a gain that is surely more than that, twice: the start begins again
	sure       = 2.   // standard errors, to move
	known      = 0.12 // a standard error that is small enough to stay
	small      = 9    // below this, one more is so much that it is tried rarely
	holdMost   = 32   // blocks between two tries, then
	restTimes  = 8    // or so many times as long as the last try, if that is longer

	blockTimes = 2.5 // service times that a block lasts, at least
	blockNoise = 0.5 // and more, for each square of the noise
	blockEnds  = 8   // and completions, at least
	outlier    = 32  // a service time counts for so many times the mean at most
	jump       = 16  // service times, and a millisecond, that the clock may be disordered

	dropMost = 0.5 // the part that may be dropped before the limit is cut
	dropCut  = 0.6 // to that part

	calmShare  = 0.6  // the part of completions that find work waiting, below which little waits
	calmStart  = 0.5  // the same at the start
	busyBlocks = 3    // in a row that find more, before it swings again
	rare       = 0.02 // the part from which now and then something waits
	demandMost = 0.3  // and to which, in the mean of late
	riseTimes  = 1.25
	riseSlow   = 1.06 // the roots of service times may grow so much with a rise
	wallTimes  = 3.   // how many times as much as was once enough it may rise to
	wallForget = 1.02 // how fast that is forgotten, for each block
)

// New returns a law that begins at that time, or an error that says which bounds are
// wrong.
func New(now int64, o Options) (*Law, error) {
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
	l := &Law{}
	l.mu.law = newLaw(now, least, most)
	l.limit.Store(int64(l.mu.limit))
	return l, nil
}

// Limit returns how many may run at once now.
func (l *Law) Limit() int { return int(l.limit.Load()) }

// Why tells, in words for people, why the limit is what it is.
func (l *Law) Why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.said
}

// Completed is told of each request that has ended. It returns the limit, and whether
// that is another than before.
func (l *Law) Completed(s Sample) (limit int, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.mu.limit
	l.mu.learn(s)
	if l.mu.limit != before {
		l.limit.Store(int64(l.mu.limit))
	}
	return l.mu.limit, l.mu.limit != before
}

// state is what a law is doing.
type state uint8

const (
	starting state = iota // doubles
	swinging              // compares two limits
	resting               // keeps a small limit
	trying                // compares it with a neighbour
	free                  // too little waits to learn from
)

// law is what a Law does, without the lock.
type law struct {
	least, most int
	limit       int
	center      float64
	lever       float64 // logarithm of high over low
	low, high   int     // that are compared
	state       state
	up          bool // in the high one

	running int // at least so many run, as far as can be told
	service float64
	past    past
	waited  int     // of the present block
	step    float64 // the logarithm of the next move
	streak  float64 // the last move
	busy    int     // blocks in a row in which work waited all the time
	risen   float64 // the mean root of the service time when it rose last
	demand  float64 // the share of completions of late at which work waited
	wall    float64 // a limit past which more brought nothing
	noise   float64 // standard deviation of the service times, in parts of the mean
	hold    int     // blocks to rest between two tries
	rest    int     // that are left
	down    bool    // the next try is of the lower neighbour
	rested  float64 // mean root of the service time at rest
	since   int     // blocks in this state
	said    string  // why
}

func newLaw(now int64, least, most int) law {
	l := law{least: least, most: most, noise: 1, hold: 1, wall: math.Inf(1), step: stepFirst}
	l.center = float64(min(max(first, least), most))
	l.limit = int(l.center)
	l.past.begin(now, low, l.limit)
	l.said = "nothing is known yet"
	return l
}

func (l *law) learn(s Sample) {
	took := float64(max(0, s.Now-s.Began))
	if l.service == 0 {
		l.service = took
	}
	took = min(took, outlier*l.service+1)
	l.service += (took - l.service) / 64
	if float64(l.past.now().began-s.Now) > jump*l.service+1e6 {
		l.past.jumped(s.Now)
	}
	l.past.advance(s.Now, math.Log(float64(max(1, l.running))))
	if s.Waiting {
		l.running = max(l.limit, l.running-1)
		l.waited++
	} else {
		l.running = max(1, min(l.running, l.limit)-1)
	}
	l.past.add(s.Began, took, s.Dropped)
	b := l.past.now()
	if s.Waiting {
		b.begun++
	}
	if b.ended < blockEnds || b.n < blockEnds/2 || float64(s.Now-b.began) < l.times()*l.service {
		return
	}
	l.close()
	l.waited = 0
}

// close ends a block and decides on the next.
func (l *law) close() {
	b := l.past.now()
	waited := float64(l.waited) / float64(b.ended)
	l.demand += (waited - l.demand) / 16
	l.since++
	calm := calmShare
	if l.state == starting {
		calm = calmStart
	}
	if waited < calm {
		l.busy = 0
		if waited > rare && l.demand < demandMost {
			if mean := b.y[1] / max(1, b.n); l.risen == 0 || mean <= l.risen*(riseSlow+l.noise/math.Sqrt(max(1, b.n))) {
				l.center = min(l.center*riseTimes, float64(l.most), max(l.center, wallTimes*l.wall))
				l.risen = mean
			} else {
				l.wall, l.risen = l.center/wallTimes, 0
			}
			l.wall *= wallForget
			l.said = "work waits now and then, and not for long: more may run"
		}
		l.state, l.streak = free, 0
		l.turn(int(math.Ceil(l.center)), skip)
		return
	}
	if b.bad > dropMost*b.n && l.limit > l.least {
		l.center = max(l.center*dropCut, float64(l.least))
		l.wall = l.center
		l.said = fmt.Sprintf("%.0f of %.0f were dropped: fewer may run", b.bad, b.n)
		l.begin(skip)
		return
	}
	switch l.state {
	case free:
		l.risen = 0
		if l.busy++; l.busy < busyBlocks {
			l.turn(l.limit, skip)
			return
		}
		l.begin(skip)
	case starting:
		l.start()
	case swinging, trying:
		l.decide()
	case resting:
		mean := b.sums.y[0] / float64(b.n)
		if l.rested == 0 {
			l.rested = mean
		}
		if math.Abs(mean/l.rested-1) > 0.5+2*l.noise/math.Sqrt(float64(b.n)) {
			l.hold = 1
			l.rest = 0
		}
		l.rested += (mean - l.rested) / 8
		if l.rest--; l.rest <= 0 {
			l.try()
			return
		}
		l.turn(l.limit, skip)
	}
}

// turn begins a block with that limit.
func (l *law) turn(n int, arm arm) {
	l.limit = min(max(n, l.least), l.most)
	l.past.begin(l.past.at, arm, l.limit)
	l.past.now().begun = max(0, l.limit-l.running)
	l.running = max(l.running, l.limit)
}

// start doubles the limit, as long as service times do not grow with it.
func (l *law) start() {
	if l.past.now().arm == low || !l.past.block(l.past.n-2).whole() && l.since < 8 { // wait for what began in it
		l.turn(l.limit, skip)
		return
	}
	slope, se, grew := l.past.growth(false)
	if slope2, se2, grew2 := l.past.growth(true); slope2-startSure*se2 > slope-startSure*se {
		slope, se, grew = slope2, se2, grew2
	}
	l.said = fmt.Sprintf("at %d, each percent more at once has made requests take %.2f%% longer (give or take %.2f)", l.limit, slope, se)
	if l.since < 6 && l.past.seen() < startSome {
		l.turn(l.limit, low)
		return
	}
	l.since = 0
	if slope > startSlope+startSure*se || l.limit >= l.most {
		l.center = max(1, l.center*min(max(1.1/grew, 0.25), 0.9))
		l.wall = l.center
		l.begin(skip)
		return
	}
	l.center = min(l.center*2, float64(l.most))
	l.turn(int(l.center), low)
}

// begin begins to compare.
func (l *law) begin(a arm) {
	l.step, l.streak = stepFirst, 0
	l.swing(a)
}

// swing sets the two limits that are compared.
func (l *law) swing(a arm) {
	l.since = 0
	if l.center < small {
		l.center = math.Round(l.center)
		l.hold = 1
		l.try()
		return
	}
	l.state = swinging
	l.lever = min(max(math.Log(leverLeast), leverNoise*l.noise), math.Log(leverMost))
	l.low = max(l.least, int(math.Round(l.center*math.Exp(-l.lever/2))))
	l.high = min(l.most, max(l.low+1, int(math.Round(l.center*math.Exp(l.lever/2)))))
	l.past.forget()
	l.up = !l.up
	l.turn(l.side(), a)
}

// side is the limit of the present side.
func (l *law) side() int {
	if l.up {
		return l.high
	}
	return l.low
}

// other goes to the other of the two limits.
func (l *law) other() {
	l.up = !l.up
	a := low
	if l.up {
		a = high
	}
	l.turn(l.side(), a)
}

// try begins to compare a small limit with a neighbour.
func (l *law) try() {
	l.state = trying
	l.since = 0
	l.past.forget()
	n := int(l.center)
	l.low, l.high = n, min((3*n+1)/2, l.most)
	if l.down && n > l.least || l.high == n {
		l.low, l.high = max(2*n/3, l.least), n
	}
	l.up = l.limit == l.high
	l.other()
}

// decide moves the limit, if what has been seen says so.
func (l *law) decide() {
	slope, se, noise, ok := l.past.slope()
	if noise > 0 {
		l.noise = noise
	}
	if !ok {
		l.other()
		return
	}
	gain := 1 - slope
	off := gain - target
	if math.Abs(off) < sure*se && se > known {
		l.other()
		return
	}
	l.said = fmt.Sprintf("from %d to %d, each percent more at once brings %.2f%% more (give or take %.2f)", l.low, l.high, gain, se)
	if l.state == trying {
		l.tried(off > 0)
		return
	}
	l.wall = l.center
	if math.Abs(off) < sure*se {
		l.other()
		return
	}
	if off > 0 && l.streak > 0 && gain-se > far { // far from it
		l.restart(l.high)
		return
	}
	if off > 0 == (l.streak > 0) {
		l.step = min(l.step*stepGrow, stepMost)
	} else if l.streak != 0 {
		l.step = max(l.step/2, stepLeast)
	}
	if off > 0 {
		l.streak = min(l.step, max(0.6*(gain-se), 0.1))
	} else {
		l.streak = -min(l.step, max(0.5*(target-gain-se), 0.06))
	}
	l.center = min(max(l.center*math.Exp(l.streak), float64(l.least)), float64(l.most))
	a := skip
	if l.streak > 0 {
		a = low
		if !l.up {
			a = high
		}
	}
	l.swing(a)
}

// tried goes to the better of two neighbours.
func (l *law) tried(more bool) {
	n := int(l.center)
	to := l.low
	if more {
		to = l.high
	}
	if to == n {
		l.hold = min(2*l.hold, holdMost)
		l.down = !l.down
		l.state, l.rest, l.rested = resting, max(l.hold, restTimes*l.since), 0
		l.turn(n, skip)
		return
	}
	l.wall = float64(to)
	l.down = to < n
	l.center = float64(to)
	l.hold = 1
	if to >= small {
		l.begin(skip)
		return
	}
	l.try()
}

// times is how many service times a block lasts.
func (l *law) times() float64 {
	if l.state != swinging {
		return blockTimes
	}
	return blockTimes * (1 + blockNoise*min(l.noise*l.noise, 4))
}

// restart doubles the limit again, from there.
func (l *law) restart(n int) {
	l.state, l.since, l.streak, l.hold = starting, 0, 0, 1
	l.past.forget()
	l.turn(n, low)
	l.center = float64(l.limit)
}
