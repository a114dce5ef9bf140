package strategytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/strategies"
)

// pooled is a task with a note on who has it. Its pusher alone pushes it, and
// removes it, as the submitter does in the service; who takes it gives it back
// by clearing inside.
type pooled struct {
	task   strategies.Task
	inside atomic.Bool // from just before Push until it has come back
}

func newPooled(n int) []*pooled {
	all := make([]*pooled, n)
	for i := range all {
		all[i] = new(pooled)
		all[i].task.Owner = all[i]
	}
	return all
}

// cameBack is called by whoever got a task out of the discipline, once he does
// not need it any more.
func cameBack(t *strategies.Task, how string) error {
	switch p, ok := t.Owner.(*pooled); {
	case !ok || &p.task != t:
		return fmt.Errorf("a task was %s that nobody had pushed, or whose Owner was changed", how)
	case !p.inside.CompareAndSwap(true, false):
		return fmt.Errorf("a task was %s although it had come back before", how)
	}
	return nil
}

// offer pushes p, which the caller has, and takes back what does not wait after that.
func offer(q strategies.Discipline, p *pooled, now int64) (strategies.Verdict, error) {
	p.inside.Store(true)
	p.task.Arrival = now
	v := q.Push(&p.task, now)
	var err error
	switch {
	case v.Outcome != strategies.Queued:
		err = cameBack(&p.task, "not queued by Push")
	case v.Displaced != nil:
		err = cameBack(v.Displaced, "displaced")
	}
	return v, errors.Join(err, sane(v, q.Cap(), q.Cap(), false))
}

// take pops and gives the task back. It returns whether there was one.
func take(q strategies.Discipline, now int64) (bool, strategies.PopResult, error) {
	t, what, reason := q.Pop(now)
	if err := sanePop(t, what, reason); err != nil || t == nil {
		return false, what, err
	}
	return true, what, cameBack(t, "popped")
}

// drain pops, with nobody else about, what has to be so many tasks.
func drain(q strategies.Discipline, want int) error {
	if n := q.Len(); n != want {
		return fmt.Errorf("Len() = %d while %d tasks wait", n, want)
	}
	for i := range want {
		got, what, err := take(q, 1)
		if err != nil {
			return err
		}
		if !got {
			return fmt.Errorf("Pop answered %s, after %d of %d tasks that wait, and nobody is pushing", name(what), i, want)
		}
	}
	if got, what, err := take(q, 1); err != nil || got || what != strategies.Empty {
		return errors.Join(err, fmt.Errorf("Pop answered %s after the last task", name(what)))
	}
	return nil
}

func name(p strategies.PopResult) string {
	return [...]string{"empty", "contended", "run", "shed"}[min(p, 3)]
}

// together runs the functions at once, which tell of the first thing that is
// wrong, and returns one of the errors.
func together(fs ...func() error) error {
	var (
		wg    sync.WaitGroup
		ready atomic.Int32
		wrong atomic.Pointer[error]
	)
	for _, f := range fs {
		wg.Go(func() {
			// To start at the same moment is what makes races likely.
			for ready.Add(1); int(ready.Load()) < len(fs); {
				runtime.Gosched()
			}
			if err := f(); err != nil {
				wrong.CompareAndSwap(nil, &err)
			}
		})
	}
	wg.Wait()
	if err := wrong.Load(); err != nil {
		return *err
	}
	return nil
}

func capacityUnderContention(spec strategies.Spec) error {
	const pushers = 4
	for _, c := range []int{1, 2, 3, 7, 64, 100} {
		q, _ := newQueue(spec, c)
		if spec.Inline || q.Cap() == strategies.Unbounded {
			return nil
		}
		each := c/pushers + 2
		tasks := newPooled(pushers * each)
		for range 4000 / (c + 20) {
			var queued, full, other atomic.Int64
			push := func(own []*pooled) func() error {
				return func() error {
					for _, p := range own {
						v, err := offer(q, p, 1)
						if err != nil {
							return err
						}
						switch {
						case v.Displaced != nil:
							full.Add(1)
						case v.Outcome == strategies.Queued:
							queued.Add(1)
						case v.Outcome == strategies.CallerRuns || v.Reason == strategies.ReasonFull:
							full.Add(1)
						default:
							other.Add(1)
						}
						if n := q.Len(); n < 0 || n > c {
							return fmt.Errorf("capacity %d: Len() = %d", c, n)
						}
					}
					return nil
				}
			}
			var fs []func() error
			for i := range pushers {
				fs = append(fs, push(tasks[i*each:(i+1)*each]))
			}
			if err := together(fs...); err != nil {
				return err
			}
			n := int(queued.Load())
			switch {
			case n > c:
				return fmt.Errorf("capacity %d: %d tasks were queued by %d pushers at once", c, n, pushers)
			case n < c && other.Load() == 0:
				return fmt.Errorf("capacity %d: %d of %d pushes found no room although only %d tasks wait",
					c, full.Load(), len(tasks), n)
			}
			if err := drain(q, n); err != nil {
				return fmt.Errorf("capacity %d: %w", c, err)
			}
		}
	}
	return nil
}

func emptyUnderContention(spec strategies.Spec) error {
	if spec.Inline {
		return nil
	}
	for _, c := range []int{2, 3, 8, 64} {
		for _, goroutines := range []int{2, min(c, 4)} {
			// A queue that is nearly empty, and one that is nearly full.
			for _, n := range []int{goroutines, c} {
				q, _ := newQueue(spec, c)
				if err := goRound(q, newPooled(n), goroutines); err != nil {
					return fmt.Errorf("capacity %d: %w", c, err)
				}
			}
		}
	}
	return nil
}

