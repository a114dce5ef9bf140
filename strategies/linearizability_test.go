package strategies_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// Many short histories of a few goroutines that push, pop and remove unique
// tasks are recorded, and porcupine looks for an order of the operations, each
// at one moment between its call and its return, in which the model answers the
// same. What it cannot order was not a queue.

// op is an operation of a history, or a part of one. The values are the numbers
// of tasks, as bytes.
type op struct {
	kind  opKind
	value byte // pushed, popped, removed
	// Of a push:
	outcome   strategies.Outcome
	displaced byte // 0 for none
	// of a removal:
	removed bool
	// id is the number of the operation, from 0.
	id int
}

type opKind uint8

const (
	opPush opKind = iota
	opPop
	opEmpty
	opRemove
	// The parts of operations on a ring: see ringModel.
	opAcquire
	opRelease
	opOvertaken
)

func (o op) String() string {
	switch o.kind {
	case opPush:
		return fmt.Sprintf("push %d: outcome %d, %d displaced", o.value, o.outcome, o.displaced)
	case opPop:
		return fmt.Sprintf("pop: %d", o.value)
	case opEmpty:
		return "pop: empty"
	case opRemove:
		return fmt.Sprintf("remove %d: %t", o.value, o.removed)
	}
	return fmt.Sprintf("part %d of operation %d (%d)", o.kind, o.id, o.value)
}

// contents is the state of a model: the numbers of the tasks that wait, oldest
// first.
type contents = string

func without(s contents, i int) contents { return s[:i] + s[i+1:] }

// order says which of the tasks that wait may be popped next, as bits, and what it will
// remember then. It is asked with 0 first. An order that has chance in it gives several.
type order func(waiting contents, memory int) (may uint32, remembers int)

func oldestFirst(contents, int) (uint32, int) { return 1, 0 }

func newestFirst(waiting contents, _ int) (uint32, int) { return 1 << (len(waiting) - 1), 0 }

// anyOne promises no order.
func anyOne(contents, int) (uint32, int) { return math.MaxUint32, 0 }

// smallestFirst takes the one with the smallest key, of several the oldest.
func smallestFirst(key func(value byte) int) order {
	return func(waiting contents, _ int) (uint32, int) {
		first := 0
		for i := range waiting {
			if key(waiting[i]) < key(waiting[first]) {
				first = i
			}
		}
		return 1 << first, 0
	}
}

// inTurn remembers 1 if the newest is next.
func inTurn(waiting contents, memory int) (uint32, int) {
	switch {
	case len(waiting) == 1:
		return 1, 0
	case memory == 1:
		return 1 << (len(waiting) - 1), 0
	}
	return 1, 1
}

// newestIfLonger takes the newest from a queue that is longer than short.
func newestIfLonger(short int) order {
	return func(waiting contents, _ int) (uint32, int) {
		if len(waiting) > short {
			return 1 << (len(waiting) - 1), 0
		}
		return 1, 0
	}
}

// exactState is the state of exactModel.
type exactState struct {
	waiting contents
	memory  int // of the order
}

// exactModel is the model of a discipline whose operations are each one step.
func exactModel(pops order, displaces bool, capacity int, full strategies.Outcome) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return exactState{} },
		Step: func(state, _, output any) (bool, any) {
			now, o := state.(exactState), output.(op)
			s := now.waiting
			then := func(s contents) exactState { return exactState{s, now.memory} }
			switch o.kind {
			case opPush:
				want := op{kind: opPush, value: o.value, id: o.id}
				if len(s) == capacity && displaces {
					want.displaced = s[0]
					s = s[1:]
				} else if len(s) == capacity {
					want.outcome = full
					return o == want, now
				}
				return o == want, then(s + string([]byte{o.value}))
			case opPop:
				i := strings.IndexByte(s, o.value)
				if i < 0 {
					return false, now
				}
				may, remembers := pops(s, now.memory)
				return may>>i&1 == 1, exactState{without(s, i), remembers}
			case opEmpty:
				return s == "", now
			default: // opRemove
				i := strings.IndexByte(s, o.value)
				if i >= 0 {
					s = without(s, i)
				}
				return o.removed == (i >= 0), then(s)
			}
		},
	}
}

