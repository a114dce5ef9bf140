//go:build !race

package shares

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/strategies"
)

// tenant is one who asks, in an open loop of Poisson arrivals.
type tenant struct {
	name   string
	route  string
	weight int
	work   func(*rand.Rand) time.Duration
	mean   time.Duration // of work
	asks   float64       // for so many places' time
}

// unit is how long a request of 1 × takes.
const unit = 10 * time.Millisecond

func constant(times float64) func(*rand.Rand) time.Duration {
	return func(*rand.Rand) time.Duration { return time.Duration(times * float64(unit)) }
}

// anySize draws times of equal probability for each factor, the longest 1,000 times the shortest.
func anySize(r *rand.Rand) time.Duration {
	return time.Duration(float64(unit) / 10 * math.Pow(1000, r.Float64()))
}

// anySizeMean is the mean of anySize: (1000 - 1) / ln 1000 times the shortest.
var anySizeMean = time.Duration(float64(unit) / 10 * 999 / math.Log(1000))

// ten are tenants that ask for twice their share of so many places: seven of 1 ×, one of 10 ×, one of 100 × and one of
// any size.
func ten(places int) (all []tenant) {
	for i := range 10 {
		t := tenant{name: string(rune('a' + i)), route: "1x", weight: 1, work: constant(1), mean: unit}
		switch i {
		case 7:
			t.route, t.work, t.mean = "10x", constant(10), 10*unit
		case 8:
			t.route, t.work, t.mean = "100x", constant(100), 100*unit
		case 9:
			t.route, t.work, t.mean = "any", anySize, anySizeMean
		}
		t.asks = 2 * float64(places) / 10
		all = append(all, t)
	}
	return all
}

// weighted gives the tenants weights of 1, 2 and 3, and has them ask for as many times more.
func weighted(tenants []tenant) []tenant {
	for i := range tenants {
		tenants[i].weight = 1 + i%3
		tenants[i].asks *= float64(tenants[i].weight)
	}
	return tenants
}

// chat are the clients of a model server: a batch of long requests that asks for all of the places, and 20 who chat, and
// ask for three fifths of them.
func chat() []tenant {
	all := []tenant{{name: "batch", route: "generate", weight: 1, work: constant(1000), mean: 1000 * unit, asks: places}}
	for i := range 20 {
		all = append(all, tenant{
			name: "chat" + strconv.Itoa(i), route: "chat", weight: 1, mean: 60 * unit, asks: 0.6 * places / 20,
			work: func(r *rand.Rand) time.Duration { return time.Duration((20 + 80*r.Float64()) * float64(unit)) },
		})
	}
	return all
}

// requests returns what the tenants send, in the order of time.
func requests(tenants []tenant, seed uint64) func() func() (sim.Request, bool) {
	return func() func() (sim.Request, bool) {
		type stream struct {
			*tenant
			random *rand.Rand
			next   time.Duration
			class  int
		}
		var streams []*stream
		advance := func(s *stream) {
			s.next += time.Duration(s.random.ExpFloat64() * float64(s.mean) / s.asks)
		}
		for i := range tenants {
			s := &stream{tenant: &tenants[i], random: rand.New(rand.NewPCG(seed, uint64(100+i))), class: i}
			advance(s)
			streams = append(streams, s)
		}
		return func() (sim.Request, bool) {
			s := slices.MinFunc(streams, func(a, b *stream) int { return cmp.Compare(a.next, b.next) })
			r := sim.Request{At: s.next, Client: s.name, Route: s.route, Service: max(1, s.work(s.random)), Class: s.class}
			advance(s)
			return r, true
		}
	}
}

// clock is a discipline that notes how much time of the places each client has had between a start and an end.
type clock struct {
	strategies.Discipline
	meter   strategies.Meter // nil if the discipline is none
	runs    map[uint64]*timed
	last    uint64
	start   int64
	end     int64
	had     map[string]time.Duration
	longest map[string]time.Duration
}

type timed struct {
	client string
	inner  uint64
	began  int64
}

// abilities are what a discipline may have beside.
type abilities interface {
	strategies.Discipline
	strategies.Remover
	strategies.Resizer
	strategies.TurnObserver
	strategies.Meter
}

var _ abilities = (*clock)(nil)

func newClock(d strategies.Discipline, start, end int64) *clock {
	c := &clock{Discipline: d, start: start, end: end, runs: map[uint64]*timed{}, had: map[string]time.Duration{}, longest: map[string]time.Duration{}}
	c.meter, _ = d.(strategies.Meter)
	return c
}

func (c *clock) Remove(t *strategies.Task) bool { return c.Discipline.(strategies.Remover).Remove(t) }

func (c *clock) Resize(workers int) {
	if r, ok := c.Discipline.(strategies.Resizer); ok {
		r.Resize(workers)
	}
}

func (c *clock) TurnBegan(now int64) {
	if o, ok := c.Discipline.(strategies.TurnObserver); ok {
		o.TurnBegan(now)
	}
}

func (c *clock) Began(t *strategies.Task, now int64) {
	if c.meter != nil {
		c.meter.Began(t, now)
	}
	c.last++
	c.runs[c.last] = &timed{t.Client, t.Run, now}
	t.Run = c.last
}

func (c *clock) Ended(number uint64, of int, now int64) {
	r := c.runs[number]
	if r == nil {
		c.meter.Ended(number, of, now)
		return
	}
	delete(c.runs, number)
	if c.meter != nil {
		c.meter.Ended(r.inner, of, now)
	}
	c.had[r.client] += time.Duration(max(0, min(now, c.end)-max(r.began, c.start)))
	c.longest[r.client] = max(c.longest[r.client], time.Duration(now-r.began))
}
