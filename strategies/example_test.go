package strategies_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// cheapFirst serves what costs least first, and of the same cost the oldest. It keeps
// its tasks in a list through their State, so that it allocates nothing.
type cheapFirst struct {
	capacity int

	mu    sync.Mutex
	front *strategies.Task
	n     int
}

func newCheapFirst(c strategies.Config) strategies.Discipline {
	return &cheapFirst{capacity: c.Capacity}
}

func (q *cheapFirst) Push(t *strategies.Task, _ int64) strategies.Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == q.capacity {
		return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull}
	}
	at := &q.front
	for *at != nil && (*at).Places() <= t.Places() {
		at = &(*at).State.Next
	}
	t.State.Next, *at = *at, t
	q.n++
	return strategies.Verdict{Outcome: strategies.Queued}
}

func (q *cheapFirst) Pop(int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.front
	if t == nil {
		return nil, strategies.Empty, strategies.ReasonNone
	}
	q.front, t.State.Next = t.State.Next, nil // or else it would keep the next one alive
	q.n--
	return t, strategies.Run, strategies.ReasonNone
}

func (q *cheapFirst) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n
}

func (q *cheapFirst) Cap() int { return q.capacity }

func init() {
	if err := strategies.Register(strategies.Spec{
		Name:    "cheap-first",
		Summary: "bounded; the cheapest first, of the same cost the oldest; when full, the newest is turned away",
		New:     newCheapFirst,
	}); err != nil {
		panic(err)
	}
}

// A strategy of one's own is a type with four methods. Registered, it can be chosen by
// name; its Spec can be passed as a value as well. To show that it keeps the rules, its
// test calls strategytest.Run.
func ExampleRegister() {
	spec, err := strategies.Lookup("cheap-first")
	if err != nil {
		fmt.Println(err)
		return
	}
	q := spec.New(strategies.Config{Capacity: 2, Workers: 1})
	for _, t := range []*strategies.Task{
		{Client: "a large one", Cost: 8},
		{Client: "an ordinary one"},
		{Client: "one too many"},
	} {
		if v := q.Push(t, 0); v.Outcome == strategies.TurnedAway {
			fmt.Println("turned away:", t.Client, "-", v.Reason)
		}
	}
	for q.Len() > 0 {
		t, _, _ := q.Pop(0)
		fmt.Println(t.Client)
	}
	// Output:
	// turned away: one too many - full
	// an ordinary one
	// a large one
}

// A strategy whose law has constants can be had with others than the usual ones.
func ExampleCoDel() {
	spec := strategies.CoDel(strategies.CoDelOptions{Target: 50 * time.Millisecond})
	q := spec.New(strategies.Config{Capacity: 100, Workers: 4})
	fmt.Println(spec.Name, q.Cap())
	// Output: codel 100
}

// With weights, a client has so many parts of what there is.
func ExampleConfig_weight() {
	weight := func(client string) int {
		if client == "gold" {
			return 3
		}
		return 1
	}
	spec, _ := strategies.Lookup("fair")
	q := spec.New(strategies.Config{Capacity: 100, Workers: 4, Weight: weight})
	for range 8 {
		q.Push(&strategies.Task{Client: "tin"}, 0)
		q.Push(&strategies.Task{Client: "gold"}, 0)
	}
	for range 8 {
		t, _, _ := q.Pop(0)
		fmt.Print(t.Client, " ")
	}
	// Output: tin gold gold gold tin gold gold gold
}

// The zero Task is an ordinary request; urgencies are those of RFC 9218.
func ExampleUrgency() {
	fmt.Println(strategies.Task{}.Priority.Class(), strategies.Urgency(0).Class(), strategies.Urgency(7).Class())
	// Output: 3 0 7
}