// ringState is the state of ringModel.
type ringState struct {
	waiting contents
	aside   contents // tasks in the hands of a Pop that may yet lose them to a Remove
	places  int      // in use
	begun   uint32   // the operations, as bits, of which the first part is done
}

// ringModel is the model of mpmc. It keeps the order of a queue exactly, with
// two allowances that its comment makes:
//
//   - A place is in use from before its task becomes visible until after it was
//     taken out. So an operation is two parts: a push acquires its place and
//     then publishes the task, a pop or a removal takes the task and then
//     releases the place. `full` says that all places are in use.
//   - A Remove may take a task out of the hands of a Pop that has reserved its
//     position, and other pops may have gone on to younger tasks before.
func ringModel(capacity int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return ringState{} },
		Step: func(state, _, output any) (bool, any) {
			s, o := state.(ringState), output.(op)
			bit := uint32(1) << o.id
			switch o.kind {
			case opAcquire:
				s.begun |= bit
				s.places++
				return s.places <= capacity, s
			case opPush:
				if o.outcome == strategies.TurnedAway {
					return s.places == capacity, s
				}
				s.waiting += string([]byte{o.value})
				return s.begun&bit != 0, s
			case opOvertaken:
				if s.waiting != "" && s.waiting[0] == o.value {
					s.waiting, s.aside = s.waiting[1:], s.aside+s.waiting[:1]
				}
				return true, s
			case opPop:
				if s.waiting == "" || s.waiting[0] != o.value {
					return false, s
				}
				s.waiting = s.waiting[1:]
				s.begun |= bit
				return true, s
			case opEmpty:
				return s.waiting == "", s
			case opRelease:
				s.places--
				return s.begun&bit != 0, s
			default: // opRemove
				s.begun |= bit
				if i := strings.IndexByte(s.waiting, o.value); i >= 0 {
					s.waiting = without(s.waiting, i)
					return o.removed, s
				}
				if i := strings.IndexByte(s.aside, o.value); i >= 0 {
					s.aside = without(s.aside, i)
					return o.removed, s
				}
				return !o.removed, s
			}
		},
	}
}

// parts splits the operations as ringModel wants them.
func parts(history []porcupine.Operation) []porcupine.Operation {
	var split []porcupine.Operation
	for _, h := range history {
		split = append(split, h)
		o := h.Output.(op)
		part := func(kind opKind, from int64) {
			p := h
			p.Call = from
			p.Output = op{kind: kind, id: o.id, value: o.value}
			split = append(split, p)
		}
		switch {
		case o.kind == opPush && o.outcome == strategies.Queued:
			part(opAcquire, h.Call)
		case o.kind == opPop:
			part(opRelease, h.Call)
		case o.kind == opRemove && o.removed:
			part(opRelease, h.Call)
			earliest := h.Return
			for _, p := range history {
				if k := p.Output.(op).kind; (k == opPop || k == opEmpty) && p.Call <= h.Return && p.Return >= h.Call {
					earliest = min(earliest, p.Call)
				}
			}
			if earliest < h.Return {
				part(opOvertaken, earliest)
			}
		}
	}
	return split
}

