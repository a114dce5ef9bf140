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
//
// It begins with few and doubles, as long as service times do not grow with that. Then the
// limit swings between two values, a fifth apart, and goes where the gain of more is surely
// above or below nothing: by Little's law the rate is how many run divided by how long each
// takes, so one percent more at once is a gain while service times grow by less than one
// percent. A request counts for the limit under which it began. With few at once, a step is
// large, and the limit rests between tries.
//
// What is known at rest is remembered: how many ran, and how long they took. If requests
// take far longer than that, although not more of them run, the limit is cut by as much, and
// again until it helps no more. If they are far faster, or if a look far above the limit
// finds that they take no longer there, it doubles again. And if far more at once do no
// more than those at rest, it goes back to them. While nothing waits there is nothing to
// learn, and the limit grows no further than service times allow.
//
// docs/concurrency.md has the sources, and what it comes to.
type Law struct {
	limit atomic.Int64

	mu struct {
		sync.Mutex
		law
	}
}

// The start.
const (
	first      = 4    // where it begins
	startSlope = 0.45 // the slope at which it ends
	startSure  = 1.2  // and so many standard errors more, the first time
	startMore  = 2.   // standard errors, to know that more is a gain
	startMost  = 8    // blocks to find out
)

// The comparison of two limits.
const (
	leverLeast = 1.2  // one of the two in parts of the other, at least
	leverMost  = 1.25 // and at most
	leverNoise = 0.43 // the logarithm of that, for each standard deviation of service times
	stepFirst  = 0.2  // the logarithm of the first move
	stepLeast  = 0.06 // of the shortest
	stepMost   = 0.4  // and of the longest
	stepGrow   = 1.5  // moves in one direction grow by that
	clearly    = 0.4  // a gain that is surely more, twice: the start begins again
	sure       = 2.   // standard errors, to move
	known      = 0.12 // a standard error that is small enough to stay
)

// Blocks, in which the limit is constant.
const (
	blockTimes = 2.5 // service times that one lasts, at least
	blockNoise = 0.5 // and more, for each square of the noise
	blockEnds  = 4   // and requests that begin and end in it, at least
	blockGrow  = 12  // blocks without a decision, after which small limits have longer ones
	outlier    = 32  // a service time counts for so many times the mean at most
	jump       = 16  // service times, and a millisecond, that the clock may be disordered
)

// Small limits rest.
const (
	small     = 9  // below this, one more is so much that it is tried rarely
	holdMost  = 32 // blocks between two tries
	restTimes = 8  // or so many times as long as the last try, if that is longer
)

// Looks far above the limit, which see soon that there is room.
const (
	farTimes = 1.6 // times the limit is far above
	farEvery = 24  // blocks from one to the next
	farSmall = 14  // with a small limit
	farAfter = 4   // blocks later it is seen what came of it
	farAgain = 2   // blocks to the next, if that was too little to tell
	farSlope = 0.7 // surely less than that means room
	farSure  = 1.5 // standard errors
	farTell  = 0.2 // a standard error that is small enough to tell
)

// Cuts, when requests take far longer than usual.
const (
	cutLeast = 1.4  // times as long as usual, for another cut
	cutSame  = 0.85 // of the rate before it, for another cut
	fallSome = 16   // requests to see what a cut has brought
	dropMost = 0.5  // the part that may be dropped before the limit is cut
	dropCut  = 0.6  // to that part
)

// When little waits.
const (
	calmShare  = 0.6  // the part of completions that find work waiting, below which little waits
	calmStart  = 0.5  // the same at the start
	calmSome   = 64   // requests to see whether they take longer
	busyBlocks = 3    // in a row that find more, before it swings again
	rare       = 0.02 // the part from which now and then something waits
	riseTimes  = 1.25 // it rises by that
	riseSlow   = 1.1  // the roots of service times may grow so much in all
	wallTimes  = 3.   // times as much as was once enough it may rise to
	wallForget = 1.02 // how fast that is forgotten
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
	falling               // has been cut, as service times are far longer than usual
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
	refused int     // the same: dropped sooner than requests usually end
	step    float64 // the logarithm of the next move
	streak  float64 // the last move
	busy    int     // blocks in a row in which work waited all the time
	calm    sums    // of late, while little waits
	base    float64 // the mean root of the service time when this began
	wall    float64 // a limit past which more brought nothing
	noise   float64 // standard deviation of the service times, in parts of the mean
	hold    int     // blocks to rest between two tries
	rest    int     // that are left
	full    int     // with so many, most were dropped; 0 if there is no such number
	down    bool    // the next try is of the lower neighbour
	since   int     // blocks in this state
	again   bool    // the start is not the first
	usual   usual   // how many run at rest, and how long they take
	rate    float64 // of completions, before it was cut
	probe   int     // blocks until there is one far above
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
	if s.Dropped && took < l.service { // a refusal is not a fast request
		took = l.service
		l.refused++
	}
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
	if n := float64(l.limit); n < l.center*usualNear+1 && n > l.center/usualNear-1 {
		l.usual.add(s.Began, took, l.limit)
	}
	b := l.past.now()
	if s.Waiting {
		b.begun++
	}
	if ends, times := l.length(); b.n < ends || float64(s.Now-b.began) < times*l.service {
		return
	}
	l.close()
	l.waited, l.refused = 0, 0
}

