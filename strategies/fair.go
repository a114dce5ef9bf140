package strategies

import (
	"cmp"
	"hash/maphash"
	"math"
	"sync"
)

const (
	// ownFlows is how many clients can have tasks waiting in a queue of their own
	// at the same time.
	ownFlows = 1024
	// sharedFlows is how many queues the clients beyond those share, by a hash of
	// their names.
	sharedFlows = 256
	// flowChains is the size of the table of names, a power of 2.
	flowChains = 2048
)

// fair serves the clients in turn, and the tasks of a client in the order of their
// arrival: deficit round robin, after M. Shreedhar and George Varghese, "Efficient
// Fair Queueing Using Deficit Round Robin", SIGCOMM 1995. So a client that sends more
// than its share waits behind itself, and does not delay the others by more than
// what it may have done in a turn.
//
// When a client's turn comes, a quantum is added to its deficit counter: its weight,
// which is 1 if nobody says otherwise. Its tasks are then served as long as the counter
// pays for the next one's cost. What is left of the counter is kept for the next turn,
// unless nothing waits for the client any more. The unit is the cost of a task, which
// is 1 if nobody says otherwise: with such tasks and weights, each turn is one task.
// How long a task takes is not counted, since nobody knows it beforehand.
//
// The paper's quantum is as large as the largest packet, so that each turn serves one.
// Here a task may cost as much as there are workers, and one that says more counts for
// as much, since it takes no more. Where a whole round of turns would
// pay for no task, the rounds up to the first that does are taken in one step, so that
// a Pop takes three rounds at most.
//
// When it is full, the oldest task of the longest queue is displaced, as over its
// client's share: with what was pushed counted in, that client has more than an equal
// part of the places. The length of a queue is that for its weight. The oldest rather
// than the newest, because its client is the likeliest to have given up; what is left
// has waited less. Of several queues as long, it is that of the pushed task if it is
// one of them, or else the one whose oldest task has waited longest.
//
// Clients are known by name as long as a task of theirs waits. The first 1,024
// have a queue each; those beyond share 256, so whatever clients call themselves,
// the memory is bounded. It does not help against one who gives himself a new
// name for each request: who sends names has to be trusted with them.
type fair struct {
	workers int // changes under mu
	seed    maphash.Seed
	weight  func(client string) int // nil if all have 1

	mu struct {
		sync.Mutex
		own     []flow            // one client each, or unused
		shared  []flow            // the clients beyond; none if the capacity needs none
		names   [flowChains]*flow // those of own that are in use, chained by hash
		unused  *flow             // the others of own, chained
		turns   round             // those that hold tasks, the next to be served first
		lengths flowHeap          // the same ones
		pushes  uint64
	}
	room
}

var (
	_ Remover = (*fair)(nil)
	_ Resizer = (*fair)(nil)
)

// FairOptions are the options of the strategy fair.
type FairOptions struct {
	// Weight returns the share of a client in proportion to the others; values are clamped
	// to 1 to 1,000. It is called under a lock: it should be quick and must not panic. While
	// 1,024 clients wait, further ones share queues of weight 1. Nil means 1 for all.
	Weight func(client string) int
}

// largestWeight bounds the weight of a client.
const largestWeight = 1000

// Fair returns the strategy fair with options.
func Fair(o FairOptions) Spec {
	return Spec{
		Name:    "fair",
		Summary: "deficit round robin over clients; when full, the oldest of the client with the longest queue is displaced",
		New:     func(c Config) Discipline { return newFair(c, o.Weight) },
	}
}

func newFair(c Config, weight func(string) int) Discipline {
	q := &fair{room: roomOf(c), seed: maphash.MakeSeed(), weight: weight}
	q.mu.own = make([]flow, min(q.capacity, ownFlows))
	if q.capacity > ownFlows {
		q.mu.shared = make([]flow, sharedFlows)
		for i := range q.mu.shared {
			q.mu.shared[i].quantum = 1
		}
	}
	for i := range q.mu.own {
		f := &q.mu.own[i]
		f.chain, q.mu.unused = q.mu.unused, f
	}
	q.Resize(c.Workers)
	q.mu.lengths = make(flowHeap, 0, len(q.mu.own)+len(q.mu.shared))
	return q
}

