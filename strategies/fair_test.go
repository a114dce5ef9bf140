package strategies_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// fairModel is the model of fair, for few clients. Each has a queue that is the model of auto.
type fairModel struct {
	config  strategies.Config
	clients []*fairClient
	runs    []*fairRun // by number, less 1; nil after the end
	routes  map[string]*fairMean
	all     fairMean
	pushes  map[*strategies.Task]int // the number of the last of each
	pushed  int

	now, latest float64
	turn, found int
	popped      []*fairClient
}

type fairClient struct {
	*autoModel
	name         string
	weight, time float64
	turn, found  int
	mean         fairMean
	expects      float64
	taken        int64
}

type fairRun struct {
	client                    *fairClient
	route                     *fairMean
	places, estimate, charged float64
	began                     int64
}

// fairMean is a mean of the last 32.
type fairMean struct {
	value float64
	n     int
}

func (m *fairMean) add(d float64) {
	m.n = min(m.n+1, 32)
	m.value += (d - m.value) / float64(m.n)
}

// weightOf gives the clients of strategytest weights from 1 to 4.
func weightOf(client string) int {
	if client == "" {
		return 1
	}
	return 1 + int(client[0]-'a')
}

func newFairModel(c strategies.Config) strategies.Discipline {
	if c.Weight == nil {
		c.Weight = func(string) int { return 1 }
	}
	if c.Objective == nil {
		c.Objective = new(strategies.Objective)
	}
	return &fairModel{config: c, routes: map[string]*fairMean{}, pushes: map[*strategies.Task]int{}}
}

func (m *fairModel) client(name string) *fairClient {
	i := slices.IndexFunc(m.clients, func(c *fairClient) bool { return c.name == name })
	if i < 0 {
		i = len(m.clients)
		roomy := m.config
		roomy.Capacity++
		m.clients = append(m.clients, &fairClient{
			autoModel: newAutoModel(roomy).(*autoModel), name: name, weight: float64(m.config.Weight(name)), time: m.now, found: m.found,
		})
	}
	return m.clients[i]
}

func (m *fairModel) estimate(c *fairClient, route string) float64 {
	if m.routes[route] == nil {
		m.routes[route] = new(fairMean)
	}
	for _, mean := range []*fairMean{&c.mean, m.routes[route], &m.all} {
		if mean.n > 0 {
			return max(1, mean.value)
		}
	}
	return 1e6
}

// work returns how much of c waits for its weight, but for one task.
func (c *fairClient) work(but *strategies.Task) float64 {
	places := 0
	for _, t := range slices.Concat(c.waiting, c.spared) {
		if t != but {
			places += t.Places()
		}
	}
	return float64(places) * c.expects / c.weight
}

// pay charges c, and has m find out what the largest virtual time has been.
func (m *fairModel) pay(c *fairClient, d float64) {
	c.time += d / c.weight
	m.latest = max(m.latest, c.time)
}

func (m *fairModel) raise(c *fairClient, now int64) {
	task := m.all.value
	if c.state != "normal" && float64(now-c.taken) <= float64(8+3*c.workers)*c.interval {
		task = max(task, min(c.mean.value, float64(m.config.Objective.InForce())))
	}
	c.time = max(c.time, m.now-4*task/c.weight)
}

func (m *fairModel) charge(c *fairClient, t *strategies.Task) {
	m.now = max(m.now, c.time)
	r := &fairRun{client: c, places: float64(min(t.Places(), m.config.Workers)), estimate: m.estimate(c, t.Route), route: m.routes[t.Route]}
	r.charged = r.estimate
	m.runs = append(m.runs, r)
	t.Run = uint64(len(m.runs))
	m.pay(c, r.charged*r.places)
}

func (m *fairModel) Push(t *strategies.Task, now int64) strategies.Verdict {
	c := m.client(t.Client)
	if c.Len() == 0 {
		if c.mean.n == 0 {
			c.expects = m.estimate(c, t.Route)
		}
		missed := float64(m.found - c.found)
		if c.time < m.now {
			missed += (m.now - c.time) * c.weight / c.expects
		}
		m.raise(c, now)
		if missed >= 1 {
			c.empty = max(1, c.taken)
			if c.idle += int(min(missed, 256)); c.idle >= 256 {
				c.state = "normal"
			}
		}
		m.turn++
		c.turn = m.turn
	}
	was := m.Len()
	m.pushed++
	m.pushes[t] = m.pushed
	v := c.autoModel.Push(t, now)
	if v.Outcome != strategies.Queued || v.Displaced != nil || was < m.config.Capacity {
		return v
	}
	most := slices.MaxFunc(m.clients, func(a, b *fairClient) int {
		switch {
		case a.work(t) != b.work(t):
			return cmp.Compare(a.work(t), b.work(t))
		case a == c:
			return 1
		case b == c:
			return -1
		case a.Len() == 0 || b.Len() == 0:
			return a.Len() - b.Len()
		}
		return m.pushes[b.surplus()] - m.pushes[a.surplus()]
	})
	v.Displaced, v.Reason = most.surplus(), strategies.ReasonFair
	is := func(a *strategies.Task) bool { return a == v.Displaced }
	most.waiting, most.spared = slices.DeleteFunc(most.waiting, is), slices.DeleteFunc(most.spared, is)
	most.left(m)
	if v.Displaced == t {
		return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFair}
	}
	return v
}

