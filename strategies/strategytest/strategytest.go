// Package strategytest checks that a queue discipline keeps the rules that the
// dispatcher and the service rely on. Every strategy that comes with Spillway
// passes it; run it on your own:
//
//	func TestMine(t *testing.T) {
//		strategytest.Run(t, mine, nil)
//	}
//
// The rules are a table: each has a name, is a subtest, and explains itself
// when it is broken. They are about what every discipline owes, such as that a
// task comes back exactly once. In which order tasks are taken is a
// discipline's own affair: describe it by a [Model], as dumb as possible, and
// the two are compared step by step in random sequences. The same comparison
// makes a fuzz target: see [Replay].
//
// Run it with the race detector.
package strategytest

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// Rule is something that every discipline has to keep.
type Rule struct {
	// Name is the name of the subtest.
	Name string
	// Why explains the rule to whoever has broken it.
	Why string

	check func(strategies.Spec) error
	// serial says that the check counts allocations, and so must not run beside
	// other tests.
	serial bool
}

// Check returns how the strategy breaks the rule, nil if it does not. A rule
// about an ability that the discipline does not have is not broken. A discipline that
// never returns from a call is found after some minutes; its goroutines are left.
func (r Rule) Check(spec strategies.Spec) error { return r.checkWithin(spec, longest) }

func (r Rule) checkWithin(spec strategies.Spec, longest time.Duration) error {
	broken := make(chan error, 1)
	go func() { broken <- r.check(spec) }()
	select {
	case err := <-broken:
		return err
	case <-time.After(longest):
		return fmt.Errorf("the check has not ended for %v: a call of the discipline blocks, or goes on for ever", longest)
	}
}

// Rules returns all rules. If model is not nil, the last of them is that the
// discipline does what the model does.
func Rules(model func(strategies.Config) strategies.Discipline) []Rule {
	rules := []Rule{
		{
			Name: "inline", check: inline,
			Why: "Spec.Inline promises that whoever submits a task runs it, so Push answers CallerRuns, always, and nothing " +
				"ever waits. The dispatcher does not even wake a worker for such a strategy.",
		},
		{
			Name: "returns at once", check: func(s strategies.Spec) error { return returnsAtOnce(s, patience) },
			Why: "Push and Pop never block: waiting for work or for room is the dispatcher's business. A worker that is stuck " +
				"in Pop cannot take what is ahead of the queue, nor end.",
		},
		{
			Name: "capacity", check: capacity,
			Why: "Cap is the capacity that was asked for, not rounded, unless the discipline is Unbounded; that many tasks may " +
				"wait and never one more; and Reason full is for the moments when that many do wait.",
		},
		{
			Name: "capacity under contention", check: capacityUnderContention,
			Why: "The capacity holds when many push at once: a check for room and the taking of it must be one step. It bounds " +
				"the memory and the waiting time, and `full` tells a client that it was reached.",
		},
		{
			Name: "empty under contention", check: emptyUnderContention,
			Why: "Pop says empty only if at some moment of the call nothing waited, and Push finds no room only if at some moment " +
				"there was none, whatever others push and pop meanwhile. A worker that gets Empty parks: to have looked at one " +
				"part of a queue after the other, or to have lost a race, is not enough.",
		},
		{
			Name: "room after removal", check: roomAfterRemoval,
			Why: "The place of a removed task is free at once, wherever in the queue it was. Requests that expire leave the " +
				"middle while the oldest stays; if their places were lost, the queue would turn clients away with hardly anything in it.",
		},
		{
			Name: "exactly once", check: exactlyOnce,
			Why: "Every task that is pushed comes back exactly once: turned away, to be run by the caller, displaced, popped or " +
				"removed. A lost task is a client that waits for ever; one that comes back twice is answered twice, and the second " +
				"answer goes to whichever request uses the pooled task by then.",
		},
		{
			Name: "exactly once under contention", check: exactlyOnceUnderContention,
			Why: "Every task comes back exactly once also when many goroutines push, pop and remove, and when a task that came " +
				"back is pushed again at once. Tasks are pooled: that a pointer is the same does not mean that it is the same request.",
		},
		{
			Name: "remove or pop", check: removeOrPop,
			Why: "When Remove meets Pop, one of them gets the task: Remove returns true and no Pop returns the task, or the other " +
				"way round. And none is left behind: what nobody removed, a single popper gets.",
		},
		{
			Name: "retention", check: retention,
			Why: "A discipline lets go of a task that it has given back: a pointer left in a slot or a node keeps the request, its " +
				"buffers and whatever else they lead to alive. Nor may a pooled task lead to what still waits.",
		},
		{
			Name: "allocations", check: allocations, serial: true,
			Why: "A bounded discipline allocates nothing per Push, Pop or Remove: garbage costs most when the load is highest.",
		},
		{
			Name: "learner", check: learner,
			Why: "Completed is called by workers, at any time and beside any other method, also for a task that took no time.",
		},
		{
			Name: "meter", check: meter,
			Why: "Began and Ended are called by workers, at any time and beside any other method: for tasks that were popped, for " +
				"those that never waited, and Ended alone for those that were popped and given up. Each has a number until it ends.",
		},
		{
			Name: "observe", check: observe,
			Why: "Under Config.Observe a strategy is tried out: it gives up nothing but for want of room, and notes in Task.WouldShed " +
				"what it would have given up. Otherwise to observe it would harm as much as to use it.",
		},
		{
			Name: "under a controller", check: func(s strategies.Spec) error { return underController(s, patience) },
			Why: "An admission.Controller uses the strategy as the service does: no more requests hold places than there are, each is " +
				"answered, whenever it gives up, and the dispatcher finds no answer of the discipline that it may not give.",
		},
		{
			Name: "turns", check: turns,
			Why: "A worker may pop several tasks for one turn, and tells of the turn once, by TurnBegan. Measured().Pace is the time " +
				"from one task to the next: who takes a turn for a task believes that a batch of 32 takes 32 times as long as it does.",
		},
	}
	if model != nil {
		rules = append(rules, Rule{
			Name: "model", check: func(s strategies.Spec) error { return followsModel(s, model) },
			Why: "With one goroutine, every answer of the discipline is the one that its model gives.",
		})
	}
	return rules
}

// Run checks every rule on the strategy, each as a subtest. The model, if it is
// not nil, makes a discipline that answers as the strategy should.
//
// The test that calls Run must not be parallel, since allocations are counted.
func Run(t *testing.T, spec strategies.Spec, model func(strategies.Config) strategies.Discipline) {
	t.Helper()
	for _, r := range Rules(model) {
		t.Run(r.Name, func(t *testing.T) {
			if !r.serial {
				t.Parallel()
			}
			if err := r.Check(spec); err != nil {
				t.Errorf("strategy %q: %v\n\nThe rule: %s", spec.Name, err, r.Why)
			}
		})
	}
}