// Resize tells how many workers there are.
func (q *fair) Resize(workers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = max(1, workers)
}

// costLocked returns what t counts for.
func (q *fair) costLocked(t *Task) int { return min(t.Places(), q.workers) }

// Push adds t to the queue of its client. If there is no room, the oldest task
// of the longest queue is displaced.
func (q *fair) Push(t *Task, _ int64) Verdict {
	hash := maphash.String(q.seed, t.Client)
	q.mu.Lock()
	defer q.mu.Unlock()
	var v Verdict
	if q.fullLocked() {
		longest := q.mu.lengths[0]
		if f := q.findLocked(t.Client, hash); f != nil && compareLengths(f, longest) == 0 {
			longest = f
		}
		v.Displaced, v.Reason = longest.front, ReasonFair
		q.takeLocked(longest, longest.front)
	}
	f := q.flowLocked(t.Client, hash)
	q.mu.pushes++
	t.State.Number = q.mu.pushes
	f.pushBack(t)
	f.length++
	q.waiting.Add(1)
	if f.length == 1 {
		q.mu.turns.pushBack(f)
		q.mu.lengths.add(f)
	} else {
		q.mu.lengths.fix(f)
	}
	return v
}

// Pop takes the oldest task of the client whose turn it is.
func (q *fair) Pop(int64) (*Task, PopResult, Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.turns.front == nil {
		return nil, Empty, ReasonNone
	}
	f := q.payingLocked()
	t := f.front
	f.deficit -= q.costLocked(t)
	q.takeLocked(f, t)
	if f.length > 0 && f.deficit < q.costLocked(f.front) {
		q.endTurnLocked(f)
	}
	return t, Run, ReasonNone
}

// endTurnLocked has f, which holds tasks, wait for its next turn.
func (q *fair) endTurnLocked(f *flow) {
	f.turn = false
	q.mu.turns.remove(f)
	q.mu.turns.pushBack(f)
}

// payingLocked ends the turns of clients whose deficit counter does not pay for their
// next task, and returns the first whose does. Something waits.
func (q *fair) payingLocked() *flow {
	for failed := 0; ; failed++ {
		f := q.mu.turns.front
		if !f.turn {
			f.turn = true
			f.deficit += f.quantum
		}
		if f.deficit >= q.costLocked(f.front) {
			return f
		}
		q.endTurnLocked(f)
		if failed == len(q.mu.lengths) {
			q.skipLocked()
		}
	}
}

// skipLocked adds to all deficit counters what they get in the rounds before the first
// that pays for a task.
func (q *fair) skipLocked() {
	rounds := math.MaxInt
	for _, f := range q.mu.lengths {
		rounds = min(rounds, (q.costLocked(f.front)-f.deficit-1)/f.quantum)
	}
	for _, f := range q.mu.lengths {
		f.deficit += rounds * f.quantum
	}
}

// Remove takes t out of the queue.
func (q *fair) Remove(t *Task) bool {
	hash := maphash.String(q.seed, t.Client)
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.findLocked(t.Client, hash)
	if f == nil || !f.holds(t) {
		return false
	}
	q.takeLocked(f, t)
	return true
}

// findLocked returns the flow that holds all tasks of a client that wait, if
// there are any: its own or, if it has none, the one that it would share. Nil
// means that it has none and need not share.
func (q *fair) findLocked(client string, hash uint64) *flow {
	for f := q.mu.names[hash%flowChains]; f != nil; f = f.chain {
		if f.hash == hash && f.client == client {
			return f
		}
	}
	if len(q.mu.shared) == 0 {
		return nil
	}
	return &q.mu.shared[hash>>32%sharedFlows]
}

