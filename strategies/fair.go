package strategies

import (
	"cmp"
	"hash/maphash"
	"math"
	"sync"
	"time"
)

// fair shares the time of the workers among the clients, by weight. It is start-time fair queueing (Goyal, Vin and
// Cheng, SIGCOMM 1996) over several servers, as in SFQ(D) (Jin, Chase and Kaur, SIGMETRICS 2004): deficit round robin
// (Shreedhar and Varghese, SIGCOMM 1995) in units of time, with a quantum so small that nobody waits for a whole round.
//
// Each client has a virtual time: the sum of the times that its tasks took, each times the places that it had, divided
// by the client's weight. The client with the least is next; of equals, the one served longest ago. How long a task
// takes is not known beforehand. So, as in 2DFQ (Mace et al., SIGCOMM 2016), a client is charged
//
//	when its task begins     an estimate: the mean of its own last tasks, or else of its route's, or else of all; a
//	                         millisecond before any has ended
//	while the task runs      each time that it has run for as long as was charged: the estimate again, or an eighth of
//	                         what it has run, a second at most, if that is more
//	when the task ends       the difference, up or down
//
// So the client of a task that never ends pays for it alone.
//
// The virtual time of the system is the largest at which a client was next. Once nothing waits or runs it is the largest
// that any client has had, so that debts are forgotten. A client of which nothing waited begins to wait at that, less
// four tasks of the mean size: it gets no more credit for time that it did not ask for. Thus who asks for less than its
// share can send a few requests together. Four of its own tasks count, if they are longer, each for the objective at
// most, for a client that has more to do than can be done in time: what would be late is refused, so that nothing of it
// waits now and then.
//
// The bound. Let something of clients a and b always wait, from when both had the same virtual time and nothing of
// either ran. Count their times S(a) and S(b) from there. Let n(a) be how many tasks of a run at most, and l(a) the
// largest time, times places, that one takes, or is charged when it begins. Then
//
//	S(a)/w(a) - S(b)/w(b) <= n(a) l(a) / w(a) + n(b) l(b) / w(b)
//
// For when a task of a was popped last, a's virtual time was at most b's. All that a had until then was charged, and it
// got at most n(a) l(a) since. What b had is what it was charged, less what its running tasks have not used yet: at most
// n(b) l(b). Over an interval within, the difference is at most twice that, as a may have been ahead at one end and b at
// the other. It is up to the four tasks more if one began to wait meanwhile. A further turn of a task that goes on is
// not popped, so it adds to the bound; its client's next tasks wait the longer.
//
// Within its share a client has a queue by the law of auto: in order of arrival while all can be answered within the
// objective at the pace at which the client is served, otherwise newest first, and who would be late is told so. An
// overload begins after as many turns of all clients as under auto.
//
// When there is no room, the client with the most waiting work for its weight loses the oldest of its least important
// tasks. Of several it is that of the pushed task, or else the one whose task has waited longest.
//
// Clients are known by a hash of 64 bits with a random seed. The last 1,024 are remembered; others share 256 accounts
// of weight 1, so whatever clients call themselves, the memory is bounded. A new name takes the account of a client of
// which nothing waits or runs, and which has had at most one task of late; the count halves each minute. So a flood of
// new names drives out itself. Who gives himself a new name for each request gets more than his share: who sends names
// has to be trusted with them.
type fair struct {
	config  Config
	workers int // changes under mu
	seed    maphash.Seed

	mu struct {
		sync.Mutex
		accounts [ownAccounts + sharedAccounts]*account // by number; nil as long as they were not needed
		own      int                                    // accounts of one client each
		hand     int                                    // the own account that is looked at next for one to give up
		names    [accountChains]*account                // the own ones, chained by hash

		now    float64 // the virtual time of the system
		latest float64 // the largest that a client has had
		turn   uint64  // of the last client that was served, or began to wait
		pushes uint64
		// next holds the accounts with waiting tasks, the least virtual time first, and most the same ones, the
		// most waiting work first.
		next, most heap[*account]

		runs    []*run     // by number, less 1
		unused  []uint64   // numbers of runs
		running int        // runs that are used
		due     heap[*run] // those that run, by when they will have run for as long as was charged
		routes  [routeMeans]recentMean
		all     recentMean

		found  int64      // how often workers have found nothing
		popped []*account // since the last turn began
	}
	room
}

