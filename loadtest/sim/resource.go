package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Resource is something that does work, of which nobody knows how much it can do at
// once. What is given to it beyond its hands waits inside it, first come first served;
// those in its hands go on at one pace, which depends on how many there are.
type Resource struct {
	// Work is how long a request takes that is alone.
	Work Distribution
	// Hands, if not 0, is how many requests are worked at.
	Hands int
	// Cores, if not 0, are shared evenly by those that are worked at, if they are more.
	Cores int
	// Serial and Crosstalk are the two terms of the universal scalability law (Gunther):
	// with n inside, each is slower by 1 + Serial·(n-1) + Crosstalk·n·(n-1).
	Serial, Crosstalk float64
	// Aside is the share of requests that need nothing of all this, such as those that a
	// cache answers. They take a twentieth of the mean of Work.
	Aside float64
	// Timeout, if not 0, is how long a request may take inside. Then it ends as dropped,
	// and, with Orphans, the resource goes on with it although nobody waits.
	Timeout time.Duration
	Orphans bool
	// Refusal, if not 0, is how long it takes to refuse a request. Then whatever comes while
	// all hands are busy is refused, and ends as dropped.
	Refusal time.Duration
	// Change is what changes while it is watched.
	Change Change
}

// Change is how a resource, or the load on it, changes.
type Change struct {
	Kind ChangeKind
	// Factor is how many times as much it can do after a step, at the most in a drift,
	// and how many times as long requests take while caches are cold.
	Factor float64
}

// ChangeKind says what changes.
type ChangeKind int

// The kinds of Change.
const (
	// Steady is no change.
	Steady ChangeKind = iota
	// Wider is a step: in the midst, it can do so many times as many at once.
	Wider
	// Faster is a step: in the midst, each request is so many times as fast.
	Faster
	// Drifting is a pace that swings once between Factor and 1/Factor.
	Drifting
	// Idle is a load that all but ceases for a fifth of the time, twice.
	Idle
	// Cold is that requests take Factor times as long at the start, less and less.
	Cold
	kinds
)

func (k ChangeKind) String() string {
	return [...]string{"steady", "wider", "faster", "drifting", "idle", "cold"}[k]
}

// RandomResource returns the resource of a seed.
func RandomResource(seed uint64) Resource {
	r := rand.New(rand.NewPCG(seed, 21))
	between := func(low, high float64) float64 { return low * math.Exp(r.Float64()*math.Log(high/low)) }
	out := Resource{Work: randomWork(r, time.Duration(between(50e3, 2e9)))}
	width := int(math.Round(between(1, 1000)))
	switch shape := r.Float64(); {
	case shape < 0.25:
		out.Hands = width
	case shape < 0.5:
		out.Cores = width
	case shape < 0.75: // the best is at width
		out.Crosstalk = 1 / float64(width*width)
	case shape < 0.9:
		out.Cores, out.Crosstalk = width, between(0.01, 0.3)/float64(width*width)
	default:
		out.Hands, out.Serial = width, between(0.02, 0.5)/float64(width)
	}
	if r.Float64() < 0.1 {
		out.Aside = between(0.2, 0.8)
	}
	if r.Float64() < 0.2 {
		out.Timeout, out.Orphans = out.Objective()/2, r.Float64() < 0.5
	}
	if r.Float64() < 0.5 {
		out.Change.Kind = ChangeKind(1 + r.IntN(int(kinds)-1))
		switch out.Change.Kind {
		case Wider, Faster:
			out.Change.Factor = 2
			if r.Float64() < 0.5 {
				out.Change.Factor = 0.5
			}
		case Drifting:
			out.Change.Factor = between(1.1, 1.5)
		default:
			out.Change.Factor = between(2, 8)
		}
	}
	return out
}

func randomWork(r *rand.Rand, mean time.Duration) Distribution {
	switch r.IntN(4) {
	case 0:
		return Constant(mean)
	case 1:
		return Exponential(mean)
	case 2:
		return LogNormal{Average: mean, CV: 0.3 + 1.7*r.Float64()}
	}
	share, ratio := 0.02+0.18*r.Float64(), 5+45*r.Float64()
	cheap := float64(mean) / (1 - share + share*ratio)
	return Bimodal{Cheap: time.Duration(cheap), Expensive: time.Duration(cheap * ratio), Share: share}
}

// pace returns how fast each request that is worked at goes on, with n inside, if the
// resource is as wide as that.
func (r *Resource) pace(n int, wide float64) float64 {
	pace := 1.
	at := r.worked(n, wide)
	if cores := max(1, float64(r.Cores)*wide); r.Cores > 0 && float64(at) > cores {
		pace = cores / float64(at)
	}
	m := float64(n)
	return pace / (slowdown(m, r.Serial/wide) + r.Crosstalk*m*(m-1)/(wide*wide))
}

// worked returns how many of n are worked at.
func (r *Resource) worked(n int, wide float64) int {
	if r.Hands > 0 {
		return min(n, max(1, int(math.Round(float64(r.Hands)*wide))))
	}
	return n
}

// Best returns at how many at once it does most, the least if they are several, and how
// much that is: completions a second.
func (r *Resource) Best() (n int, rate float64) { return r.best(1) }

func (r *Resource) best(wide float64) (n int, rate float64) {
	top := 0.
	for i := 1; i <= 20_000; i++ {
		done := float64(r.worked(i, wide)) * r.pace(i, wide)
		if done > top*(1+1e-9) {
			n, top = i, done
		}
		if done < top/2 || i > 4*n+16 {
			break
		}
	}
	return n, top / r.Work.Mean().Seconds() / (1 - r.Aside)
}

// Objective returns within which time an answer is good: 25 times the mean of the time
// that requests take where it does most, or three times that of a very long request.
func (r *Resource) Objective() time.Duration {
	n, _ := r.Best()
	slow := 1 / r.pace(n, 1) * float64(n) / float64(r.worked(n, 1))
	long := 25 * float64(r.Work.Mean())
	switch d := r.Work.(type) {
	case Exponential:
		long = max(long, 3*7*float64(d))
	case LogNormal:
		variance := math.Log1p(d.CV * d.CV)
		long = max(long, 3*float64(d.Average)*math.Exp(2.6*math.Sqrt(variance)-variance/2))
	case Bimodal:
		long = max(long, 3*float64(d.Expensive))
	}
	return time.Duration(slow * long)
}

// String describes the resource in a line.
func (r Resource) String() string {
	parts := []string{fmt.Sprint(r.Work)}
	add := func(yes bool, format string, args ...any) {
		if yes {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.Hands > 0, "%d hands", r.Hands)
	add(r.Cores > 0, "%d cores", r.Cores)
	add(r.Serial > 0, "serial %.3g", r.Serial)
	add(r.Crosstalk > 0, "crosstalk %.3g", r.Crosstalk)
	add(r.Aside > 0, "%.0f%% aside", 100*r.Aside)
	add(r.Timeout > 0, "time-out %v", r.Timeout.Round(time.Microsecond))
	add(r.Orphans, "orphans")
	add(r.Refusal > 0, "refuses in %v", r.Refusal)
	add(r.Change.Kind != Steady, "%v %.2g", r.Change.Kind, r.Change.Factor)
	return strings.Join(parts, ", ")
}