// flowLocked returns the flow for a task of a client. A client goes on sharing
// a flow as long as something waits there, which may be its own: or else a flow
// of its own that has become free would let its new tasks overtake the old.
func (q *fair) flowLocked(client string, hash uint64) *flow {
	f := q.findLocked(client, hash)
	if f != nil && f.length > 0 || q.mu.unused == nil {
		return f // not nil: without flows to share there are as many as tasks
	}
	f = q.mu.unused
	q.mu.unused = f.chain
	at := &q.mu.names[hash%flowChains]
	f.client, f.hash, f.named, f.quantum = client, hash, true, 1
	if q.weight != nil {
		f.quantum = min(max(1, q.weight(client)), largestWeight)
	}
	f.chain, *at = *at, f
	return f
}

// takeLocked takes t out of f. If nothing is left there, f has no turn any more,
// and its client is forgotten.
func (q *fair) takeLocked(f *flow, t *Task) {
	f.list.remove(t)
	f.length--
	q.waiting.Add(-1)
	if f.length > 0 {
		q.mu.lengths.fix(f)
		return
	}
	q.mu.turns.remove(f)
	q.mu.lengths.remove(f)
	f.deficit, f.turn = 0, false
	if !f.named {
		return
	}
	at := &q.mu.names[f.hash%flowChains]
	for *at != f {
		at = &(*at).chain
	}
	*at = f.chain
	*f = flow{chain: q.mu.unused}
	q.mu.unused = f
}

// flow is the queue of a client, or of several that share it.
type flow struct {
	list
	length  int
	quantum int  // what a turn adds to the deficit counter: the weight
	deficit int  // the deficit counter
	turn    bool // it has its turn, for which the quantum has been added

	named  bool   // it is in the table of names, by these
	client string // "" if it is not
	hash   uint64
	chain  *flow // the next one there, or among the unused

	before, after *flow // neighbours in the round
	at            int   // position in the heap
}

// round is a list of flows.
type round struct{ front, back *flow }

func (r *round) pushBack(f *flow) {
	f.before, f.after = r.back, nil
	if r.back == nil {
		r.front = f
	} else {
		r.back.after = f
	}
	r.back = f
}

func (r *round) remove(f *flow) {
	if f.before == nil {
		r.front = f.after
	} else {
		f.before.after = f.after
	}
	if f.after == nil {
		r.back = f.before
	} else {
		f.after.before = f.before
	}
	f.before, f.after = nil, nil
}

// flowHeap is a binary heap of flows that hold tasks, the longest first. There
// are no more of them than 1,280, whatever the capacity, and the length of a
// flow changes by one: a change costs few steps.
type flowHeap []*flow

// compareLengths compares the lengths of two queues, each for its weight.
func compareLengths(a, b *flow) int { return cmp.Compare(a.length*b.quantum, b.length*a.quantum) }

// longer reports whether a is to be cut before b.
func longer(a, b *flow) bool {
	order := compareLengths(a, b)
	return order > 0 || order == 0 && a.front.State.Number < b.front.State.Number
}

func (h *flowHeap) add(f *flow) {
	f.at = len(*h)
	*h = append(*h, f)
	h.fix(f)
}

func (h *flowHeap) remove(f *flow) {
	last := len(*h) - 1
	moved := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	if moved != f {
		(*h)[f.at], moved.at = moved, f.at
		h.fix(moved)
	}
}

// fix brings f, which has changed, to its place.
func (h flowHeap) fix(f *flow) {
	i := f.at
	for i > 0 && longer(f, h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		h[i].at = i
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if child+1 < len(h) && longer(h[child+1], h[child]) {
			child++
		}
		if child >= len(h) || !longer(h[child], f) {
			break
		}
		h[i] = h[child]
		h[i].at = i
		i = child
	}
	h[i], f.at = f, i
}
