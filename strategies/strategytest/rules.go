package strategytest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/spillway-go/spillway/strategies"
)

// capacities are those that a bounded discipline is tried with: the smallest,
// powers of two, and what lies beside them.
var capacities = []int{1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 100, 1000}

// patience is how long an operation may take that should return at once. It is
// for machines that are very slow.
const patience = time.Minute

// longest is how long the check of a rule may take, which is within what go test grants a
// package by default.
const longest = 5 * time.Minute

func newQueue(spec strategies.Spec, capacity int) (strategies.Discipline, strategies.Remover) {
	q := spec.New(strategies.Config{Capacity: capacity, Workers: 2})
	r, _ := q.(strategies.Remover)
	return q, r
}

func newTasks(n int) []*strategies.Task {
	tasks := make([]*strategies.Task, n)
	for i := range tasks {
		tasks[i] = &strategies.Task{Arrival: 1}
	}
	return tasks
}

// sane returns what is wrong with a verdict in itself, given while so many
// tasks wait.
func sane(v strategies.Verdict, capacity, waiting int, inline bool) error {
	if inline && v.Outcome != strategies.CallerRuns {
		return fmt.Errorf("Push answered %d (outcome) although the strategy is inline", v.Outcome)
	}
	switch v.Outcome {
	case strategies.Queued, strategies.CallerRuns:
		if v.Reason != strategies.ReasonNone && v.Displaced == nil {
			return fmt.Errorf("Push gave the reason %q although it neither turned a task away nor displaced one", v.Reason)
		}
		if v.Reason == strategies.ReasonFull {
			return fmt.Errorf("Push displaced a task for the reason %q", v.Reason)
		}
	case strategies.TurnedAway:
		if v.Reason == strategies.ReasonNone {
			return fmt.Errorf("Push turned a task away for the reason %q", v.Reason)
		}
	default:
		return fmt.Errorf("Push answered %d, which is no outcome", v.Outcome)
	}
	if v.Displaced != nil && v.Outcome != strategies.Queued {
		return errors.New("Push displaced a task but did not queue the pushed one")
	}
	if v.Reason == strategies.ReasonFull && (capacity == strategies.Unbounded || waiting < capacity) {
		return fmt.Errorf("Push answered full while %d tasks wait and %d may", waiting, capacity)
	}
	return nil
}

// declared returns what is wrong with a reason: that it is neither one of all
// strategies nor one of the strategy's own.
func declared(spec *strategies.Spec, r strategies.Reason) error {
	if r != strategies.ReasonNone && !spec.Sheds(r) {
		return fmt.Errorf("the reason %q is neither of strategies.Reasons nor in Spec.Reasons", r)
	}
	return nil
}

// sanePop returns what is wrong with an answer of Pop in itself.
func sanePop(t *strategies.Task, what strategies.PopResult, reason strategies.Reason) error {
	switch what {
	case strategies.Empty, strategies.Contended:
		if t != nil || reason != strategies.ReasonNone {
			return errors.New("Pop found nothing and returned a task or a reason")
		}
	case strategies.Run:
		if t == nil || reason != strategies.ReasonNone {
			return fmt.Errorf("Pop answered run with the task %p and the reason %q", t, reason)
		}
	case strategies.Shed:
		if t == nil || reason == strategies.ReasonNone {
			return fmt.Errorf("Pop answered shed with the task %p and the reason %q", t, reason)
		}
	default:
		return fmt.Errorf("Pop answered %d, which is nothing it may answer", what)
	}
	return nil
}

func inline(spec strategies.Spec) error {
	if !spec.Inline {
		return nil
	}
	q, _ := newQueue(spec, 8)
	for range 20 {
		if v := q.Push(newTasks(1)[0], 1); v != (strategies.Verdict{Outcome: strategies.CallerRuns}) {
			return fmt.Errorf("Push answered %+v", v)
		}
		if t, what, _ := q.Pop(1); t != nil || what != strategies.Empty {
			return fmt.Errorf("Pop answered %d (popped)", what)
		}
		if q.Len() != 0 || q.Cap() != 0 {
			return fmt.Errorf("Len() = %d and Cap() = %d, want 0 and 0", q.Len(), q.Cap())
		}
	}
	return nil
}

