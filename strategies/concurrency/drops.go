package concurrency

import "math"

// When most requests are dropped.
const (
	dropMost   = 0.5  // the part that may be dropped before the limit is cut
	dropSure   = 2.   // and so many standard errors more
	dropTimes  = 1    // and so many service times a block lasts then, before more is overloaded
	dropCut    = 0.4  // to that part
	cutHelps   = 6    // more that are good than dropped, and that has helped
	cutSome    = 32   // requests to see whether that has helped
	dropAll    = 0.9  // the part that says nothing of what is dropped whatever the limit
	anywayOver = 32   // blocks to forget what is dropped anyway
	manyLate   = 0.02 // the part of requests that time out that is many
)

// timeouts tell requests that timed out from those that were refused: they took longer than those
// that are good do. All seem to have until one is good.
type timeouts struct{ good, late float64 } // how long these, and those, take of late

const lateOver = 16 // that time out, of which late is the mean

// ended notes that a request has ended, and reports whether it timed out.
func (t *timeouts) ended(took float64, dropped bool) bool {
	follow := func(mean *float64, over float64) {
		if *mean == 0 {
			*mean = took
		}
		*mean += (took - *mean) / over
	}
	switch {
	case !dropped:
		follow(&t.good, serviceOver)
		return false
	case took <= t.good:
		return false
	}
	follow(&t.late, lateOver)
	return true
}

// drops tell those for the limit from those that there are anyway.
type drops struct {
	anyway float64 // the part of requests that is dropped whatever the limit
	uncut  float64 // the center before the limit was cut, until it is known whether that has helped
	over   int     // the least limit that was cut
	good   float64 // requests since
	bad    float64 // and those that were dropped
}

// overloads reports whether more than half of the requests that are not dropped anyway were
// dropped, and more than by chance: of those that began in the block, and of those that ended
// in it, as what is refused at once ends first.
func (l *law) overloads(b *block) bool {
	most := l.drops.anyway + dropMost*(1-l.drops.anyway)
	over := func(bad, n float64) bool { return bad >= most*n+dropSure/2*math.Sqrt(n) }
	return over(b.bad, b.n) && over(float64(b.dropped), float64(b.ended))
}

// slow reports whether most of those that were dropped in a block timed out.
func (b *block) slow() bool { return 2*b.late > b.dropped }

// dropped sees whether most requests of a block were dropped, and reports whether the limit is
// cut. It stays so until that has helped, or enough were dropped to say that it does not. Then
// they are dropped whatever the limit, which is again what it was; unless nearly all are, of
// which nothing can be said.
func (l *law) dropped(b *block) bool {
	d, over := &l.drops, l.overloads(b)
	if over {
		b.arm = skip
	} else {
		d.anyway = min(d.anyway, d.anyway+(b.bad/max(1, b.n)-d.anyway)/anywayOver)
	}
	more := over && l.limit > l.least
	if d.uncut == 0 {
		if more && float64(l.limit) > math.Ceil(l.center) { // it was but a try
			l.curves.doubt(math.Log(float64(l.limit)))
			more = false
		}
		if !more {
			return false
		}
		d.uncut = l.center
	}
	if more {
		d.over, l.center = l.limit, max(dropCut*float64(l.limit), float64(l.least))
		d.good, d.bad = 0, 0
		l.state = cut
	} else {
		d.good, d.bad = d.good+b.n-b.bad, d.bad+b.bad
		switch n, helped := d.good+d.bad, d.good-d.bad >= cutHelps; {
		case !helped && n < cutSome:
			return true
		case !helped && d.bad > dropMost*n && d.bad < dropAll*n:
			d.anyway, l.center = d.bad/n, d.uncut
		default:
			l.curves.doubt(math.Log(float64(d.over)))
		}
		d.uncut = 0
	}
	l.curves.tried = l.center / doubling
	return more
}
