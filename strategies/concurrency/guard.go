package concurrency

import "math"

// guard is a circuit breaker (Nygard 2007) for a resource that is lost in work for nobody. It may
// go on with requests that timed out, and be slower the more it has inside. Then even the least
// that may run may give it more to do than it gets rid of, and all that begins times out, for
// ever, unless nothing begins for a while.
//
//	state    it moves on                                     it promises
//	closed   to open, when as many in a row as it takes      the law alone says how many run
//	         timed out, with the least limit, while work waits
//	open     to closed, when one is good                     nothing begins for as long as the last one
//	                                                         took, then twice as long each time; then one
//
// It takes 8 in a row, and each time twice as many until 32 were good. So it never opens while the
// resource answers somebody, or was not full. Where a least number is asked for, the dispatcher
// lets that many begin all the same.
type guard struct {
	row     int     // so many in a row timed out
	opens   int     // so many, and it opens
	healthy int     // how many were good since it was open
	took    float64 // nanoseconds that the last took that timed out
	since   int64   // when that was
}

const (
	guardRow     = 8    // requests in a row: fewer may time out by chance
	guardAgain   = 2    // times as many, if it opens soon again: they may time out whatever runs
	guardRows    = 4096 // requests at most, so that it still opens
	guardHealthy = 32   // good requests, and that is no longer soon
	guardPause   = 16   // times as long as one took that timed out is a pause, at most, and
	guardMost    = 1e10 // nanoseconds: people wait for its end
)

func newGuard() guard { return guard{opens: guardRow} }

// open reports whether nothing may begin for now.
func (g *guard) open() bool { return g.row >= g.opens }

// ended notes that a request has ended, whether it timed out, and whether the limit was the least
// and work waited. Those that ran already when it opened do not have it open for longer.
func (g *guard) ended(s *Sample, late, full bool) {
	switch {
	case late && (g.open() && s.Began >= g.since || !g.open() && full):
		g.row++
		g.took, g.since = float64(s.Now-s.Began), s.Now
	case !s.Dropped:
		g.healthy++
		if g.open() {
			g.opens, g.healthy = min(guardAgain*g.opens, guardRows), 0
		} else if g.healthy >= guardHealthy {
			g.opens = guardRow
		}
		g.row = 0
	}
}

// pause returns how long nothing may begin, in nanoseconds: as long as one took that timed out at
// first, and then twice as long each time. It is 0 if requests may begin.
func (g *guard) pause() int64 {
	if !g.open() {
		return 0
	}
	times := min(math.Exp2(float64(g.row-g.opens)), guardPause)
	return int64(min(times*g.took, guardMost))
}