const (
	ownAccounts    = 1024
	sharedAccounts = 256
	accountChains  = 2048
	// routeMeans is how many routes are told apart, by a hash.
	routeMeans = 1024
	// looks is how many accounts a new client looks at for one to take the place of.
	looks = 8
	// unknownTask is how long a task is taken for before any has ended, in nanoseconds.
	unknownTask = float64(time.Millisecond)
	// overdueShare of what a task has run is what it is charged ahead, and overdueMost at most.
	overdueShare = 1. / 8
	overdueMost  = float64(time.Second)
	// savedTasks is for how many tasks of the mean size a client may save up time that it does not use.
	savedTasks = 4
	// meanOver is how many tasks a mean goes over.
	meanOver = 32
	// largestWeight bounds the weight of a client, and mostPlaces what a waiting task counts for.
	largestWeight = 1000
	mostPlaces    = 1 << 20
)

var (
	_ Remover      = (*fair)(nil)
	_ Resizer      = (*fair)(nil)
	_ TurnObserver = (*fair)(nil)
	_ Meter        = (*fair)(nil)
)

// account is what is known of a client, or of several that share it.
type account struct {
	queue  auto    // what waits
	places float64 // that those tasks will take
	weight float64
	time   float64 // the virtual time
	turn   uint64  // when it was served, or began to wait

	mean    recentMean
	expects float64 // how long one of its tasks takes
	running int
	popped  bool  // since the last turn began
	found   int64 // fair.found when its last task left
	taken   int64 // when one was popped last

	number int
	own    bool
	hash   uint64
	chain  *account
	uses   uint32 // tasks of late
	minute int64  // of the last

	atNext, atMost int
}

// run is a task from where it is popped, or begins without waiting, to its end.
type run struct {
	account  *account // nil if it is unused
	number   uint64
	route    uint32
	places   float64
	estimate float64 // nanoseconds
	charged  float64 // nanoseconds, for each place
	began    int64   // 0 as long as it was only popped
	at       int
}

// dueAt is when r will have run for as long as was charged.
func (r *run) dueAt() float64 { return float64(r.began) + r.charged }

// recentMean is the mean of the last durations, in nanoseconds.
type recentMean struct {
	value float64
	of    int
}

func (m *recentMean) add(d float64) {
	m.of = min(m.of+1, meanOver)
	m.value += (d - m.value) / float64(m.of)
}

func newFair(c Config) Discipline {
	q := &fair{room: roomOf(c), seed: maphash.MakeSeed(), config: c}
	if q.config.Objective == nil {
		q.config.Objective = new(Objective)
	}
	q.Resize(c.Workers)
	q.mu.next = heap[*account]{
		before: func(a, b *account) bool {
			return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.turn, b.turn)) < 0
		},
		place: func(a *account) *int { return &a.atNext },
	}
	q.mu.most = heap[*account]{
		before: func(a, b *account) bool {
			if order := cmp.Compare(b.work(), a.work()); order != 0 {
				return order < 0
			}
			return a.queue.surplus().State.Number < b.queue.surplus().State.Number
		},
		place: func(a *account) *int { return &a.atMost },
	}
	q.mu.due = heap[*run]{
		before: func(a, b *run) bool {
			return cmp.Or(cmp.Compare(a.dueAt(), b.dueAt()), cmp.Compare(a.began, b.began)) < 0
		},
		place: func(r *run) *int { return &r.at },
	}
	return q
}

