package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Prequal is how a balancer chooses by Wydrowski, Kleinberg, Rumble and Archer: Load is not what you
// should balance (NSDI 2024). Each request has three replicas probed, which tell how many requests they
// have in flight and how long such took there of late. The next requests choose of a pool of 16 such
// answers: of those that have not more in flight than the quantile 2^-0.25 of the answers of late, the
// one with the lowest latency, else the one with the fewest in flight. Here a probe takes no time, so it
// does better than it could.
const Prequal = "prequal"

// The paper's parameters.
const (
	prequalProbes = 3
	prequalPool   = 16
	prequalLeast  = 2           // answers, below which it chooses at random
	prequalAge    = time.Second // after which an answer is forgotten
	prequalRecent = 64          // answers of which the quantile is
	prequalNear   = 16          // times of which a replica tells the median
	prequalReuse  = 1.          // delta: how much more come in than are used
)

var prequalHot = math.Exp2(-0.25)

type answer struct {
	from     *station
	at       int64
	inFlight int
	latency  int64
	uses     int
}

// prequal is the balancer's state.
type prequal struct {
	pool   []answer
	recent []int // requests in flight, of the last answers
	sorted []int // the same
	oldest bool  // whether the next answer to be removed is the oldest
	random *rand.Rand
}

// choose returns the station of a request, of some.
func (p *prequal) choose(now int64, some []*station) *station {
	p.pool = slices.DeleteFunc(p.pool, func(a answer) bool { return now-a.at > int64(prequalAge) || !slices.Contains(some, a.from) })
	hot := math.MaxInt
	if n := len(p.sorted); n > 0 {
		hot = p.sorted[int(prequalHot*float64(n))]
	}
	// better orders answers, the best first: the cold by latency, then the hot by requests in flight.
	better := func(a, b answer) int {
		switch aHot, bHot := a.inFlight > hot, b.inFlight > hot; {
		case aHot && bHot:
			return cmp.Compare(a.inFlight, b.inFlight)
		case aHot:
			return 1
		case bHot:
			return -1
		}
		return cmp.Compare(a.latency, b.latency)
	}
	chosen := some[p.random.IntN(len(some))]
	if len(p.pool) >= prequalLeast {
		best := 0
		for i := range p.pool {
			if better(p.pool[i], p.pool[best]) < 0 {
				best = i
			}
		}
		a := &p.pool[best]
		chosen = a.from
		a.inFlight++
		a.uses++
		if left := (1-prequalPool/float64(len(some)))*prequalProbes - 1; left > 0 && float64(a.uses) >= max(1, (1+prequalReuse)/left) {
			p.pool = slices.Delete(p.pool, best, best+1)
		}
	}
	if len(p.pool) > 0 { // one is removed for each request: the oldest and the worst in turn
		worst := 0
		for i := range p.pool {
			if !p.oldest && better(p.pool[i], p.pool[worst]) > 0 {
				worst = i
			}
		}
		p.pool = slices.Delete(p.pool, worst, worst+1)
		p.oldest = !p.oldest
	}
	for k, i := range p.random.Perm(len(some)) {
		if k == prequalProbes {
			break
		}
		s := some[i]
		n := s.outstanding
		if s == chosen {
			n++
		}
		p.pool = append(p.pool, answer{from: s, at: now, inFlight: n, latency: s.times.near(n)})
		p.note(n)
	}
	p.pool = slices.Delete(p.pool, 0, max(0, len(p.pool)-prequalPool))
	return chosen
}

// note follows how many requests are in flight by the answers.
func (p *prequal) note(inFlight int) {
	if len(p.recent) == prequalRecent {
		i, _ := slices.BinarySearch(p.sorted, p.recent[0])
		p.sorted = slices.Delete(p.sorted, i, i+1)
		p.recent = slices.Delete(p.recent, 0, 1)
	}
	i, _ := slices.BinarySearch(p.sorted, inFlight)
	p.sorted = slices.Insert(p.sorted, i, inFlight)
	p.recent = append(p.recent, inFlight)
}

// timesByLoad are how long requests took, by how many were in flight when they came.
type timesByLoad struct{ of [][]int64 }

func (t *timesByLoad) add(inFlight int, took int64) {
	for len(t.of) <= inFlight {
		t.of = append(t.of, nil)
	}
	all := append(t.of[inFlight], took)
	t.of[inFlight] = all[max(0, len(all)-prequalNear):]
}

// near returns the median of the times with as many in flight, or about as many, 0 if there are none.
func (t *timesByLoad) near(inFlight int) int64 {
	inFlight = min(inFlight, len(t.of)-1)
	for d := range len(t.of) {
		for _, i := range [...]int{inFlight - d, inFlight + d} {
			if i >= 0 && i < len(t.of) && len(t.of[i]) > 0 {
				var all [prequalNear]int64
				n := copy(all[:], t.of[i])
				slices.Sort(all[:n])
				return all[n/2]
			}
		}
	}
	return 0
}

// choose has the balancer choose the replica of a request, of those that may be given one and have not
// refused it. It is nil if there is none.
func (f *group) choose(c *call) *station {
	some := f.some[:0]
	for _, s := range f.stations {
		if s.member != nil && c.tried>>s.index&1 == 0 && s.member.Allowed() > s.outstanding {
			some = append(some, s)
		}
	}
	f.some = some
	switch {
	case len(some) <= 1:
		return append(some, nil)[0]
	case f.Balance == Prequal:
		return f.prequal.choose(f.now, some)
	}
	return some[f.balancer.choose(len(some), "", func(i int) int { return some[i].outstanding })]
}