// record lets goroutines use q at once, and returns what they saw. Operations
// that found nothing out, as Contended, are left out.
func record(q strategies.Discipline, rng *rand.Rand, goroutines, each int, costs bool) []porcupine.Operation {
	var (
		wg        sync.WaitGroup
		ready     atomic.Int32
		start     = time.Now()
		histories = make([][]porcupine.Operation, goroutines)
	)
	remover, removes := q.(strategies.Remover)
	for g := range goroutines {
		seed := rng.Uint64()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 0))
			tasks := make([]strategies.Task, each)
			for i := range tasks {
				label(&tasks[i], byte(1+g*each+i), costs)
			}
			for ready.Add(1); int(ready.Load()) < goroutines; {
				runtime.Gosched()
			}
			pushed := 0
			for i := range each {
				o := op{id: g*each + i}
				kind := rng.IntN(6)
				if g == 0 || kind == 5 && !removes {
					kind = 3 // pop
				}
				h := porcupine.Operation{ClientId: g, Call: int64(time.Since(start))}
				switch {
				case kind < 3 || kind == 5 && pushed == 0:
					t := &tasks[pushed]
					pushed++
					v := q.Push(t, 1)
					o.kind, o.value, o.outcome = opPush, t.Owner.(byte), v.Outcome
					if v.Displaced != nil {
						o.displaced = v.Displaced.Owner.(byte)
					}
				case kind < 5:
					t, what, _ := q.Pop(1)
					if what == strategies.Contended {
						continue
					}
					o.kind = opEmpty
					if t != nil {
						o.kind, o.value = opPop, t.Owner.(byte)
					}
				default:
					t := &tasks[rng.IntN(pushed)]
					o.kind, o.value, o.removed = opRemove, t.Owner.(byte), remover.Remove(t)
				}
				h.Return = int64(time.Since(start))
				h.Output = o
				histories[g] = append(histories[g], h)
			}
		})
	}
	wg.Wait()
	var all []porcupine.Operation
	for _, h := range histories {
		all = append(all, h...)
	}
	return all
}

// exact is exactModel, but for the capacity.
func exact(pops order, displaces bool, full strategies.Outcome) func(int) porcupine.Model {
	return func(capacity int) porcupine.Model { return exactModel(pops, displaces, capacity, full) }
}

// linearizable says what concurrent operations on each strategy that comes with Spillway may answer.
var linearizable = []struct {
	name  string
	model func(capacity int) porcupine.Model
	costs bool // tasks differ in their cost
}{
	{"adaptive-lifo", func(capacity int) porcupine.Model {
		return exactModel(newestIfLonger(capacity/2), true, capacity, strategies.Queued)
	}, false},
	{"caller-runs", exact(oldestFirst, false, strategies.CallerRuns), false},
	{"cheap-first", exact(smallestFirst(costOf), false, strategies.TurnedAway), true},
	{"codel", exact(oldestFirst, false, strategies.TurnedAway), false},
	{"drop-oldest", exact(oldestFirst, true, strategies.Queued), false},
	{"edf", keyModel(deadlineOf), false},
	{"fair", sharesModel, false},
	{"fifo", exact(oldestFirst, false, strategies.TurnedAway), false},
	{"hybrid", exact(inTurn, true, strategies.Queued), false},
	{"lifo", exact(newestFirst, true, strategies.Queued), false},
	{"mpmc", ringModel, false},
	{"priority", keyModel(classOf), false},
	{"sharded", exact(anyOne, false, strategies.TurnedAway), false},
	{"unbounded", func(int) porcupine.Model { return exactModel(oldestFirst, false, strategies.Unbounded, 0) }, false},
}

// notLinearizable says why a strategy has no such line.
var notLinearizable = map[string]string{
	"auto": "whom it gives up goes by the time, and its own model says how: auto_model_test.go",
	"sync": "nothing ever waits",
}

// Each strategy has a line in linearizable.
func TestSpecs_AreLinearizable(t *testing.T) {
	t.Parallel()
	var known []string
	for _, row := range linearizable {
		known = append(known, row.name)
	}
	known = slices.AppendSeq(known, maps.Keys(notLinearizable))
	for _, name := range strategies.Names() {
		require.True(t, slices.Contains(known, name), "%s needs a line in linearizable", name)
	}
	require.Len(t, known, len(strategies.Names()), "each once")
}

func TestDisciplines_Linearizable(t *testing.T) {
	t.Parallel()
	const goroutines, each = 4, 6
	histories := 1500
	if testing.Short() {
		histories = 500
	}
	for _, tc := range linearizable {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := lookup(t, tc.name)
			rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for range histories {
				capacity := 1 + rng.IntN(4)
				q := spec.New(strategies.Config{Capacity: capacity, Workers: 2})
				history := record(q, rng, goroutines, each, tc.costs)
				if tc.name == "mpmc" {
					history = parts(history)
				}
				if !porcupine.CheckOperations(tc.model(capacity), history) {
					var s strings.Builder
					for _, h := range history {
						fmt.Fprintf(&s, "goroutine %d, %6d to %6d ns: %v\n", h.ClientId, h.Call, h.Return, h.Output)
					}
					t.Fatalf("no order of these operations explains them, with capacity %d:\n%s", capacity, s.String())
				}
			}
		})
	}
}