// goRound lets goroutines pop tasks and push them again. There are at least as
// many tasks, so while one who has none pops, the others cannot have all; and no
// more than fit, so while one who has a task pushes it, there is room.
func goRound(q strategies.Discipline, tasks []*pooled, goroutines int) error {
	for _, p := range tasks[goroutines:] {
		if _, err := offer(q, p, 1); err != nil {
			return err
		}
	}
	goer := func(own *pooled) func() error {
		return func() error {
			for i := range int64(1000) {
				if own == nil {
					t, what, reason := q.Pop(i)
					if err := sanePop(t, what, reason); err != nil {
						return err
					}
					if what == strategies.Empty {
						return fmt.Errorf("Pop answered empty although %d goroutines cannot have taken %d tasks", goroutines-1, len(tasks))
					}
					if t != nil {
						if err := cameBack(t, "popped"); err != nil {
							return err
						}
						own = t.Owner.(*pooled)
					}
					continue
				}
				v, err := offer(q, own, i)
				if err != nil {
					return err
				}
				if noRoom(v) || v.Outcome == strategies.CallerRuns {
					return fmt.Errorf("Push found no room although at most %d tasks waited", len(tasks)-1)
				}
				if v.Outcome == strategies.Queued {
					own = nil
				}
			}
			return nil
		}
	}
	var fs []func() error
	for _, p := range tasks[:goroutines] {
		fs = append(fs, goer(p))
	}
	if err := together(fs...); err != nil {
		return err
	}
	return drainAll(q, tasks)
}

func exactlyOnceUnderContention(spec strategies.Spec) error {
	for _, c := range []int{1, 2, 3, 4, 7, 64} {
		// With few tasks, each is soon pushed again; with many, the queue is
		// often full.
		for _, own := range []int{1, 3, c + 1} {
			q, remover := newQueue(spec, c)
			if err := churn(q, remover, own, 600); err != nil {
				return fmt.Errorf("capacity %d: %w", c, err)
			}
		}
	}
	return nil
}

// churn lets pushers, each with a number of own tasks, push and remove while
// others pop, and now and then the number of workers changes. Then it takes out what is left.
func churn(q strategies.Discipline, remover strategies.Remover, own, pushes int) error {
	const pushers, poppers = 3, 2
	var (
		tasks   []*pooled
		working atomic.Int32 // pushers
		failed  atomic.Bool
		fs      []func() error
	)
	working.Store(pushers)
	resizer, _ := q.(strategies.Resizer)
	push := func(mine []*pooled) func() error {
		return func() (err error) {
			defer working.Add(-1)
			rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for i := 0; i < pushes && !failed.Load(); i++ {
				p := mine[rng.IntN(len(mine))]
				if !p.inside.Load() {
					_, err = offer(q, p, int64(i))
				} else {
					runtime.Gosched()
				}
				if r := mine[rng.IntN(len(mine))]; err == nil && remover != nil && rng.IntN(3) == 0 && remover.Remove(&r.task) {
					err = cameBack(&r.task, "removed")
				}
				if resizer != nil && rng.IntN(8) == 0 {
					resizer.Resize(1 + rng.IntN(9))
				}
				if n := q.Len(); err == nil && (n < 0 || q.Cap() != strategies.Unbounded && n > q.Cap()) {
					err = fmt.Errorf("Len() = %d", n)
				}
				if err != nil {
					failed.Store(true)
					return err
				}
			}
			return nil
		}
	}
	for range pushers {
		mine := newPooled(own)
		tasks = append(tasks, mine...)
		fs = append(fs, push(mine))
	}
	for range poppers {
		fs = append(fs, func() error {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for i := int64(0); working.Load() > 0; i++ {
				// Not always as fast as possible, or else hardly anything waits.
				if got, _, err := take(q, i); err != nil {
					failed.Store(true)
					return err
				} else if !got || rng.IntN(4) == 0 {
					runtime.Gosched()
				}
			}
			return nil
		})
	}
	if err := together(fs...); err != nil {
		return err
	}
	return drainAll(q, tasks)
}

// drainAll drains q, with nobody else about, and finds that nothing is lost.
func drainAll(q strategies.Discipline, tasks []*pooled) error {
	inside := 0
	for _, p := range tasks {
		if p.inside.Load() {
			inside++
		}
	}
	return drain(q, inside)
}

func removeOrPop(spec strategies.Spec) error {
	for _, c := range []int{1, 2, 3, 8, 33} {
		q, remover := newQueue(spec, c)
		if remover == nil {
			return nil
		}
		tasks := newPooled(c)
		for range 2000 / (c + 4) {
			for _, p := range tasks {
				if _, err := offer(q, p, 1); err != nil {
					return err
				}
			}
			pop := func() error {
				for range (c + 2) / 3 {
					if _, _, err := take(q, 1); err != nil {
						return err
					}
				}
				return nil
			}
			remove := func() error {
				for _, i := range rand.Perm(len(tasks))[:(c+1)/2] {
					if t := &tasks[i].task; remover.Remove(t) {
						if err := cameBack(t, "removed"); err != nil {
							return err
						}
						if remover.Remove(t) {
							return errors.New("Remove returned true twice for one push")
						}
					}
				}
				return nil
			}
			if err := together(pop, remove, pop); err != nil {
				return err
			}
			if err := drainAll(q, tasks); err != nil {
				return fmt.Errorf("capacity %d: %w", c, err)
			}
		}
	}
	return nil
}
