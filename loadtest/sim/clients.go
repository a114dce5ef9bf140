package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// Clients is what those do who send requests of an Unknown. The zero value waits for ever, on
// as many connections as it takes.
type Clients struct {
	// Impatient is the share of clients that wait for an exponential time of mean Patience,
	// counted from their request's arrival, and leave then. What they asked for ends where it
	// is, or is worked on for nobody if the resource has orphans.
	Impatient float64
	Patience  time.Duration
	// Deadline says that they tell how long they wait.
	Deadline bool
	// Errors is the share of requests that fail after a part of their work.
	Errors float64
	// Connections, if not 0, is how many requests are on their way at once to each limiter.
	// What comes while none is free waits with the clients, on no clock of the service.
	Connections int
}

// Beside is another that gives the same resource work.
type Beside struct {
	Limiter Limiter
	// Weight is how many times the first one's load it has: 1 if it is 0.
	Weight float64
	// From is when it begins, since the experiment did.
	From time.Duration
}

// outcome is how a request ends for the limiter.
type outcome uint8

const (
	good outcome = iota
	dropped
	ignored // it does not learn of it
)

// front is a queue before the resource, and its limiter.
type front struct {
	Beside
	queue   strategies.Discipline
	remover strategies.Remover
	turns   strategies.TurnObserver
	resizer strategies.Resizer
	starter Starter // nil if the limiter is none
	pauser  Pauser  // likewise

	resume          float64 // the end of a pause
	limit           int
	running         int     // have a place
	arrival, period float64 // the next, and the mean time between two
	arrivals        *rand.Rand
	usual           float64 // how long those take that are good, as the dispatcher follows it
	done            int     // good, and measured

	free int // connections
	line int // requests that wait for one
}

func newFront(b Beside, spec strategies.Spec, objective time.Duration, arrivals *rand.Rand) *front {
	o := new(strategies.Objective)
	_ = o.Set(objective) // which is within its bounds
	f := &front{Beside: b, limit: b.Limiter.Limit(), resume: math.Inf(1), arrivals: arrivals}
	f.Weight = cmp.Or(b.Weight, 1)
	if a, ok := b.Limiter.(Aimer); ok {
		a.Aim(objective)
	}
	f.queue = spec.New(strategies.Config{Capacity: 4096, Workers: f.limit, Objective: o})
	f.turns = f.queue.(strategies.TurnObserver)
	f.resizer = f.queue.(strategies.Resizer)
	f.remover = f.queue.(strategies.Remover)
	f.starter, _ = b.Limiter.(Starter)
	f.pauser, _ = b.Limiter.(Pauser)
	return f
}

// connected takes a connection for a request that arrives, or has it wait for one.
func (f *front) connected(c Clients) bool {
	const most = 4096 // that wait
	switch {
	case c.Connections == 0:
		return true
	case f.free == 0:
		f.line = min(f.line+1, most)
		return false
	}
	f.free--
	return true
}

// answered gives a connection back, on which what waits for one is sent.
func (f *front) answered(now float64, c Clients) {
	if c.Connections == 0 {
		return
	}
	f.free++
	if f.line > 0 {
		f.line--
		f.arrival = min(f.arrival, now+f.turnaround())
	}
}

// turnaround is how long a client takes to send the next request.
func (f *front) turnaround() float64 { return max(1e3, f.usual/100) }

// good follows how long good requests take.
func (f *front) good(took float64) {
	if f.usual == 0 {
		f.usual = took
	}
	f.usual += (min(took, 4*f.usual) - f.usual) / 64
}

// client draws what the client of a request does.
func (t *trial) client(j *job) {
	c := &t.u.Clients
	if c.Errors > 0 && t.clients.Float64() < c.Errors {
		j.failed = true
		j.work *= t.clients.Float64()
	}
	if c.Impatient > 0 && t.clients.Float64() < c.Impatient {
		at := t.now + t.clients.ExpFloat64()*float64(c.Patience)
		t.leaving.push(j.at(at))
		if c.Deadline {
			j.task.Deadline = int64(at)
		}
	}
}

func (j *job) outcome() outcome {
	if j.failed {
		return dropped
	}
	return good
}

// goes is a client that leaves. What knew its deadline counts as dropped if there was
// as much time, when it began, as good requests take.
func (t *trial) goes(j *job) {
	f := j.front
	switch {
	case j.queued && f.remover.Remove(&j.task):
		t.shed(j)
	case j.queued:
		j.gone = true
	case j.task.Deadline != 0 && float64(j.task.Deadline-j.began) >= f.usual:
		t.cut(j, dropped)
	default:
		t.cut(j, ignored)
	}
}

// shed is the end of a request that does not run.
func (t *trial) shed(j *job) {
	j.front.answered(t.now, t.u.Clients)
	t.free(j)
}

// started is when an experiment begins, in nanoseconds.
const started = 1e9
