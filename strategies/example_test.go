package strategies_test

import (
	"fmt"
	"sync"

	"github.com/spillway-go/spillway/strategies"
)

// readsFirst serves the oldest read or, if none waits, the oldest write.
type readsFirst struct {
	capacity int

	mu    sync.Mutex
	tasks []*strategies.Task // in the order of their arrival
}

func newReadsFirst(c strategies.Config) strategies.Discipline {
	return &readsFirst{
		capacity: c.Capacity,
		tasks:    make([]*strategies.Task, 0, c.Capacity), // so that Push need not allocate
	}
}

func (q *readsFirst) Push(t *strategies.Task, _ int64) strategies.Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tasks) == q.capacity {
		return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull}
	}
	q.tasks = append(q.tasks, t)
	return strategies.Verdict{Outcome: strategies.Queued}
}

func (q *readsFirst) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tasks) == 0 {
		return nil, strategies.Empty, strategies.ReasonNone
	}
	next := 0
	for i, t := range q.tasks {
		if !t.Write {
			next = i
			break
		}
	}
	t := q.tasks[next]
	copy(q.tasks[next:], q.tasks[next+1:])
	q.tasks[len(q.tasks)-1] = nil // or else it would keep the task alive
	q.tasks = q.tasks[:len(q.tasks)-1]
	return t, strategies.Run, strategies.ReasonNone
}

func (q *readsFirst) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tasks)
}

func (q *readsFirst) Cap() int { return q.capacity }

func init() {
	if err := strategies.Register(strategies.Spec{
		Name:    "reads-first",
		Summary: "bounded; reads before writes, each first-in first-out",
		New:     newReadsFirst,
	}); err != nil {
		panic(err)
	}
}

// A strategy of one's own is a type with four methods and a line in the
// registry; from then on it can be chosen by name. To show that it keeps the
// rules, its test calls strategytest.Run.
func ExampleRegister() {
	spec, err := strategies.Lookup("reads-first")
	if err != nil {
		fmt.Println(err)
		return
	}
	q := spec.New(strategies.Config{Capacity: 2, Workers: 1})
	for _, t := range []*strategies.Task{
		{Payload: "a write", Write: true},
		{Payload: "a read"},
		{Payload: "one too many"},
	} {
		if v := q.Push(t, 0); v.Outcome == strategies.TurnedAway {
			fmt.Println("turned away:", t.Payload, "-", v.Reason)
		}
	}
	for q.Len() > 0 {
		t, _, _ := q.Pop(0)
		fmt.Println(t.Payload)
	}
	// Output:
	// turned away: one too many - full
	// a read
	// a write
}
