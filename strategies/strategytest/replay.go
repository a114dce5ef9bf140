package strategytest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/strategies"
)

// Replay pushes, pops and removes as the script says, with one goroutine and
// with tasks that are used again at once, and returns what was wrong: a task
// that did not come back exactly once, a wrong length, a capacity that was not
// kept, an answer that contradicts itself and, if model is not nil, an answer
// that the model does not give. Any script is valid, so that a fuzz target is
// one line:
//
//	f.Fuzz(func(t *testing.T, script []byte) {
//		if err := strategytest.Replay(spec, model, script); err != nil {
//			t.Fatal(err)
//		}
//	})
//
// The error lists the steps and says how to repeat them.
func Replay(spec strategies.Spec, model func(strategies.Config) strategies.Discipline, script []byte) error {
	if newReplay(spec, model, script).run() == nil {
		return nil
	}
	script = shrink(script, func(s []byte) bool { return newReplay(spec, model, s).run() != nil })
	r := newReplay(spec, model, script)
	r.log = new(strings.Builder)
	err := r.run()
	return fmt.Errorf("%w\nafter these steps with capacity %d:\n%s"+
		"Repeat them with strategytest.Replay(spec, model, []byte(%q))", err, r.capacity, r.log, script)
}

// shrink drops what it can from the script as long as it fails.
func shrink(script []byte, fails func([]byte) bool) []byte {
	for n := len(script) / 2; n > 0; n /= 2 {
		for i := len(script) - n; i >= 0; i -= n {
			if less := slices.Delete(slices.Clone(script), i, i+n); fails(less) {
				script = less
			}
		}
	}
	return script
}

// A script is the capacity, less 1, modulo 8, and then one byte a step: the
// lowest three bits say what to do, the others with what.
const (
	stepsPush   = 3 // 0 to 2: push a free task
	stepsPop    = 5 // 3 and 4
	stepsRemove = 6 // 5: remove a task that waits
	stepsMiss   = 7 // 6: remove a task that does not wait; otherwise time passes
)

// replay is the state of one run of a script. Tasks are known by their numbers:
// the discipline and the model have a set each, because a discipline may keep
// notes in a task.
type replay struct {
	q, model           strategies.Discipline
	remover, remodel   strategies.Remover
	capacity           int
	spec               strategies.Spec
	script             []byte
	tasks, modelTasks  []*strategies.Task
	numbers            map[*strategies.Task]int
	free, waiting      []int    // numbers; free is a stack
	runs, modelRuns    []uint64 // that have begun, for a Meter
	now                int64
	log                *strings.Builder // nil if nobody wants to read it
	expected, answered string           // of the model and of the discipline, at this step
}

func newReplay(spec strategies.Spec, model func(strategies.Config) strategies.Discipline, script []byte) *replay {
	r := &replay{capacity: 1, spec: spec, now: 1, numbers: make(map[*strategies.Task]int)}
	if len(script) > 0 {
		r.capacity += int(script[0] % 8)
		r.script = script[1:]
	}
	config := strategies.Config{Capacity: r.capacity, Workers: 1}
	r.q = spec.New(config)
	r.remover, _ = r.q.(strategies.Remover)
	if model != nil {
		r.model = model(config)
		r.remodel, _ = r.model.(strategies.Remover)
	}
	for i := range 2*r.capacity + 2 {
		t, m := new(strategies.Task), new(strategies.Task)
		r.tasks, r.modelTasks = append(r.tasks, t), append(r.modelTasks, m)
		r.numbers[t], r.numbers[m] = i, i
		r.free = append(r.free, i)
	}
	return r
}

func (r *replay) run() error {
	for _, b := range r.script {
		if err := r.step(b&7, int(b>>3)); err != nil {
			return err
		}
	}
	// Whatever is left comes out.
	for range len(r.waiting) + 1 {
		if err := r.step(stepsPop-1, 0); err != nil {
			return err
		}
	}
	return nil
}

func (r *replay) step(what byte, with int) error {
	r.expected, r.answered = "", ""
	var err error
	switch {
	case what < stepsPush:
		if len(r.free) == 0 {
			return nil
		}
		err = r.push(r.takeFree(len(r.free)-1), with)
	case what < stepsPop:
		err = r.pop()
	case what < stepsRemove:
		if r.remover == nil || len(r.waiting) == 0 {
			return nil
		}
		err = r.remove(r.waiting[with%len(r.waiting)], true)
	case what < stepsMiss:
		if r.remover == nil || len(r.free) == 0 {
			return nil
		}
		err = r.remove(r.free[with%len(r.free)], false)
	default:
		r.now += 1 << with
		r.logf("time passes: %d ns\n", 1<<with)
		return nil
	}
	if err != nil {
		return err
	}
	if r.model != nil && r.expected != r.answered {
		return fmt.Errorf("the answer was %s, the model says %s", r.answered, r.expected)
	}
	return r.checkLen()
}

func (r *replay) checkLen() error {
	n, c := r.q.Len(), r.q.Cap()
	switch {
	case c != strategies.Unbounded && c != r.capacity && !r.spec.Inline:
		return fmt.Errorf("Cap() = %d, want %d", c, r.capacity)
	case n != len(r.waiting):
		return fmt.Errorf("Len() = %d while %d tasks wait", n, len(r.waiting))
	case c != strategies.Unbounded && n > c:
		return fmt.Errorf("Len() = %d is more than Cap() = %d", n, c)
	}
	return nil
}

