//go:build !race

package strategies_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// bench has tasks of a few clients run at so many places, in a time of its own.
type bench struct {
	q      strategies.Discipline
	meter  strategies.Meter
	now    int64
	places int
	runs   []benchRun
	had    map[string]int64 // nanoseconds of places, of what has ended
}

type benchRun struct {
	client       string
	number       uint64
	began, until int64
}

func newBench(t *testing.T, places int, weight func(string) int) *bench {
	t.Helper()
	o := new(strategies.Objective)
	require.NoError(t, o.Set(strategies.NoObjective))
	q := lookup(t, "fair").New(strategies.Config{Capacity: 1000, Workers: places, Objective: o, Weight: weight})
	return &bench{q: q, meter: q.(strategies.Meter), now: 1, places: places, had: map[string]int64{}}
}

// fill has so many tasks of a client wait.
func (b *bench) fill(client string, n int) {
	for range n {
		b.q.Push(&strategies.Task{Client: client, Arrival: b.now, Submitted: b.now}, b.now)
	}
}

// begin begins what there is a place for. It returns the clients in that order.
func (b *bench) begin(takes func(client string) int64) (began []string) {
	for len(b.runs) < b.places && b.q.Len() > 0 {
		t, _, _ := b.q.Pop(b.now)
		b.meter.Began(t, b.now)
		b.runs = append(b.runs, benchRun{t.Client, t.Run, b.now, b.now + takes(t.Client)})
		began = append(began, t.Client)
	}
	return began
}

// next goes on to the end of the task that ends first.
func (b *bench) next() {
	first := 0
	for i := range b.runs {
		if b.runs[i].until < b.runs[first].until {
			first = i
		}
	}
	r := b.runs[first]
	b.now = r.until
	b.meter.Ended(r.number, 1, b.now)
	b.had[r.client] += r.until - r.began
	b.runs = append(b.runs[:first], b.runs[first+1:]...)
}

// so returns what a client has had so far, and how many places it has.
func (b *bench) so(client string) (had float64, places int) {
	had = float64(b.had[client])
	for _, r := range b.runs {
		if r.client == client {
			had += float64(b.now - r.began)
			places++
		}
	}
	return had, places
}

// Two clients of which something waits all the time never have times that differ by more than what they run at once,
// for their weights: whatever their tasks take, and however wrong the estimates are.
func TestFair_Bound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		clients := []string{"a", "b", "c"}[:2+rng.IntN(2)]
		weights, longest := map[string]int{}, map[string]int64{}
		for _, c := range clients {
			weights[c], longest[c] = 1+rng.IntN(4), int64(1)<<(10+rng.IntN(14))
		}
		b := newBench(t, 1+rng.IntN(9), func(client string) int { return weights[client] })
		most := map[string]int{}
		takes := func(client string) int64 { return max(1, int64(float64(longest[client])*rng.Float64()*rng.Float64())) }
		for _, c := range clients {
			b.fill(c, 20)
		}
		for step := range 3000 {
			for _, c := range b.begin(takes) {
				b.fill(c, 1)
			}
			for _, c := range clients {
				_, n := b.so(c)
				most[c] = max(most[c], n)
			}
			b.next()
			for i, c := range clients {
				for _, d := range clients[:i] {
					x, _ := b.so(c)
					y, _ := b.so(d)
					// Before anything is known a task counts for a millisecond.
					bound := float64(most[c])*max(float64(longest[c]), 1e6)/float64(weights[c]) + float64(most[d])*max(float64(longest[d]), 1e6)/float64(weights[d])
					require.LessOrEqual(t, max(x/float64(weights[c])-y/float64(weights[d]), y/float64(weights[d])-x/float64(weights[c])), bound,
						"seed %d, step %d: %s and %s", seed, step, c, d)
				}
			}
		}
	}
}

// A task that never ends is charged while it runs: its client gets what is left of its share, and nobody else waits for
// it.
func TestFair_NeverEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, nil)
	b.fill("hangs", 20)
	b.fill("a", 20)
	first := true
	takes := func(client string) int64 {
		if client == "hangs" && first {
			first = false
			return int64(time.Hour) * 1000
		}
		return int64(10 * time.Millisecond)
	}
	for b.now < int64(time.Minute) {
		for _, c := range b.begin(takes) {
			b.fill(c, 1)
		}
		b.next()
	}
	hangs, _ := b.so("hangs")
	a, _ := b.so("a")
	require.InDelta(t, 1, hangs/a, 0.05, "one of two places is the task's, the other has tasks that end")
}