func returnsAtOnce(spec strategies.Spec, patience time.Duration) error {
	q, _ := newQueue(spec, 2)
	for _, call := range []struct {
		what string
		call func()
	}{
		{"Pop, while nothing waits,", func() { q.Pop(1) }},
		{"Push, into a full queue,", func() {
			for _, t := range newTasks(5) {
				q.Push(t, 1)
			}
		}},
		{"Pop, after everything was popped,", func() {
			for range 6 {
				q.Pop(2)
			}
		}},
	} {
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			call.call()
		}()
		select {
		case <-returned:
		case <-time.After(patience):
			return fmt.Errorf("%s has not returned for %v", call.what, patience)
		}
	}
	return nil
}

func capacity(spec strategies.Spec) error {
	for _, c := range capacities {
		q, _ := newQueue(spec, c)
		switch bound := q.Cap(); {
		case spec.Inline:
			return nil // the rule of that name
		case bound == strategies.Unbounded:
		case bound != c:
			return fmt.Errorf("Cap() = %d after New with the capacity %d", bound, c)
		}
		waiting := 0
		for i, t := range newTasks(c + 10) {
			v := q.Push(t, int64(1+i))
			if err := cmp.Or(sane(v, q.Cap(), waiting, false), declared(&spec, v.Reason)); err != nil {
				return fmt.Errorf("capacity %d: %w", c, err)
			}
			if v.Outcome == strategies.Queued && v.Displaced == nil {
				waiting++
			}
			if q.Cap() != strategies.Unbounded && waiting > c {
				return fmt.Errorf("capacity %d: %d tasks were queued and none displaced", c, waiting)
			}
			if n := q.Len(); n != waiting {
				return fmt.Errorf("capacity %d: Len() = %d while %d tasks wait", c, n, waiting)
			}
		}
	}
	return nil
}

// noRoom says that a push did not find room.
func noRoom(v strategies.Verdict) bool {
	return v.Reason == strategies.ReasonFull || v.Displaced != nil
}

