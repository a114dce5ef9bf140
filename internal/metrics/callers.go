package metrics

import (
	"hash/maphash"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/served"
)

// Classes is how many classes of importance there are; OrdinaryClass is that of
// requests that do not say.
const (
	Classes       = 8
	OrdinaryClass = 3
)

// maxCallers bounds how many clients are told apart, and probes how many places
// each may have among them.
const (
	maxCallers = 256
	probes     = 8
)

// Tally counts answered requests by what became of them.
type Tally struct {
	Good, Late uint64
	Unmet      uint64 // 412: a condition of the request's own did not hold
	Failed     uint64
	Shed       uint64
	Time       uint64 // nanoseconds for which they had a worker, or a place
}

// sum is of all that are counted as requests.
func (t *Tally) sum() uint64 { return t.Good + t.Late + t.Unmet + t.Failed + t.Shed }

// tally is a Tally that many goroutines add to.
type tally [6]atomic.Uint64

// add counts a request that had a worker for so long.
func (t *tally) add(place int, had time.Duration) {
	t[place].Add(1)
	t[5].Add(uint64(max(0, had)))
}

func (t *tally) read() Tally {
	return Tally{t[0].Load(), t[1].Load(), t[2].Load(), t[3].Load(), t[4].Load(), t[5].Load()}
}

// caller is a client that is told apart from others.
type caller struct {
	name  string
	tally tally
	idle  uint64 // the sum at the last look, of whoever calls Live
}

// callers counts by class and by client. There are maxCallers places for clients. A
// client keeps its place while it sends requests; those without one are counted together.
type callers struct {
	seed    maphash.Seed
	classes [Classes]tally
	clients [maxCallers]atomic.Pointer[caller]
	others  tally
}

// Asked counts an answered request that said whose it was, or was of another class
// than OrdinaryClass: answered after d, for had of which it had a worker, or a place. The client may be empty, and is
// not kept.
func (m *Metrics) Asked(class uint8, client []byte, code int, outcome served.Outcome, d, had time.Duration) {
	place := 0
	switch outcome {
	case served.Shed:
		place = 4
	case served.Error:
		place = 3
		if code == http.StatusPreconditionFailed {
			place = 2
		}
	case served.OK:
		if !m.inTime(d) {
			place = 1
		}
	}
	if class != OrdinaryClass && class < Classes {
		m.callers.classes[class].add(place, had)
	}
	if len(client) > 0 {
		m.callers.of(client).add(place, had)
	}
}

// of returns where to count a client.
func (c *callers) of(client []byte) *tally {
	at := maphash.Bytes(c.seed, client)
	for {
		var free *atomic.Pointer[caller]
		for i := range uint64(probes) {
			place := &c.clients[(at+i)%maxCallers]
			switch there := place.Load(); {
			case there == nil && free == nil:
				free = place
			case there != nil && there.name == string(client):
				return &there.tally
			}
		}
		if free == nil {
			return &c.others
		}
		if free.CompareAndSwap(nil, &caller{name: string(client)}) {
			continue // to find it, or the same one that others have put before it
		}
	}
}

// forget gives back the places of clients that have sent nothing since the last
// call.
func (c *callers) forget() {
	for i := range c.clients {
		there := c.clients[i].Load()
		if there == nil {
			continue
		}
		t := there.tally.read()
		sum := t.sum()
		if sum == there.idle {
			c.clients[i].Store(nil)
		}
		there.idle = sum
	}
}

// Callers returns what was counted by class, without OrdinaryClass, and by client
// since it was first heard of. "" are those that are not told apart.
func (m *Metrics) Callers() (classes [Classes]Tally, clients map[string]Tally) {
	c := &m.callers
	for i := range c.classes {
		classes[i] = c.classes[i].read()
	}
	clients = make(map[string]Tally)
	for i := range c.clients {
		if there := c.clients[i].Load(); there != nil {
			clients[strings.ToValidUTF8(there.name, "\uFFFD")] = there.tally.read()
		}
	}
	if t := c.others.read(); t != (Tally{}) {
		clients[""] = t
	}
	return classes, clients
}

// ForgetCallers gives back the places of clients that have sent nothing since it
// was last called, for others. It must not be called by two goroutines at once.
func (m *Metrics) ForgetCallers() { m.callers.forget() }