// Who was idle has no credit for that, and who used places that nobody else wanted owes nothing.
func TestFair_NoCreditNoDebt(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, nil)
	takes := func(string) int64 { return int64(10 * time.Millisecond) }
	b.fill("late", 1)
	b.begin(takes)
	b.next()
	b.fill("early", 20)
	for range 1000 {
		for range b.begin(takes) {
			b.fill("early", 1)
		}
		b.next()
	}
	b.fill("late", 20)
	from, _ := b.so("early")
	before, _ := b.so("late")
	for range 400 {
		for _, c := range b.begin(takes) {
			b.fill(c, 1)
		}
		b.next()
	}
	early, _ := b.so("early")
	late, _ := b.so("late")
	require.InDelta(t, late-before, early-from, float64(9*10*time.Millisecond))
}

// A client is charged by its own late tasks, or by those of the route, or by all.
func TestFair_Estimates(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, nil)
	run := func(client, route string, took time.Duration) {
		task := &strategies.Task{Client: client, Route: route}
		b.meter.Began(task, b.now)
		b.now += int64(took)
		b.meter.Ended(task.Run, 1, b.now)
	}
	run("x", "slow", 100*time.Millisecond)
	run("y", "fast", time.Millisecond)
	// Two are new. Who asks for the slow route has to wait until the other has had as much.
	for i := range 60 {
		for _, c := range []string{"slow", "fast"} {
			b.q.Push(&strategies.Task{Client: c, Route: c, Owner: i}, b.now)
		}
	}
	order := map[string]int{}
	for range 40 {
		task, _, _ := b.q.Pop(b.now)
		order[task.Client]++
	}
	require.Equal(t, map[string]int{"slow": 1, "fast": 39}, order)
}

// Weights out of range count as the nearest, and names that nobody has weights for as 1.
func TestFair_BadWeights(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, func(client string) int {
		return map[string]int{"none": 0, "negative": -5, "much": 1 << 40}[client]
	})
	for _, c := range []string{"none", "negative", "much", "unknown"} {
		b.fill(c, 200)
	}
	order := map[string]int{}
	for range 300 {
		task, _, _ := b.q.Pop(b.now)
		order[task.Client]++
	}
	require.Equal(t, 200, order["much"])
	for _, c := range []string{"none", "negative", "unknown"} {
		require.InDelta(t, 33, order[c], 1, c)
	}
}

// Weights that panic leave accounts as they were.
func TestFair_WeightPanics(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, func(client string) int {
		if client[0] == 'x' {
			panic("no such client")
		}
		return 1
	})
	for i := range 3000 {
		require.Panics(t, func() { b.fill(fmt.Sprint("x", i), 1) })
	}
	require.Zero(t, b.q.Len())
	takes := func(string) int64 { return 1 }
	for i := range 3000 {
		b.fill(fmt.Sprint("client", i), 1)
		require.Len(t, b.begin(takes), 1)
		b.next()
	}
	require.NoError(t, strategies.AtRest(b.q))
}

// Ranges go on whenever the dispatcher says so, however much their client has had. That delays nobody who is new.
func TestFair_GoesOnBesideOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, nil)
	b.fill("waits", 40)
	for range 1000 {
		task := &strategies.Task{Client: "goes on"}
		b.meter.Began(task, b.now)
		b.now += int64(10 * time.Millisecond)
		b.meter.Ended(task.Run, 1, b.now)
	}
	b.fill("new", 40)
	order := map[string]int{}
	for range 20 {
		for _, c := range b.begin(func(string) int64 { return int64(10 * time.Millisecond) }) {
			order[c]++
		}
		b.next()
	}
	require.InDelta(t, 10, order["new"], 2, "%v", order)
}

