package strategies_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// fairModel is the model of fair: the clients in the order of their turns.
type fairModel struct {
	capacity, workers, pushes int
	clients                   []fairClient
	weight                    func(string) int
}

type fairClient struct {
	name  string
	tasks []*strategies.Task
	at    []int // the numbers of their pushes

	deficit int
	turn    bool
}

func ordinaryWeight(string) int { return 1 }

// weightOf gives the clients of strategytest weights from 1 to 4.
func weightOf(client string) int {
	if client == "" {
		return 1
	}
	return 1 + int(client[0]-'a')
}

func newFairModel(c strategies.Config) strategies.Discipline {
	return &fairModel{capacity: c.Capacity, workers: c.Workers, weight: ordinaryWeight}
}

func (m *fairModel) cost(t *strategies.Task) int { return min(t.Places(), m.workers) }

func (m *fairModel) Push(t *strategies.Task, _ int64) (v strategies.Verdict) {
	if m.Len() == m.capacity {
		worst := slices.MaxFunc(m.clients, func(a, b fairClient) int {
			x, y := len(a.tasks)*m.weight(b.name), len(b.tasks)*m.weight(a.name)
			switch {
			case x != y:
				return x - y
			case a.name == t.Client:
				return 1
			case b.name == t.Client:
				return -1
			}
			return b.at[0] - a.at[0]
		})
		v.Displaced, v.Reason = worst.tasks[0], strategies.ReasonFair
		m.Remove(v.Displaced)
	}
	i := slices.IndexFunc(m.clients, func(c fairClient) bool { return c.name == t.Client })
	if i < 0 {
		i = len(m.clients)
		m.clients = append(m.clients, fairClient{name: t.Client})
	}
	m.pushes++
	m.clients[i].tasks = append(m.clients[i].tasks, t)
	m.clients[i].at = append(m.clients[i].at, m.pushes)
	return v
}

func (m *fairModel) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	if len(m.clients) == 0 {
		return nil, strategies.Empty, strategies.ReasonNone
	}
	for {
		c := m.clients[0]
		m.clients = m.clients[1:]
		if !c.turn {
			c.turn = true
			c.deficit += m.weight(c.name)
		}
		t := c.tasks[0]
		served := m.cost(t) <= c.deficit
		if served {
			c.deficit -= m.cost(t)
			c.tasks, c.at = c.tasks[1:], c.at[1:]
		}
		switch {
		case len(c.tasks) == 0:
		case m.cost(c.tasks[0]) <= c.deficit:
			m.clients = slices.Insert(m.clients, 0, c)
		default:
			c.turn = false
			m.clients = append(m.clients, c)
		}
		if served {
			return t, strategies.Run, strategies.ReasonNone
		}
	}
}

func (m *fairModel) Remove(t *strategies.Task) bool {
	for i, c := range m.clients {
		if j := slices.Index(c.tasks, t); j >= 0 {
			c.tasks, c.at = slices.Delete(c.tasks, j, j+1), slices.Delete(c.at, j, j+1)
			m.clients[i] = c
			if len(c.tasks) == 0 {
				m.clients = slices.Delete(m.clients, i, i+1)
			}
			return true
		}
	}
	return false
}

func (m *fairModel) Len() int {
	n := 0
	for _, c := range m.clients {
		n += len(c.tasks)
	}
	return n
}

func (m *fairModel) Cap() int { return m.capacity }

func newFair(t *testing.T, capacity int) strategies.Discipline {
	return lookup(t, "fair").New(strategies.Config{Capacity: capacity, Workers: 1})
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
	q.(strategies.Resizer).Resize(3)
	require.Equal(t, []string{"b0", "b1", "a1", "b2", "b3", "b4", "b5", "b6", "b7", "b8"}, popAll(t, q, 1))
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