// TestModels_FindWhatIsNotAQueue shows that the models are not satisfied by
// anything.
func TestModels_FindWhatIsNotAQueue(t *testing.T) {
	t.Parallel()
	at := func(from, to int64, o op) porcupine.Operation {
		return porcupine.Operation{Call: from, Return: to, Output: o}
	}
	push := func(id int, v byte) op { return op{kind: opPush, value: v, id: id} }
	pop := func(id int, v byte) op { return op{kind: opPop, value: v, id: id} }
	full := op{kind: opPush, value: 9, outcome: strategies.TurnedAway, id: 9}
	fifo := exactModel(oldestFirst, false, 2, strategies.TurnedAway)
	bag := exactModel(anyOne, false, 2, strategies.TurnedAway)
	for _, tc := range []struct {
		about            string
		exact, ring, bag bool
		history          []porcupine.Operation
	}{
		{"in order", true, true, true, []porcupine.Operation{
			at(1, 2, push(0, 1)), at(3, 4, push(1, 2)), at(5, 6, full), at(7, 8, pop(2, 1)), at(9, 10, pop(3, 2)), at(11, 12, op{kind: opEmpty, id: 4}),
		}},
		{"out of order", false, false, true, []porcupine.Operation{
			at(1, 2, push(0, 1)), at(3, 4, push(1, 2)), at(7, 8, pop(2, 2)), at(9, 10, pop(3, 1)),
		}},
		{"twice", false, false, false, []porcupine.Operation{
			at(1, 2, push(0, 1)), at(7, 8, pop(2, 1)), at(9, 10, pop(3, 1)),
		}},
		{"full too early", false, false, false, []porcupine.Operation{at(1, 2, push(0, 1)), at(5, 6, full)}},
		{"over capacity", false, false, false, []porcupine.Operation{
			at(1, 2, push(0, 1)), at(3, 4, push(1, 2)), at(5, 6, push(2, 3)), at(7, 8, pop(3, 1)),
		}},
		{"empty too early", false, false, false, []porcupine.Operation{at(1, 2, push(0, 1)), at(5, 6, op{kind: opEmpty, id: 1})}},
		{"removed and popped", false, false, false, []porcupine.Operation{
			at(1, 2, push(0, 1)), at(5, 6, op{kind: opRemove, value: 1, removed: true, id: 1}), at(7, 8, pop(2, 1)),
		}},
		{"removed before it was pushed", false, false, false, []porcupine.Operation{
			at(1, 2, op{kind: opRemove, value: 1, removed: true, id: 1}), at(5, 6, push(0, 1)),
		}},
		// The allowances of the ring.
		{"full while a pop has not returned, though another found it empty", false, true, false, []porcupine.Operation{
			at(1, 2, push(0, 1)), at(3, 4, push(1, 2)), at(5, 20, pop(2, 1)), at(5, 20, pop(3, 2)), at(6, 7, op{kind: opEmpty, id: 4}), at(8, 9, full),
		}},
		{"removed out of the hands of a pop", false, true, true, []porcupine.Operation{
			at(1, 2, push(0, 1)), at(3, 4, push(1, 2)), at(5, 20, op{kind: opEmpty, id: 2}), at(6, 7, pop(3, 2)),
			at(8, 9, op{kind: opRemove, value: 1, removed: true, id: 4}),
		}},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.exact, porcupine.CheckOperations(fifo, tc.history), "exact")
			require.Equal(t, tc.bag, porcupine.CheckOperations(bag, tc.history), "bag")
			require.Equal(t, tc.ring, porcupine.CheckOperations(ringModel(2), parts(tc.history)), "ring")
		})
	}
}