// However tasks come, are popped, begin without waiting, end with or without having begun, and are taken out: nobody is
// charged for anything any more once all have ended.
func TestFair_EndsAtRest(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		b := newBench(t, 1+rng.IntN(6), nil)
		var waiting, popped, runs []*strategies.Task
		take := func(from *[]*strategies.Task) *strategies.Task {
			i := rng.IntN(len(*from))
			task := (*from)[i]
			*from = slices.Delete(*from, i, i+1)
			return task
		}
		drop := func(task *strategies.Task) {
			waiting = slices.DeleteFunc(waiting, func(t *strategies.Task) bool { return t == task })
		}
		for step := range 5000 {
			b.now += rng.Int64N(int64(time.Millisecond))
			task := &strategies.Task{Client: fmt.Sprint(rng.IntN(1500)), Cost: rng.IntN(9), Arrival: b.now, Submitted: b.now}
			switch n := rng.IntN(16); {
			case n < 6:
				v := b.q.Push(task, b.now)
				drop(v.Displaced)
				if v.Outcome == strategies.Queued {
					waiting = append(waiting, task)
				}
			case n < 9:
				if task, what, _ := b.q.Pop(b.now); what == strategies.Run {
					drop(task)
					popped = append(popped, task)
				}
			case n < 10:
				b.meter.Began(task, b.now)
				runs = append(runs, task)
			case n < 12 && len(popped) > 0:
				task := take(&popped)
				b.meter.Began(task, b.now)
				runs = append(runs, task)
			case n < 13 && len(popped) > 0:
				b.meter.Ended(take(&popped).Run, 1, b.now)
			case n < 15 && len(runs) > 0:
				b.meter.Ended(take(&runs).Run, 1+rng.IntN(3), b.now)
			case n == 15 && len(waiting) > 0:
				require.True(t, b.q.(strategies.Remover).Remove(take(&waiting)))
			case n == 15:
				b.q.(strategies.Resizer).Resize(rng.IntN(9))
			}
			if len(popped)+len(runs) > 0 {
				require.Error(t, strategies.AtRest(b.q), "seed %d, step %d", seed, step)
			}
		}
		for _, task := range append(popped, runs...) {
			b.meter.Ended(task.Run, 1, b.now)
			b.meter.Ended(task.Run, 1, b.now) // which it knows no more
		}
		require.NoError(t, strategies.AtRest(b.q), "seed %d", seed)
	}
}

// A flood of new names, each used once, does not drive out who has asked of late: a client of 1,024 keeps its account,
// and so the estimate of its own tasks.
func TestFair_FloodDrivesOutItself(t *testing.T) {
	t.Parallel()
	for _, regulars := range []int{1, 1024} {
		t.Run(fmt.Sprint(regulars), func(t *testing.T) {
			t.Parallel()
			floods(t, regulars)
		})
	}
}

// floods has so many clients ask now and then, and others once each.
func floods(t *testing.T, regulars int) {
	t.Helper()
	b := newBench(t, 1, nil)
	run := func(client string, took time.Duration) {
		task := &strategies.Task{Client: client}
		b.meter.Began(task, b.now)
		b.now += int64(took)
		b.meter.Ended(task.Run, 1, b.now)
	}
	for range 4 {
		for i := range regulars {
			run(fmt.Sprint("regular", i), time.Millisecond)
		}
	}
	for i := range 20_000 {
		run(fmt.Sprint("flood", i), 10*time.Microsecond)
	}
	// A task of a regular client is charged a hundred times as much as one of who is new.
	b.fill("regular0", 60)
	b.fill("new", 60)
	order := map[string]int{}
	for range 40 {
		task, _, _ := b.q.Pop(b.now)
		order[task.Client]++
	}
	require.Equal(t, map[string]int{"regular0": 1, "new": 39}, order)
}

// BenchmarkFair_Names is a request of a client that is new each time: a million names.
func BenchmarkFair_Names(b *testing.B) {
	spec, err := strategies.Lookup("fair")
	require.NoError(b, err)
	for _, names := range []int{10, 1_000_000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			all := make([]string, names)
			for i := range all {
				all[i] = fmt.Sprint("client", i)
			}
			q := spec.New(strategies.Config{Capacity: 4096, Workers: 8})
			tasks := make([]strategies.Task, 64)
			for i := range tasks {
				tasks[i].Client = all[i%names]
				q.Push(&tasks[i], 1)
			}
			now, next := int64(1), 0
			b.ReportAllocs()
			for b.Loop() {
				now += 3_600_000 // a million in an hour
				t, _, _ := q.Pop(now)
				q.(strategies.TurnObserver).TurnBegan(now)
				end(q, t, now)
				t.Client, t.Arrival, t.Submitted = all[next], now, now
				next = (next + 1) % names
				q.Push(t, now)
			}
		})
	}
}
