package concurrency

import "math"

// strata finds out whether requests are short or long, with none between, as reads and
// scans are. Then the mean service time of a few depends above all on how many of them are
// long, which says nothing of the resource. So the two are compared each with their own, and
// count by their share in all (post-stratification; Holt and Smith, JRSS A 1979).
type strata struct {
	cut     float64 // the middle of the gap between them; 0 if there is none
	buckets [96]struct {
		n, y float64 // of late: requests, and the sum of their service times
	}
}

const (
	bucketsPer  = 2     // buckets, for each doubling of the service time
	gapWide     = 3     // buckets between short and long
	gapFull     = 0.02  // the requests in them at most, in parts of those on the smaller side
	gapSame     = 1.001 // times as far apart are those in the same gap, at most
	strataLeast = 4     // requests on each side, at least
	strataGain  = 0.5   // the part of the variance that is between the two
	strataOver  = 512   // requests that are remembered
)

func (s *strata) add(took float64) {
	i := 0
	if took > 1 {
		i = min(int(bucketsPer*math.Log2(took)), len(s.buckets)-1)
	}
	s.buckets[i].n++
	s.buckets[i].y += took
}

// split looks for the gap that parts best, and reports whether there is one.
func (s *strata) split() bool {
	s.cut = 0
	var n, y, yy float64
	for _, b := range s.buckets {
		if b.n > 0 {
			n, y, yy = n+b.n, y+b.y, yy+b.y*b.y/b.n
		}
	}
	if n == 0 {
		return false
	}
	least := strataGain * (yy/n - y/n*y/n)
	var most, below, belowY float64
	from := 0 // where the gap that parts best begins
	for i := range len(s.buckets) - gapWide {
		above, aboveY := n-below, y-belowY
		for _, b := range s.buckets[i : i+gapWide] {
			above, aboveY = above-b.n, aboveY-b.y
		}
		few := min(below, above)
		if few >= strataLeast && n-below-above <= gapFull*few {
			apart := aboveY/above - belowY/below
			if between := below / n * above / n * apart * apart; between > least && between > most/gapSame {
				if between > gapSame*most {
					from = i
				}
				s.cut = math.Exp2((float64(from+i) + gapWide) / 2 / bucketsPer)
				most = max(most, between)
			}
		}
		below, belowY = below+s.buckets[i].n, belowY+s.buckets[i].y
	}
	if n > strataOver {
		for i := range s.buckets {
			s.buckets[i].n *= strataOver / n
			s.buckets[i].y *= strataOver / n
		}
	}
	return s.cut > 0
}

// stratum are sums over the requests of one.
type stratum struct {
	n  float64
	y  float64 // service times
	yy float64 // of their squares
}

func (s *stratum) request(took float64) {
	s.n++
	s.y += took
	s.yy += took * took
}

// log returns the logarithm of the mean, or 0 if there is none.
func (s *stratum) log() float64 {
	if s.n == 0 {
		return 0
	}
	return math.Log(s.y / s.n)
}

// noise returns the variance of one request in parts of the square of the mean.
func (s *stratum) noise() float64 {
	const least = 0.05
	mean := s.y / s.n
	return max(least*least, s.yy/s.n/mean/mean-1)
}

// mix tells whether requests are long whatever runs beside them. If they wait inside behind one
// that is long, more of them take long the more run, and to compare the two apart would not see
// that they do. It is the regression of the share of long ones on the logarithm of how many ran.
type mix struct{ n, x, xx, long, xlong float64 }

const (
	mixOver = 1024 // requests of which it is
	mixMost = 0.5  // the slope, in parts of the share, that is none, if it is surely less
	mixSure = 1.   // standard errors that are sure
	mixFew  = 10   // at once, below which many wait behind the same one
)

// add adds a block in which so many ran.
func (m *mix) add(x float64, strata *[2]stratum) {
	long := strata[1].n
	n := strata[0].n + long
	keep := mixOver / (mixOver + n)
	*m = mix{keep*m.n + n, keep*m.x + n*x, keep*m.xx + n*x*x, keep*m.long + long, keep*m.xlong + long*x}
}

// same reports whether the share is surely the same however many run.
func (m *mix) same() bool {
	if m.n == 0 {
		return false
	}
	share := m.long / m.n
	xx := max(1e-9, m.xx-m.x*m.x/m.n)
	slope := (m.xlong - m.x*share) / xx
	return slope+mixSure*math.Sqrt(share*(1-share)/xx) < mixMost*share
}