// surplus returns the task that leaves for want of room.
func (c *fairClient) surplus() *strategies.Task {
	if len(c.spared) > 0 {
		return c.spared[0]
	}
	return c.waiting[c.oldest()]
}

// left notes that a task has left c.
func (c *fairClient) left(m *fairModel) {
	if c.Len() == 0 {
		c.found = m.found
	}
}

func (m *fairModel) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	due := func(r *fairRun) float64 { return float64(r.began) + r.charged }
	overdue := slices.DeleteFunc(slices.Clone(m.runs), func(r *fairRun) bool { return r == nil || r.began == 0 || due(r) > float64(now) })
	slices.SortFunc(overdue, func(a, b *fairRun) int { // so that sums are rounded alike
		return cmp.Or(cmp.Compare(due(a), due(b)), cmp.Compare(a.began, b.began))
	})
	for _, r := range overdue {
		ran := float64(now - r.began)
		more := ran + max(r.estimate, min(ran/8, 1e9), 1) - r.charged
		r.charged += more
		m.pay(r.client, more*r.places)
	}
	var next *fairClient
	for _, c := range m.clients {
		if c.Len() > 0 && (next == nil || cmp.Or(cmp.Compare(c.time, next.time), cmp.Compare(c.turn, next.turn)) < 0) {
			next = c
		}
	}
	if next == nil {
		m.found++
		return nil, strategies.Empty, strategies.ReasonNone
	}
	next.taken = now
	t, what, reason := next.autoModel.Pop(now)
	if what == strategies.Run {
		if !slices.Contains(m.popped, next) {
			m.popped = append(m.popped, next)
		}
		m.turn++
		next.turn = m.turn
		m.charge(next, t)
	}
	next.left(m)
	return t, what, reason
}

func (m *fairModel) TurnBegan(now int64) {
	for _, c := range m.popped {
		if c.takes = 0; c.mean.n > 0 {
			c.takes = c.mean.value
		}
		c.autoModel.TurnBegan(now)
		if c.takes > 0 && c.interval > 0 {
			c.workers = 1 + int(min(math.Round(c.takes/c.interval), 1<<20))
			c.shares = float64(m.config.Workers) * c.interval / c.takes
		}
	}
	m.popped = nil
}

func (m *fairModel) Began(t *strategies.Task, now int64) {
	if t.Run == 0 {
		c := m.client(t.Client)
		if c.Len() == 0 {
			m.raise(c, now)
		}
		m.charge(c, t)
	}
	m.runs[t.Run-1].began = max(1, now)
}

func (m *fairModel) Ended(run uint64, of int, now int64) {
	r, took := m.runs[run-1], 0.
	if r.began != 0 {
		took = max(0, float64(now-r.began)) / float64(of)
		r.client.mean.add(took)
		r.client.expects = max(1, r.client.mean.value)
		r.route.add(took)
		m.all.add(took)
	}
	m.pay(r.client, (took-r.charged)*r.places)
	m.runs[run-1] = nil
	if m.Len() == 0 && !slices.ContainsFunc(m.runs, func(r *fairRun) bool { return r != nil }) {
		m.now = m.latest
	}
}

func (m *fairModel) Remove(t *strategies.Task) bool {
	for _, c := range m.clients {
		if c.autoModel.Remove(t) {
			c.left(m)
			return true
		}
	}
	return false
}

func (m *fairModel) Len() int {
	n := 0
	for _, c := range m.clients {
		n += c.Len()
	}
	return n
}

func (m *fairModel) Cap() int { return m.config.Capacity }

func newFair(t *testing.T, capacity int) strategies.Discipline {
	return lookup(t, "fair").New(strategies.Config{Capacity: capacity, Workers: 1})
}

// end has a popped task end at once.
func end(q strategies.Discipline, t *strategies.Task, now int64) {
	m := q.(strategies.Meter)
	m.Began(t, now)
	m.Ended(t.Run, 1, now)
	t.Run = 0
}

// of returns a task of a client, which is its name without the last byte.
func of(name string) *strategies.Task {
	return &strategies.Task{Owner: name, Client: name[:len(name)-1]}
}

func TestFair_WhoMakesRoom(t *testing.T) {
	t.Parallel()
	q := newFair(t, 5)
	for _, push := range []struct{ name, want string }{
		{"a1", "queued"}, {"a2", "queued"}, {"a3", "queued"}, {"b1", "queued"}, {"c1", "queued"},
		// The oldest of the longest queue makes room.
		{"b2", "a1 fair"},
		// Of two as long, it is that of the pushed one.
		{"a4", "a2 fair"},
		{"b3", "b1 fair"},
		// Or else the one that has the oldest.
		{"c2", "a3 fair"},
		{"d1", "c1 fair"},
		{"e1", "b2 fair"},
		// Each has one now: the oldest of all makes room, in favour of one who has
		// none.
		{"f1", "a4 fair"},
		{"f2", "f1 fair"},
	} {
		require.Equal(t, push.want, verdict(q.Push(of(push.name), 1)), push.name)
	}
	require.Equal(t, []string{"b3", "c2", "d1", "e1", "f2"}, popAll(t, q, 1))
}