// close ends a block and decides on the next.
func (l *law) close() {
	b := l.past.now()
	waited := float64(l.waited) / float64(b.ended)
	l.since++
	calm := calmShare
	if l.state == starting {
		calm = calmStart
	}
	if waited < calm {
		l.busy = 0
		l.loosen(waited)
		l.state, l.streak = free, 0
		l.turn(int(math.Ceil(l.center)), skip)
		return
	}
	if b.bad > dropMost*b.n && l.limit > l.least {
		// Time-outs come late, and may be of what began before, but refusals tell of this limit.
		switch above := l.limit > int(l.center) && float64(l.refused) > dropMost*float64(b.ended); {
		case above && l.state == trying:
			l.full = l.limit
			l.said = fmt.Sprintf("%.0f instead of %d at once: of those, most were dropped", l.center, l.limit)
			l.tried(false)
			return
		case above && l.state == resting: // a look up
			l.full = l.limit
			l.turn(int(l.center), low)
			return
		case above && l.state == swinging && l.limit > l.high: // the same
			l.other()
			return
		case above && l.state == swinging:
			l.center = float64(l.low)
		default:
			l.center = max(l.center*dropCut, float64(l.least))
		}
		l.wall = l.center
		l.said = fmt.Sprintf("%.0f of %.0f were dropped: fewer may run", b.bad, b.n)
		l.begin(skip)
		return
	}
	if l.state != starting && l.state != free && l.shifted() {
		return
	}
	switch l.state {
	case free:
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
		if l.reach() {
			return
		}
		if l.rest--; l.rest <= 0 {
			l.try()
			return
		}
		l.turn(int(l.center), low)
	}
}

// loosen lets more run, where work waits now and then, as long as service times do not
// grow with it, or as little as they did when this began.
func (l *law) loosen(waited float64) {
	b := l.past.now()
	if l.state != free {
		l.calm, l.base = sums{}, 0
	}
	if waited <= rare {
		return
	}
	l.calm.add(&b.sums)
	if l.calm.n < calmSome {
		return
	}
	mean := l.calm.y[1] / l.calm.n
	l.calm = sums{}
	if l.base == 0 {
		l.base = mean
	}
	if mean > l.base*riseSlow {
		l.wall = l.center / wallTimes
	} else {
		l.center = min(l.center*riseTimes, float64(l.most), max(l.center, wallTimes*l.wall))
		l.said = "work waits now and then, and not for long: more may run"
	}
	l.wall *= wallForget
}

// turn begins a block with that limit.
func (l *law) turn(n int, arm arm) {
	l.limit = min(max(n, l.least), l.most)
	l.past.begin(l.past.at, arm, l.limit)
	l.past.now().begun = max(0, l.limit-l.running)
	l.running = max(l.running, l.limit)
}