func roomAfterRemoval(spec strategies.Spec) error {
	for _, c := range []int{1, 2, 3, 4, 7, 64, 100} {
		q, remover := newQueue(spec, c)
		if remover == nil {
			return nil
		}
		tasks := newTasks(c)
		push := func(t *strategies.Task, waiting int) error {
			v := q.Push(t, 1)
			if noRoom(v) {
				return fmt.Errorf("capacity %d: Push found no room while %d tasks wait, others having been removed", c, waiting)
			}
			if v.Outcome != strategies.Queued {
				remover = nil // turned away for a reason of its own: nothing to be seen here
			}
			return nil
		}
		for i, t := range tasks {
			if err := push(t, i); err != nil {
				return err
			}
		}
		// One stays, wherever it stands; the others leave and come back, and so
		// often that any place that is lost will be missed.
		for _, stays := range []int{0, c / 2, c - 1} {
			for range 50 {
				for i, t := range tasks {
					if remover == nil {
						return nil
					}
					if i == stays {
						continue
					}
					if !remover.Remove(t) {
						return fmt.Errorf("capacity %d: Remove did not find a task that waits", c)
					}
					if err := push(t, c-1); err != nil {
						return err
					}
				}
			}
			for i, t := range tasks {
				if i != stays && !remover.Remove(t) {
					return fmt.Errorf("capacity %d: Remove did not find a task that waits", c)
				}
			}
			if n := q.Len(); n != 1 {
				return fmt.Errorf("capacity %d: Len() = %d after all tasks but one were removed", c, n)
			}
			for i, t := range tasks {
				if i != stays {
					if err := push(t, i); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func exactlyOnce(spec strategies.Spec) error { return replayRandom(spec, nil) }

func followsModel(spec strategies.Spec, model func(strategies.Config) strategies.Discipline) error {
	return replayRandom(spec, model)
}

// retention looks at tasks through weak pointers, which become nil when the
// collector finds that nothing else leads to them.
func retention(spec strategies.Spec) error {
	const capacity = 8
	q, remover := newQueue(spec, capacity)
	if !collected(passThrough(q, remover)) {
		return errors.New("the discipline keeps a task alive that it has given back")
	}
	runtime.KeepAlive(q)

	ways := []string{"popped"}
	if remover != nil {
		ways = append(ways, "removed")
	}
	for _, how := range ways {
		given, left := leave(spec, how)
		if !collected(left) {
			return fmt.Errorf("a task that was %s keeps others alive that it waited with", how)
		}
		runtime.KeepAlive(given)
	}
	return nil
}

// passThrough sends tasks through q on every way there is.
func passThrough(q strategies.Discipline, remover strategies.Remover) []weak.Pointer[strategies.Task] {
	var passed []weak.Pointer[strategies.Task]
	for range 5 {
		tasks := newTasks(30) // more than fit
		for i, t := range tasks {
			q.Push(t, 1)
			passed = append(passed, weak.Make(t))
			if remover != nil && i%4 > 1 {
				remover.Remove(t)
			}
		}
		for range tasks {
			q.Pop(2)
		}
	}
	return passed
}

// leave fills a queue, takes one task out, and forgets the queue. It returns the
// task and the ones left.
func leave(spec strategies.Spec, how string) (*strategies.Task, []weak.Pointer[strategies.Task]) {
	tasks := newTasks(8)
	q, remover := newQueue(spec, len(tasks))
	for _, t := range tasks {
		q.Push(t, 1)
	}
	given := tasks[len(tasks)/2]
	if how == "popped" {
		given, _, _ = q.Pop(1)
	} else if remover != nil {
		remover.Remove(given)
	}
	var left []weak.Pointer[strategies.Task]
	for _, t := range tasks {
		if t != given {
			left = append(left, weak.Make(t))
		}
	}
	return given, left
}

func collected(tasks []weak.Pointer[strategies.Task]) bool {
	for range 5 {
		runtime.GC()
		alive := false
		for _, p := range tasks {
			alive = alive || p.Value() != nil
		}
		if !alive {
			return true
		}
	}
	return false
}

func allocations(spec strategies.Spec) error {
	const capacity = 64
	q, remover := newQueue(spec, capacity)
	if q.Cap() == strategies.Unbounded {
		return nil
	}
	tasks := newTasks(capacity + 8)
	now := int64(1)
	perRun := testing.AllocsPerRun(100, func() {
		for _, t := range tasks {
			now++
			q.Push(t, now)
		}
		if remover != nil {
			for _, t := range tasks[capacity/4 : capacity/2] {
				remover.Remove(t)
			}
		}
		for q.Len() > 0 {
			now++
			t, _, _ := q.Pop(now)
			if t != nil && t.Run != 0 {
				q.(strategies.Meter).Ended(t.Run, 1, now)
				t.Run = 0
			}
		}
	})
	if perRun > 0 {
		return fmt.Errorf("%v allocations by %d pushes, some removals, and pops", perRun, len(tasks))
	}
	return nil
}

func learner(spec strategies.Spec) error {
	q, _ := newQueue(spec, 16)
	l, ok := q.(strategies.CompletionObserver)
	if !ok {
		return nil
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range int64(1000) {
				l.Completed(0, 0, i)
				l.Completed(i, 1<<40, i)
				l.Completed(1<<62, 1, i-500) // the clocks of workers differ
			}
		})
		wg.Go(func() {
			for i, t := range newTasks(1000) {
				q.Push(t, int64(i))
				q.Pop(int64(i))
			}
		})
	}
	wg.Wait()
	return nil
}

func meter(spec strategies.Spec) error {
	q, _ := newQueue(spec, 16)
	m, ok := q.(strategies.Meter)
	if !ok {
		return nil
	}
	var wg sync.WaitGroup
	var numberless atomic.Int64
	for g := range 4 {
		wg.Go(func() {
			var runs []uint64
			for i, t := range newTasks(1000) {
				now := int64(i * 1000)
				t.Client = string(rune('a' + i%5))
				if i%3 == 0 {
					m.Began(t, now) // it did not wait
				} else {
					if v := q.Push(t, now); v.Displaced != nil {
						v.Displaced.Run = 0
					}
					var what strategies.PopResult
					if t, what, _ = q.Pop(now); what != strategies.Run {
						continue
					}
					if i%3 == 1 {
						m.Began(t, now-500) // the clocks of workers differ
					}
				}
				if t.Run == 0 {
					numberless.Add(1)
					continue
				}
				if runs = append(runs, t.Run); len(runs) > 4 {
					m.Ended(runs[0], 1+g, now)
					runs = runs[1:]
				}
			}
			for _, run := range runs {
				m.Ended(run, 1, math.MaxInt64)
			}
		})
	}
	wg.Wait()
	if n := numberless.Load(); n > 0 {
		return fmt.Errorf("%d tasks that run have no number", n)
	}
	return nil
}

// observe pushes twice as much as it pops, with deadlines that cannot be met.
func observe(spec strategies.Spec) error {
	const capacity = 64
	q := spec.New(strategies.Config{Capacity: capacity, Workers: 2, Observe: true})
	if spec.Inline {
		return nil
	}
	turns, _ := q.(strategies.TurnObserver)
	learner, _ := q.(strategies.CompletionObserver)
	now := int64(1)
	for i := range 4000 {
		now += 5_000_000
		room := q.Len() < q.Cap() || q.Cap() == strategies.Unbounded
		task := &strategies.Task{Arrival: now, Submitted: now, Deadline: now + 1, Priority: strategies.Urgency(i % 8)}
		v := q.Push(task, now)
		if err := cmp.Or(sane(v, q.Cap(), q.Len(), false), declared(&spec, task.WouldShed)); err != nil {
			return err
		}
		if room && (v.Outcome != strategies.Queued || v.Displaced != nil) {
			return fmt.Errorf("Push answered %d (outcome) for the reason %q although there was room", v.Outcome, v.Reason)
		}
		if i%2 == 0 {
			continue
		}
		t, what, reason := q.Pop(now)
		if what != strategies.Run || t == nil {
			return fmt.Errorf("Pop answered %s for the reason %q", name(what), reason)
		}
		if err := declared(&spec, t.WouldShed); err != nil {
			return err
		}
		if turns != nil {
			turns.TurnBegan(now)
		}
		if learner != nil {
			learner.Completed(now-t.Submitted, 10_000_000, now)
		}
	}
	return nil
}

func turns(spec strategies.Spec) error {
	const pace = 10_000
	for _, batch := range []int{1, 8, 32} {
		q, _ := newQueue(spec, 64)
		observer, ok := q.(strategies.TurnObserver)
		if !ok {
			return nil
		}
		now := int64(1)
		for range 200 {
			for q.Len() < 48 {
				q.Push(&strategies.Task{Arrival: now, Submitted: now}, now)
			}
			now += pace
			for range batch {
				q.Pop(now)
			}
			observer.TurnBegan(now)
		}
		m, ok := q.(strategies.Measurer)
		if !ok {
			continue
		}
		want := int64(pace / batch)
		if got := m.Measured().Pace; got < want*9/10 || got > want*11/10 {
			return fmt.Errorf("Measured().Pace = %d after turns of %d tasks that began every %d ns, want about %d", got, batch, pace, want)
		}
	}
	return nil
}