func (r *replay) push(i, with int) error {
	for _, t := range []*strategies.Task{r.tasks[i], r.modelTasks[i]} {
		t.Arrival, t.Submitted = r.now, r.now
		t.Priority = strategies.Urgency(with & 7)
		t.Deadline = r.now + 1<<with
		t.Client = string(rune('a' + with&3))
		t.Cost = with & 24 >> 3
	}
	v := r.q.Push(r.tasks[i], r.now)
	r.answered = r.verdict(v)
	r.logf("push %d: %s\n", i, r.answered)
	if r.model != nil {
		r.expected = r.verdict(r.model.Push(r.modelTasks[i], r.now))
	}
	if err := cmp.Or(sane(v, r.q.Cap(), len(r.waiting), r.spec.Inline), declared(&r.spec, v.Reason)); err != nil {
		return err
	}
	if v.Displaced != nil {
		if err := r.giveBack(v.Displaced); err != nil {
			return err
		}
	}
	if v.Outcome == strategies.Queued {
		r.waiting = append(r.waiting, i)
	} else {
		r.free = append(r.free, i)
	}
	return nil
}

func (r *replay) pop() error {
	t, what, reason := r.q.Pop(r.now)
	r.answered = r.popped(t, what, reason)
	r.logf("pop: %s\n", r.answered)
	r.ran(r.q, t, what, &r.runs)
	if r.model != nil {
		if m, ok := r.model.(interface{ draw(*strategies.Task) }); ok && t != nil {
			if n, known := r.numbers[t]; known {
				m.draw(r.modelTasks[n])
			}
		}
		t, what, reason := r.model.Pop(r.now)
		r.expected = r.popped(t, what, reason)
		r.ran(r.model, t, what, &r.modelRuns)
	}
	if err := cmp.Or(sanePop(t, what, reason), declared(&r.spec, reason)); err != nil {
		return err
	}
	if t != nil {
		return r.giveBack(t)
	}
	if len(r.waiting) > 0 {
		return fmt.Errorf("Pop answered %s while %d tasks wait and nobody is pushing", r.answered, len(r.waiting))
	}
	if what == strategies.Contended {
		return fmt.Errorf("Pop answered contended while nobody is pushing")
	}
	return nil
}

// ran tells q of a turn with what was popped, and of its end, as a worker does. The
// turn lasts until the third after it begins. Each fifth pop joins the turn before.
func (r *replay) ran(q strategies.Discipline, t *strategies.Task, what strategies.PopResult, runs *[]uint64) {
	if what != strategies.Run {
		return
	}
	if m, ok := q.(strategies.Meter); ok && t != nil {
		m.Began(t, r.now)
		*runs = append(*runs, t.Run)
		t.Run = 0
		if len(*runs) == 3 {
			m.Ended((*runs)[0], 1+int(r.now%2), r.now)
			*runs = (*runs)[1:]
		}
	}
	if turns, ok := q.(strategies.TurnObserver); ok && r.now%5 != 0 {
		turns.TurnBegan(r.now)
	}
	if l, ok := q.(strategies.CompletionObserver); ok {
		l.Completed(0, 1000, r.now)
	}
}

func (r *replay) remove(i int, want bool) error {
	got := r.remover.Remove(r.tasks[i])
	r.answered = fmt.Sprint(got)
	r.logf("remove %d: %t\n", i, got)
	if r.model != nil {
		r.expected = r.answered
		if r.remodel != nil {
			r.expected = fmt.Sprint(r.remodel.Remove(r.modelTasks[i]))
		}
	}
	if got != want {
		return fmt.Errorf("Remove(%d) = %t, want %t", i, got, want)
	}
	if got {
		return r.giveBack(r.tasks[i])
	}
	return nil
}

// giveBack notes that t does not wait any more. The next push uses it.
func (r *replay) giveBack(t *strategies.Task) error {
	n, known := r.numbers[t]
	if !known {
		return fmt.Errorf("a task came back that was never pushed")
	}
	i := slices.Index(r.waiting, n)
	if i < 0 {
		return fmt.Errorf("task %d came back although it does not wait", n)
	}
	r.waiting = slices.Delete(r.waiting, i, i+1)
	r.free = append(r.free, n)
	return nil
}

func (r *replay) takeFree(i int) int {
	n := r.free[i]
	r.free = slices.Delete(r.free, i, i+1)
	return n
}

func (r *replay) verdict(v strategies.Verdict) string {
	switch {
	case v.Outcome == strategies.Queued && v.Displaced != nil:
		return fmt.Sprintf("queued, %d shed, %s", r.numbers[v.Displaced], v.Displacement())
	case v.Outcome == strategies.Queued:
		return "queued"
	case v.Outcome == strategies.TurnedAway:
		return "turned away, " + v.Reason.String()
	case v.Outcome == strategies.CallerRuns:
		return "caller runs"
	}
	return fmt.Sprintf("outcome %d", v.Outcome)
}

func (r *replay) popped(t *strategies.Task, what strategies.PopResult, reason strategies.Reason) string {
	switch {
	case what == strategies.Empty:
		return "empty"
	case what == strategies.Contended:
		return "contended"
	case what == strategies.Run && t != nil:
		return fmt.Sprintf("run %d", r.numbers[t])
	case what == strategies.Shed && t != nil:
		return fmt.Sprintf("shed %d, %s", r.numbers[t], reason)
	}
	return fmt.Sprintf("%d without a task", what)
}

func (r *replay) logf(format string, args ...any) {
	if r.log != nil {
		fmt.Fprintf(r.log, "\t"+format, args...)
	}
}

// scripts is how many random scripts a rule tries.
const scripts = 400

// replayRandom replays random scripts.
func replayRandom(spec strategies.Spec, model func(strategies.Config) strategies.Discipline) error {
	for range scripts {
		script := make([]byte, 1+rand.IntN(300))
		for i := range script {
			script[i] = byte(rand.Uint32())
		}
		if err := Replay(spec, model, script); err != nil {
			return err
		}
	}
	return nil
}