// start doubles the limit, as long as service times do not grow with it. The present
// limit is compared with all before it, with those without the last, and with the last
// alone: what grows only now is little in the mean since the start.
func (l *law) start() {
	slope, se, grew := l.past.growth(1, l.limit/2)
	if grew == 0 { // wait for what began with this limit
		l.turn(l.limit, low)
		return
	}
	for _, of := range [][2]int{{1, l.limit / 4}, {l.limit / 2, l.limit / 2}} {
		if slope2, se2, grew2 := l.past.growth(of[0], of[1]); slope2-startSure*se2 > slope-startSure*se {
			slope, se, grew = slope2, se2, grew2
		}
	}
	least := startSlope + startSure*se
	if l.again {
		least = startSlope
	}
	if slope < least && slope+startMore*se > 1 && l.since < startMost {
		l.turn(l.limit, low)
		return
	}
	l.since = 0
	if slope > least || l.limit >= l.most {
		l.center = max(1, l.center*min(max(1.1/grew, 0.25), 0.9))
		l.said = fmt.Sprintf("%.0f instead of %d at once: with those, requests took %.1f times as long", l.center, l.limit, grew)
		l.wall = l.center
		l.begin(skip)
		return
	}
	l.center = min(l.center*2, float64(l.most))
	l.said = fmt.Sprintf("%.0f at once: with %d, requests took no longer", l.center, l.limit)
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
	if l.reach() {
		return
	}
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
	if l.full <= n {
		l.full = 0
	} else { // halfway
		l.high = min(l.high, max(n+1, (n+l.full)/2))
	}
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
	if math.Abs(gain) < sure*se && se > known {
		l.other()
		return
	}
	l.said = fmt.Sprintf("%d instead of %d at once: more brought nothing", l.low, l.high)
	if gain > 0 {
		l.said = fmt.Sprintf("%d instead of %d at once: more brought more", l.high, l.low)
	}
	if l.state == trying {
		l.tried(gain > 0)
		return
	}
	l.wall = l.center
	if math.Abs(gain) < sure*se {
		l.other()
		return
	}
	if gain > 0 && l.streak > 0 && gain-se > clearly { // far from it
		l.restart(l.high)
		return
	}
	if gain > 0 == (l.streak > 0) {
		l.step = min(l.step*stepGrow, stepMost)
	} else if l.streak != 0 {
		l.step = max(l.step/2, stepLeast)
	}
	if gain > 0 {
		l.streak = min(l.step, max(0.6*(gain-se), 0.1))
	} else {
		l.streak = -min(l.step, max(0.5*(-gain-se), stepLeast))
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
		l.state, l.rest = resting, max(l.hold, restTimes*l.since)
		l.past.forget()
		l.turn(n, low)
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

// length is how many requests that begin and end in it, and how many service times, a
// block lasts at least. Small limits have longer ones the longer nothing can be decided:
// only so many blocks are compared, so blocks of one length would never tell enough.
func (l *law) length() (ends, times float64) {
	k := 1.
	switch l.state {
	case trying:
		k += float64(l.since / blockGrow)
	case swinging:
		return blockEnds, blockTimes * (1 + blockNoise*min(l.noise*l.noise, 4))
	}
	return k * blockEnds, k * blockTimes
}

// reach has a block far above the limit now and then, and begins the start again if
// that finds room. It reports whether it has begun a block.
func (l *law) reach() bool {
	l.probe--
	switch {
	case l.probe > 0:
		return false
	case l.probe == 0:
		if n := min(int(math.Ceil(l.center*farTimes)), l.most); n > l.limit {
			l.turn(n, far)
			return true
		}
	case l.probe > -farAfter:
		return false
	}
	l.probe = farEvery
	if l.state != swinging {
		l.probe = farSmall
	}
	slope, se := l.past.room()
	if slope+farSure*se < farSlope {
		l.said = fmt.Sprintf("with %d at once requests took no longer: more may run", min(int(math.Ceil(l.center*farTimes)), l.most))
		l.restart(int(l.center))
		return true
	}
	if slope < farSlope && se > farTell {
		l.probe = farAgain
	}
	return false
}

// shifted reports whether what is known holds no more, or tells to go back to it. Then
// it begins a block.
func (l *law) shifted() bool {
	u := &l.usual
	if l.state == falling {
		limit, root := u.mean()
		switch {
		case !u.some(fallSome):
			l.turn(l.limit, skip)
		case u.longer() > cutLeast && limit/root/root > cutSame*l.rate && l.limit > l.least:
			l.cut(u.longer())
		default:
			u.forget(l.past.at, float64(l.limit))
			l.restart(l.limit)
		}
		return true
	}
	switch u.look() {
	case slower:
		_, root := u.mean()
		b := l.past.now()
		l.rate = min(float64(b.ended)/float64(max(1, l.past.at-b.began)), float64(l.limit)/root/root)
		l.cut(u.longer())
	case faster:
		l.said = fmt.Sprintf("requests are %.1f times as fast as they were: more may run", 1/u.longer())
		u.forget(l.past.at, float64(l.limit))
		l.restart(l.limit)
	case noBetter:
		if l.center < small && math.Round(u.limit) >= l.center { // it is there, and tries
			u.clear()
			return false
		}
		l.said = fmt.Sprintf("%.0f instead of %d at once: more brought nothing", u.limit, l.limit)
		l.center = u.limit
		u.fresh(l.past.at, l.center)
		l.begin(skip)
	default:
		return false
	}
	return true
}

// cut has fewer run, as requests take k times as long as usual. By Little's law that is
// what can be done in the usual time.
func (l *law) cut(k float64) {
	l.said = fmt.Sprintf("requests take %.1f times as long as they did: fewer may run", k)
	l.center = math.Max(math.Ceil(float64(l.limit)/k), float64(l.least))
	l.past.forget()
	l.state, l.since, l.streak, l.hold = falling, 0, 0, 1
	l.turn(int(l.center), skip)
	l.usual.fresh(l.past.at, l.center)
}

// restart doubles the limit again, from there.
func (l *law) restart(n int) {
	l.state, l.since, l.streak, l.hold, l.full = starting, 0, 0, 1, 0
	l.past.forget()
	l.turn(n, low)
	l.center = float64(l.limit)
	l.again = true
}
