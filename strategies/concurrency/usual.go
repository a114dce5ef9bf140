package concurrency

import "math"

// usual is what is known of the resource at rest: how many run, and how long they take.
// By Little's law that is a rate, which more at once has to beat. Means of roots of
// service times are compared: the few that take long say less.
type usual struct {
	means float64 // of how many means it is, at first: nothing is usual before that
	root  float64 // the mean root of the service time
	limit float64
	noise float64 // the standard deviation of service times in parts of the mean, by their roots
	since int64   // requests count that began since then
	skip  float64 // so many do not count, as those that end first are short

	// Those that have ended since something was decided.
	n, sum, squares, limits float64
}

const (
	usualSome  = 48   // requests, for a mean
	usualMeans = 4    // means, to know what is usual
	skipTimes  = 2    // service times until those that end are like all others
	usualSpeed = 16   // blocks in which it follows
	usualNear  = 1.25 // times as many at once, or as few, are as usual
	oddRatio   = 1.5  // times as long, at least, is odd
	oddSure    = 2.5  // and so many standard errors more
	worth      = 0.05 // percent that are done more for each percent more at once
	worthSure  = 0.2  // a standard error that is small enough to say so
)

// verdict is what usual says of the present.
type verdict uint8

const (
	asUsual  verdict = iota
	slower           // surely, although not more run
	faster           // surely
	noBetter         // with far more at once no more is done
)

func (u *usual) add(began int64, took float64, limit int) {
	if began < u.since {
		return
	}
	if u.skip--; u.skip < 0 {
		u.n++
		u.sum += math.Sqrt(took)
		u.squares += took
		u.limits += float64(limit)
	}
}

// fresh has only requests count that begin from now on, with so many at once.
func (u *usual) fresh(now int64, limit float64) {
	u.since, u.skip = now, limit*(skipTimes+min(u.noise*u.noise, skipTimes))
	u.clear()
}

// clear begins another mean.
func (u *usual) clear() { u.n, u.sum, u.squares, u.limits = 0, 0, 0, 0 }

// forget begins anew to learn what is usual.
func (u *usual) forget(now int64, limit float64) {
	*u = usual{noise: max(u.noise, 1)}
	u.fresh(now, limit)
}

// mean returns the mean limit and root of the service time of late.
func (u *usual) mean() (limit, root float64) { return u.limits / u.n, max(1, u.sum/u.n) }

// longer returns how many times as long as usual requests take.
func (u *usual) longer() float64 {
	_, root := u.mean()
	return (root / u.root) * (root / u.root)
}

// look compares the present with it.
func (u *usual) look() verdict {
	if u.n == 0 {
		return asUsual
	}
	if u.means < usualMeans {
		if u.some(usualSome) && u.n >= u.limits/u.n {
			u.move(1 / (u.means + 1))
			u.means++
		}
		return asUsual
	}
	limit, _ := u.mean()
	lever, longer := math.Log(limit/u.limit), math.Log(u.longer())
	se := u.noise / math.Sqrt(u.n)
	many := u.n >= limit && u.some(fallSome)
	switch off := math.Log(oddRatio) + oddSure*se; {
	case many && longer-max(0, lever) > off:
		return slower
	case many && longer-min(0, lever) < -off:
		return faster
	case math.Abs(lever) < math.Log(usualNear):
		if math.Abs(longer-lever) < math.Log(oddRatio) || u.some(8*usualSome) {
			u.move(1. / usualSpeed)
		}
	case se < worthSure*math.Abs(lever) && u.some(usualSome):
		more := (lever - longer) / lever
		switch {
		case lever > 0 && more < worth:
			return noBetter
		case lever > 0 || more < worth:
			u.move(1)
		default:
			u.clear()
		}
	}
	return asUsual
}

// move has what is usual follow the present.
func (u *usual) move(part float64) {
	limit, root := u.mean()
	u.limit += (limit - u.limit) * part
	u.root += (root - u.root) * part
	noise := 2 * math.Sqrt(max(0, u.squares/u.n/root/root-1))
	u.noise += (noise - u.noise) * part
	u.clear()
}

// some reports whether there are so many requests, or more if they differ much.
func (u *usual) some(n float64) bool { return u.n >= n*max(1, u.noise*u.noise) }