// A client that has sent much more than the others does not make them wait.
func TestFair_InTurn(t *testing.T) {
	t.Parallel()
	q := newFair(t, 100)
	for i := range 9 {
		q.Push(of("greedy"+strconv.Itoa(i)), 1)
	}
	q.Push(of("a1"), 1)
	q.Push(of("b1"), 1)
	q.Push(of("a2"), 1)
	require.Equal(t, []string{
		"greedy0", "a1", "b1", "greedy1", "a2", "greedy2", "greedy3", "greedy4", "greedy5", "greedy6", "greedy7", "greedy8",
	}, popAll(t, q, 1))
}

// A task counts for no more than all workers, whatever it says that it costs: or else
// its client would not be served again while others wait.
func TestFair_CostsMoreThanThereIs(t *testing.T) {
	t.Parallel()
	q := newFair(t, 100)
	costly := of("a1")
	costly.Cost = math.MaxInt
	q.Push(costly, 1)
	for i := range 9 {
		q.Push(of("b"+strconv.Itoa(i)), 1)
	}
	q.Push(of("a2"), 1)
	q.(strategies.Resizer).Resize(3)
	require.Equal(t, []string{"a1", "b0", "b1", "b2", "a2", "b3", "b4", "b5", "b6", "b7", "b8"}, popAll(t, q, 1))
}

// names makes so many different names out of one string, so that they cost
// little.
func names(n int) []string {
	const length = 8
	b := make([]byte, n*length)
	for i := range n {
		copy(b[i*length:], strconv.Itoa(10_000_000+i))
	}
	all, names := string(b), make([]string, n)
	for i := range names {
		names[i] = all[i*length:][:length]
	}
	return names
}

// Any number of names costs no memory, whether there is room for the tasks of 1,024
// of them at once or for more.
func TestFair_FloodOfNames(t *testing.T) {
	clients := 200_000
	if testing.Short() {
		clients = 50_000
	}
	flood := names(clients)
	for _, capacity := range []int{256, 5000} {
		q := newFair(t, capacity)
		var free []*strategies.Task
		for range capacity + 1 {
			free = append(free, new(strategies.Task))
		}
		next := 0
		push := func() {
			task := free[len(free)-1]
			free = free[:len(free)-1]
			task.Client = flood[next]
			next++
			if v := q.Push(task, 1); v.Displaced != nil {
				free = append(free, v.Displaced)
			}
		}
		for range capacity {
			push()
		}
		require.Zero(t, testing.AllocsPerRun(len(flood)/3-capacity, func() {
			push()
			push()
			task, _, _ := q.Pop(1)
			end(q, task, 1)
			free = append(free, task)
		}))
		require.Equal(t, capacity-1, q.Len())
	}
}

// Clients that share a queue, because there are too many of them, are served in
// the order of their tasks, each exactly once, and one of the first 1,024 keeps
// its own turn.
func TestFair_SharedQueues(t *testing.T) {
	t.Parallel()
	const clients, rounds = 3000, 5
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	q := newFair(t, clients*rounds)
	type number struct{ client, i int }
	waiting := map[*strategies.Task]bool{}
	pushed := make([]int, clients)
	flood := names(clients)
	pushAll := func(first int) {
		for i := first; i < clients; i++ {
			task := &strategies.Task{Client: flood[i], Owner: number{i, pushed[i]}}
			pushed[i]++
			waiting[task] = true
			require.Equal(t, "queued", verdict(q.Push(task, 1)))
		}
	}
	popped := make([]int, clients)
	for i := range popped {
		popped[i] = -1
	}
	took := func(task *strategies.Task) {
		require.True(t, waiting[task], "seed %d", seed)
		delete(waiting, task)
	}
	pop := func() int {
		task, _, _ := q.Pop(1)
		took(task)
		n := task.Owner.(number)
		require.Greater(t, n.i, popped[n.client], "in order, seed %d", seed)
		popped[n.client] = n.i
		return n.client
	}
	pushAll(0)
	pushAll(0)
	// A round: the first 1,024, and one of each queue that is shared.
	for i := range 1024 {
		require.Equal(t, i, pop())
	}
	shared := 0
	for client := pop(); client != 0; client = pop() {
		require.GreaterOrEqual(t, client, 1024)
		shared++
	}
	require.LessOrEqual(t, shared, 256)
	require.Greater(t, shared, 128, "no queue is likely to have stayed empty")
	// The first clients leave, and the others go on.
	for task := range waiting {
		if task.Owner.(number).client < 1000 {
			require.True(t, q.(strategies.Remover).Remove(task))
			require.False(t, q.(strategies.Remover).Remove(task))
			delete(waiting, task)
		}
	}
	for range rounds - 2 {
		pushAll(1000)
		for range rng.IntN(clients) {
			pop()
		}
	}
	for q.Len() > 0 {
		pop()
	}
	require.Empty(t, waiting)
}