// Resize tells how many workers there are.
func (q *fair) Resize(workers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = max(1, workers)
}

// work is how much waits for its weight.
func (a *account) work() float64 { return a.places * a.expects / a.weight }

// waitingPlaces returns what t counts for while it waits, which does not change.
func waitingPlaces(t *Task) float64 { return float64(min(t.Places(), mostPlaces)) }

// Push adds t to the queue of its client, unless it would be late there. If there is no room, a task of the client
// with the most waiting work is displaced.
func (q *fair) Push(t *Task, now int64) (v Verdict) {
	hash := maphash.String(q.seed, t.Client)
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.accountLocked(t.Client, hash, now)
	if a.queue.Len() == 0 {
		q.beginsToWaitLocked(a, t, now)
	}
	v = a.queue.pushAs(q.mu.pushes, t, now)
	q.mu.pushes++
	if v.Displaced != nil {
		q.leftLocked(a, v.Displaced)
	}
	if v.Outcome != Queued {
		return v
	}
	if v.Displaced == nil && q.fullLocked() {
		most := q.mu.most.first()
		if a.atMost != 0 && a.work() >= most.work() {
			most = a
		}
		v.Reason, v.Displaced = ReasonFair, most.queue.surplus()
		most.queue.takeLocked(v.Displaced)
		if v.Displaced == t {
			return Verdict{Outcome: TurnedAway, Reason: ReasonFair}
		}
		q.leftLocked(most, v.Displaced)
	}
	t.State.Count = a.number
	a.places += waitingPlaces(t)
	if a.atNext == 0 {
		q.mu.next.add(a)
		q.mu.most.add(a)
	} else {
		q.mu.most.fix(a)
	}
	if v.Displaced == nil {
		q.waiting.Add(1)
	}
	return v
}

// beginsToWaitLocked prepares a for t, the only task of a that waits.
func (q *fair) beginsToWaitLocked(a *account, t *Task, now int64) {
	if a.mean.of == 0 {
		a.expects = q.estimateLocked(a, q.routeOf(t))
	}
	// Workers would have begun tasks of a meanwhile, when they found nothing, or served others who were behind it.
	missed := float64(q.mu.found - a.found)
	if behind := q.mu.now - a.time; behind > 0 {
		missed += behind * a.weight / a.expects
	}
	q.raiseLocked(a, now)
	if missed >= 1 {
		a.queue.missed(int(min(missed, autoSpare)), a.taken)
	}
	q.mu.turn++
	a.turn = q.mu.turn
}

// raiseLocked raises the virtual time of a, of which nothing waits, to that of the system, less what may be saved up.
func (q *fair) raiseLocked(a *account, now int64) {
	task := q.mu.all.value
	if a.queue.pressed(a.taken, now) {
		task = max(task, min(a.mean.value, float64(q.config.Objective.InForce())))
	}
	a.time = max(a.time, q.mu.now-savedTasks*task/a.weight)
}

// Pop takes the next task of the client with the least virtual time.
func (q *fair) Pop(now int64) (*Task, PopResult, Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.chargeOverdueLocked(now)
	if len(q.mu.next.items) == 0 {
		q.mu.found++
		return nil, Empty, ReasonNone
	}
	a := q.mu.next.first()
	a.taken = now
	t, what, reason := a.queue.Pop(now)
	if what != Run {
		q.leftLocked(a, t)
		q.waiting.Add(-1)
		return t, what, reason
	}
	if !a.popped {
		a.popped = true
		q.mu.popped = append(q.mu.popped, a)
	}
	q.mu.turn++
	a.turn = q.mu.turn
	t.Run = q.chargeLocked(a, t).number
	q.leftLocked(a, t)
	q.waiting.Add(-1)
	return t, Run, ReasonNone
}

// TurnBegan tells the queues of what was popped that a turn began.
func (q *fair) TurnBegan(now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.mu.popped {
		a.popped = false
		service := 0.
		if a.mean.of > 0 {
			service = a.mean.value
		}
		a.queue.turnOf(service, q.workers, now)
	}
	q.mu.popped = q.mu.popped[:0]
}

// Began tells that t begins to run. If it was not popped, nothing waited, and its client is charged now.
func (q *fair) Began(t *Task, now int64) {
	hash := uint64(0)
	if t.Run == 0 {
		hash = maphash.String(q.seed, t.Client)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.Run == 0 {
		a := q.accountLocked(t.Client, hash, now)
		if a.queue.Len() == 0 {
			q.raiseLocked(a, now)
		}
		t.Run = q.chargeLocked(a, t).number
	}
	r := q.runLocked(t.Run)
	if r == nil || r.began != 0 {
		return
	}
	r.began = max(1, now)
	q.mu.due.add(r)
}

// Ended settles what the client of a run was charged for.
func (q *fair) Ended(number uint64, of int, now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.runLocked(number)
	if r == nil {
		return
	}
	a, took := r.account, 0.
	if r.began != 0 {
		took = max(0, float64(now-r.began)) / float64(max(1, of))
		a.mean.add(took)
		a.expects = max(1, a.mean.value)
		q.mu.routes[r.route].add(took)
		q.mu.all.add(took)
		q.mu.due.remove(r)
	}
	q.payLocked(a, (took-r.charged)*r.places)
	q.mu.most.fix(a)
	a.running--
	*r = run{number: number}
	q.mu.unused = append(q.mu.unused, number)
	if q.mu.running--; q.mu.running == 0 && len(q.mu.next.items) == 0 {
		q.mu.now = q.mu.latest // nobody owes anything for a time when nobody waited
	}
}

// payLocked adds so many nanoseconds of a place to what a has had.
func (q *fair) payLocked(a *account, d float64) {
	a.time += d / a.weight
	q.mu.latest = max(q.mu.latest, a.time)
	q.mu.next.fix(a)
}

// chargeLocked charges a for t, which is about to begin.
func (q *fair) chargeLocked(a *account, t *Task) *run {
	started := a.time
	if len(q.mu.next.items) > 0 { // it goes on, and others are before it
		started = min(started, q.mu.next.first().time)
	}
	q.mu.now = max(q.mu.now, started)
	if len(q.mu.unused) == 0 {
		q.mu.runs = append(q.mu.runs, &run{number: uint64(len(q.mu.runs) + 1)})
		q.mu.unused = append(q.mu.unused, uint64(len(q.mu.runs)))
	}
	last := len(q.mu.unused) - 1
	r := q.mu.runs[q.mu.unused[last]-1]
	q.mu.unused = q.mu.unused[:last]
	r.account, r.route, r.places = a, q.routeOf(t), float64(min(t.Places(), q.workers))
	r.estimate = q.estimateLocked(a, r.route)
	r.charged = r.estimate
	q.mu.running++
	a.running++
	q.payLocked(a, r.charged*r.places)
	return r
}

// chargeOverdueLocked charges for what runs, and has run for longer than was charged.
func (q *fair) chargeOverdueLocked(now int64) {
	for len(q.mu.due.items) > 0 {
		r := q.mu.due.first()
		if r.dueAt() > float64(now) {
			return
		}
		ran := float64(now - r.began)
		more := ran + max(r.estimate, min(ran*overdueShare, overdueMost), 1) - r.charged
		r.charged += more
		q.mu.due.fix(r)
		q.payLocked(r.account, more*r.places)
	}
}

// runLocked returns the run of that number, nil if there is none.
func (q *fair) runLocked(number uint64) *run {
	if number == 0 || number > uint64(len(q.mu.runs)) || q.mu.runs[number-1].account == nil {
		return nil
	}
	return q.mu.runs[number-1]
}

// estimateLocked returns how long a task of a on that route takes, in nanoseconds.
func (q *fair) estimateLocked(a *account, route uint32) float64 {
	for _, m := range [...]*recentMean{&a.mean, &q.mu.routes[route], &q.mu.all} {
		if m.of > 0 {
			return max(1, m.value)
		}
	}
	return unknownTask
}

// routeOf returns the number of the route of t.
func (q *fair) routeOf(t *Task) uint32 {
	return uint32(maphash.String(q.seed, t.Route) % routeMeans)
}

// Remove takes t out of the queue.
func (q *fair) Remove(t *Task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	number := t.State.Count // perhaps of another discipline
	if number < 0 || number >= len(q.mu.accounts) {
		return false
	}
	a := q.mu.accounts[number]
	if a == nil || !a.queue.Remove(t) {
		return false
	}
	q.leftLocked(a, t)
	q.waiting.Add(-1)
	return true
}

// leftLocked notes that t has left the queue of a.
func (q *fair) leftLocked(a *account, t *Task) {
	t.State.Count = 0
	if a.queue.Len() > 0 {
		a.places -= waitingPlaces(t)
		q.mu.next.fix(a)
		q.mu.most.fix(a)
		return
	}
	a.places = 0
	a.found = q.mu.found
	if a.atNext != 0 {
		q.mu.next.remove(a)
		q.mu.most.remove(a)
	}
}

// accountLocked returns the account for a task of a client. Who shares one goes on to do so as long as something
// waits there: or else new tasks in an account of its own would overtake the old.
func (q *fair) accountLocked(client string, hash uint64, now int64) *account {
	minute := now / int64(time.Minute)
	for a := q.mu.names[hash%accountChains]; a != nil; a = a.chain {
		if a.hash == hash {
			a.used(minute)
			return a
		}
	}
	share := ownAccounts + int(hash>>32%sharedAccounts)
	if a := q.mu.accounts[share]; a != nil && a.queue.Len() > 0 {
		return a
	}
	weight := 1
	if q.config.Weight != nil {
		weight = min(max(1, q.config.Weight(client)), largestWeight) // it may panic, as nothing has changed yet
	}
	a := q.vacantLocked(minute)
	if a == nil {
		if q.mu.accounts[share] == nil {
			q.openLocked(new(account), share)
		}
		return q.mu.accounts[share]
	}
	q.openLocked(a, a.number)
	a.own, a.hash, a.weight = true, hash, float64(weight)
	at := &q.mu.names[hash%accountChains]
	a.chain, *at = *at, a
	a.used(minute)
	return a
}

// openLocked makes a the account of that number, for somebody who is new.
func (q *fair) openLocked(a *account, number int) {
	*a = account{number: number, weight: 1, time: q.mu.now, found: q.mu.found}
	a.queue.init(q.config)
	a.queue.capacity++ // there is room in fair
	q.mu.accounts[number] = a
}

// vacantLocked returns an own account that nobody has, or nil.
func (q *fair) vacantLocked(minute int64) *account {
	if q.mu.own < ownAccounts {
		q.mu.own++
		return &account{number: q.mu.own - 1}
	}
	var vacant *account
	for range looks {
		a := q.mu.accounts[q.mu.hand]
		q.mu.hand = (q.mu.hand + 1) % ownAccounts
		if a.running == 0 && !a.popped && a.queue.Len() == 0 && a.late(minute) <= 1 && (vacant == nil || a.uses < vacant.uses) {
			vacant = a
		}
	}
	if vacant != nil {
		at := &q.mu.names[vacant.hash%accountChains]
		for *at != vacant {
			at = &(*at).chain
		}
		*at = vacant.chain
	}
	return vacant
}

// late returns how many tasks a has had of late.
func (a *account) late(minute int64) uint32 {
	if passed := minute - a.minute; passed > 0 {
		a.uses >>= uint(min(passed, 32))
		a.minute = minute
	}
	return a.uses
}

func (a *account) used(minute int64) {
	if a.late(minute) < math.MaxUint32 {
		a.uses++
	}
}
