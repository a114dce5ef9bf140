package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// newBlockable returns a stage on which block and unblock say whether writes can
// be begun.
func newBlockable(t *testing.T, o Options) (s *stage, block, unblock func()) {
	var blocked atomic.Bool
	o.Blocked = func(bool) bool { return blocked.Load() }
	s = newStage(t, o)
	return s, func() { blocked.Store(true) }, func() {
		blocked.Store(false)
		s.Unblock()
		synctest.Wait()
	}
}

// While no write can be begun, writes hold no worker and no reads, under every
// strategy; they wait in order, and go on when they can.
func TestBlocked_WritesHoldUpNobody(t *testing.T) {
	t.Parallel()
	for _, spec := range strategies.Specs() {
		t.Run(spec.Name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s, block, unblock := newBlockable(t, Options{Strategy: spec.Name, Workers: 2, Capacity: 8})
				defer s.close()
				s.submit("slow1")
				s.submit("slow2")
				block()
				s.submit("w1", isWrite)
				s.submit("r1")
				s.submit("w2", isWrite)
				s.submit("w3", isWrite)
				s.submit("r2")
				s.end("slow1") // one worker goes through what waits, one is still busy
				reads := slices.DeleteFunc(slices.Clone(s.started), func(name string) bool { return name[0] != 'r' })
				require.ElementsMatch(t, []string{"r1", "r2"}, reads)
				s.submit("r3")
				require.Equal(t, "r3", s.started[len(s.started)-1], "a worker is free for it")
				require.Equal(t, 3, s.Gauge().Depth, "writes that are held wait")
				before := len(s.started)
				unblock()
				s.end("slow2")
				require.ElementsMatch(t, []string{"w1", "w2", "w3"}, s.started[before:])
				require.Zero(t, s.Gauge().Depth)
				require.Len(t, s.ended, 8)
			})
		})
	}
}

// As long as no read waits behind them, writes that are blocked stay where the
// discipline has them: what comes later has its place by the discipline's rules.
func TestBlocked_TheDisciplineOrdersWrites(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, block, unblock := newBlockable(t, Options{Strategy: "lifo", Capacity: 3})
		defer s.close()
		block()
		for i := range 5 {
			s.submit(fmt.Sprint("w", i), isWrite)
			s.submit(fmt.Sprint("r", i)) // a worker is free for it
		}
		s.requireStarted("r0", "r1", "r2", "r3", "r4")
		unblock()
		s.requireStarted("r0", "r1", "r2", "r3", "r4", "w4", "w3", "w2")
	})
}

// What is held counts against the capacity: a write finds no room beside it, and a
// read takes the room of the oldest.
func TestBlocked_CapacityHolds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, block, unblock := newBlockable(t, Options{Strategy: "fifo", Capacity: 3})
		defer s.close()
		s.submit("slow")
		s.submit("w1", isWrite)
		s.submit("w2", isWrite)
		s.submit("slow-read")
		block()
		s.end("slow") // the writes go aside
		s.requireStarted("slow", "slow-read")
		s.submit("w3", isWrite)
		s.submit("w4", isWrite)
		s.requireEnded("slow", "w4:full")
		require.Equal(t, 3, s.Gauge().Depth)
		s.submit("r1")
		s.requireEnded("slow", "w4:full", "w1:full")
		require.Equal(t, 3, s.Gauge().Depth)
		s.end("slow-read")
		unblock()
		s.requireStarted("slow", "slow-read", "r1", "w2", "w3")
	})
}

// Held writes are given up by their deadlines, by their clients, and by a drain that
// is out of time.
func TestBlocked_HeldWritesAreGivenUp(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"fifo", "sync", "caller-runs", "auto"} {
		t.Run(strategy, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s, block, unblock := newBlockable(t, Options{Strategy: strategy})
				defer s.close()
				block()
				gone := s.submit("gone", isWrite)
				late := s.submit("late", isWrite, within(time.Second))
				s.submit("tardy", isWrite, within(time.Second))
				require.True(t, s.Cancel(gone, strategies.ReasonAbandoned))
				time.Sleep(time.Second)
				require.True(t, s.Cancel(late, strategies.ReasonExpired))
				unblock() // nobody has given up the tardy one
				s.requireEnded("gone:abandoned", "late:expired", "tardy:expired")
				block()
				s.submit("last", isWrite)
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				require.Error(t, s.Drain(ctx))
				s.requireEnded("gone:abandoned", "late:expired", "tardy:expired", "last:draining")
				require.Empty(t, s.started)
			})
		})
	}
}

// Close sheds what is still blocked, as nobody would run it.
func TestClose_ShedsWhatIsBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, block, _ := newBlockable(t, Options{Strategy: "fifo"})
		block()
		s.submit("w", isWrite)
		s.submit("r")
		s.close()
		s.requireEnded("r", "w:draining")
	})
}

// A queue that holds what is blocked, a line of ranges that never end, and a switch
// now and then: the task that the discipline serves next is begun within a bounded
// number of turns, under every strategy.
func TestLiveness_NobodyStarves(t *testing.T) {
	t.Parallel()
	for _, spec := range strategies.Specs() {
		if spec.Inline {
			continue
		}
		t.Run(spec.Name, func(t *testing.T) {
			seed := rand.Uint64()
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			inBubble(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				const workers, ranges, turn = 2, 30, time.Millisecond
				var blocked atomic.Bool
				var running sync.WaitGroup
				var stopped atomic.Bool
				var d *Dispatcher
				d, err := Open(Options{
					Strategy: spec.Name, Capacity: 64, Workers: workers, MaxBatch: 4,
					Blocked: func(bool) bool { return blocked.Load() },
					Run: func(tasks []*Task, done func(*Task)) {
						time.Sleep(turn)
						for _, t := range tasks {
							done(t)
						}
					},
				})
				require.NoError(t, err)
				gap := make([]int, ranges) // turns since each range had its last
				begun := make([]bool, ranges)
				longest := 0
				var mu sync.Mutex
				for i := range ranges {
					running.Add(1)
					d.Submit(&Task{Task: strategies.Task{Arrival: d.Now(), Priority: 7}, Done: func(t *Task) {
						mu.Lock()
						for j := range gap {
							gap[j]++
						}
						if begun[i] { // when it begins is the discipline's affair
							longest = max(longest, gap[i])
						}
						begun[i], gap[i] = true, 0
						mu.Unlock()
						if stopped.Load() || t.Shed != strategies.ReasonNone {
							running.Done()
							return
						}
						go d.Continue(t)
					}})
				}
				others := []string{spec.Name, "fifo", "auto", "lifo"}
				for range 60 {
					switch random.IntN(4) {
					case 0:
						blocked.Store(true)
					case 1:
						blocked.Store(false)
						d.Unblock()
					case 2:
						require.NoError(t, d.Switch(others[random.IntN(len(others))]))
					}
					for range random.IntN(4) {
						running.Add(1)
						d.Submit(&Task{Task: strategies.Task{Arrival: d.Now()}, Write: true, Done: func(*Task) { running.Done() }})
					}
					// One read, of which nothing that can run is ahead but the writes.
					begun := time.Now()
					read := make(chan *Task, 1)
					d.Submit(&Task{Task: strategies.Task{Arrival: d.Now()}, Done: func(t *Task) { read <- t }})
					got := <-read
					require.Equal(t, strategies.ReasonNone, got.Shed)
					// Those before it are at most as many as there may be, taken in turns with
					// the ranges; most of the time there are few.
					require.LessOrEqual(t, time.Since(begun), (2*64/workers+3)*turn)
				}
				blocked.Store(false)
				d.Unblock()
				stopped.Store(true)
				running.Wait()
				d.Close()
				// A range goes on in rotation with the others.
				require.LessOrEqual(t, longest, ranges+2*workers)
			})
		})
	}
}

// rogue is a discipline of somebody else that breaks the rules.
type rogue struct {
	strategies.Discipline
	push func(t *strategies.Task) strategies.Verdict
	pop  func() (*strategies.Task, strategies.PopResult, strategies.Reason)
	lied bool
	last *strategies.Task
}

func (r *rogue) Push(t *strategies.Task, now int64) strategies.Verdict {
	if r.push != nil {
		return r.push(t)
	}
	return r.Discipline.Push(t, now)
}

func (r *rogue) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	if r.pop != nil {
		return r.pop()
	}
	return r.Discipline.Pop(now)
}

// The dispatcher checks what a discipline tells it, goes on, and says what was
// wrong.
func TestDispatcher_ChecksDisciplines(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		push         func(t *strategies.Task) strategies.Verdict
		pop          func(r *rogue) (*strategies.Task, strategies.PopResult, strategies.Reason)
		ended, wrong string
	}{
		"a reason that does not exist": {
			push: func(*strategies.Task) strategies.Verdict {
				return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: "nonsense"}
			},
			ended: "a:full", wrong: "Push turned a task away for the reason \"nonsense\", which is none of the strategy's",
		},
		"no reason": {
			push:  func(*strategies.Task) strategies.Verdict { return strategies.Verdict{Outcome: strategies.TurnedAway} },
			ended: "a:full", wrong: "Push turned a task away for the reason \"none\", which is none of the strategy's",
		},
		"an outcome that does not exist": {
			push: func(*strategies.Task) strategies.Verdict {
				return strategies.Verdict{Outcome: 9, Reason: strategies.ReasonFair}
			},
			ended: "a:fair", wrong: "Push answered the outcome 9, which is none",
		},
		"the pushed task displaced": {
			push: func(t *strategies.Task) strategies.Verdict {
				return strategies.Verdict{Displaced: t, Reason: strategies.ReasonFair}
			},
			ended: "a:fair", wrong: "Push displaced the task that it was offered",
		},
		"shed for no reason": {
			pop: func(r *rogue) (*strategies.Task, strategies.PopResult, strategies.Reason) {
				t, _, _ := r.Discipline.Pop(0)
				if t == nil {
					return nil, strategies.Empty, strategies.ReasonNone
				}
				return t, strategies.Shed, "nonsense"
			},
			ended: "a:displaced", wrong: "Pop shed a task for the reason \"nonsense\", which is none of the strategy's",
		},
		"a task that it was never given": {
			pop: func(r *rogue) (*strategies.Task, strategies.PopResult, strategies.Reason) {
				if r.Len() == 0 {
					return nil, strategies.Empty, strategies.ReasonNone
				}
				if !r.lied {
					r.lied = true
					return new(strategies.Task), strategies.Run, strategies.ReasonNone
				}
				return r.Discipline.Pop(0)
			},
			ended: "a", wrong: "Pop returned a task that it did not hold",
		},
		"a task twice": {
			pop: func(r *rogue) (*strategies.Task, strategies.PopResult, strategies.Reason) {
				if r.last != nil && !r.lied {
					r.lied = true
					return r.last, strategies.Run, strategies.ReasonNone
				}
				t, what, reason := r.Discipline.Pop(0)
				r.last = t
				return t, what, reason
			},
			ended: "a", wrong: "Pop returned a task that it did not hold",
		},
		"nothing but wrong tasks": {
			pop: func(r *rogue) (*strategies.Task, strategies.PopResult, strategies.Reason) {
				if t, what, reason := r.Discipline.Pop(0); t != nil {
					return t, what, reason
				}
				return new(strategies.Task), strategies.Run, strategies.ReasonNone
			},
			ended: "a", wrong: "Pop returned a task that it did not hold",
		},
		"a displaced task that it was never given": {
			push: func(*strategies.Task) strategies.Verdict {
				return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFair, Displaced: new(strategies.Task)}
			},
			ended: "a:fair", wrong: "Push displaced a task that it did not hold",
		},
		"run without a task": {
			pop: func(r *rogue) (*strategies.Task, strategies.PopResult, strategies.Reason) {
				if r.Len() == 0 {
					return nil, strategies.Run, strategies.ReasonNone
				}
				return r.Discipline.Pop(0)
			},
			ended: "a", wrong: "Pop answered that there is a task, and returned none",
		},
		"empty with a task": {
			pop: func(r *rogue) (*strategies.Task, strategies.PopResult, strategies.Reason) {
				t, _, _ := r.Discipline.Pop(0)
				return t, strategies.Empty, strategies.ReasonNone
			},
			ended: "a", wrong: "Pop answered 0 with a task",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var wrong []string
				s := newStage(t, Options{Strategy: "sync", Broken: func(strategy, rule string) {
					wrong = append(wrong, strategy+": "+rule)
				}})
				defer s.close()
				s.use(strategies.Spec{Name: "rogue", New: func(c strategies.Config) strategies.Discipline {
					fifo, _ := strategies.Lookup("fifo")
					r := &rogue{Discipline: fifo.New(c), push: row.push}
					if row.pop != nil {
						r.pop = func() (*strategies.Task, strategies.PopResult, strategies.Reason) { return row.pop(r) }
					}
					return r
				}})
				s.submit("slow")
				s.submit("a")
				s.end("slow")
				slices.SortFunc(s.ended, strings.Compare)
				s.requireEnded(row.ended, "slow")
				require.Equal(t, []string{"rogue: " + row.wrong}, wrong)
			})
		})
	}
}

// A worker that was told of a push in progress, and has parked on it, is woken
// also when the push turns its task away: something else may wait.
func TestSubmit_WakesWhateverTheVerdict(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "sync"})
		defer s.close()
		pushing := make(chan struct{})
		var inPush atomic.Bool
		s.use(strategies.Spec{Name: "rogue", New: func(c strategies.Config) strategies.Discipline {
			fifo, _ := strategies.Lookup("fifo")
			r := &rogue{Discipline: fifo.New(c)}
			r.push = func(t *strategies.Task) strategies.Verdict {
				if t.Owner.(*Task).Payload == "refused" {
					inPush.Store(true)
					<-pushing
					inPush.Store(false)
					return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull}
				}
				return r.Discipline.Push(t, 0)
			}
			r.pop = func() (*strategies.Task, strategies.PopResult, strategies.Reason) {
				if inPush.Load() {
					return nil, strategies.Contended, strategies.ReasonNone
				}
				return r.Discipline.Pop(0)
			}
			return r
		}})
		s.submit("slow")
		s.submit("refused") // stays in its push
		s.submit("a")
		s.end("slow")
		s.requireEnded("slow")
		close(pushing)
		synctest.Wait()
		s.requireEnded("slow", "refused:full", "a")
	})
}

// What has expired is not run by its submitter either.
func TestSubmit_RunsNothingExpired(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"sync", "caller-runs"} {
		t.Run(strategy, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStage(t, Options{Strategy: strategy, Capacity: 1})
				defer s.close()
				if strategy == "caller-runs" {
					s.submit("slow")
					s.submit("waits")
				}
				late := s.task("late", within(time.Second))
				time.Sleep(time.Second)
				require.False(t, s.Submit(late))
				require.Equal(t, strategies.ReasonExpired, late.Shed)
			})
		})
	}
}

// No task is completed while a lock is held: who is told may ask for anything.
func TestDispatcher_CompletesUnderNoLock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", MaxBatch: 4})
		defer s.close()
		other := s.task("other")
		s.submit("slow")
		s.submit("w1", isWrite)
		late := s.task("late", isWrite, within(time.Second))
		asked := false
		late.Done = func(*Task) { asked = !s.Cancel(other, strategies.ReasonAbandoned) && s.Gauge().Depth >= 0 }
		s.Submit(other)
		require.True(t, s.Cancel(other, strategies.ReasonAbandoned))
		s.Submit(late)
		time.Sleep(time.Second)
		s.end("slow")
		require.Equal(t, strategies.ReasonExpired, late.Shed)
		require.True(t, asked)
	})
}

// A write that has begun and does not end holds up no read: one worker is kept from
// writes where they are taken together.
func TestWriting_LeavesAWorkerForReads(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		o      Options
		writes int // that run at once
	}{
		{"two workers", Options{Workers: 2, MaxBatch: 4}, 1},
		{"four workers", Options{Workers: 4, MaxBatch: 4}, 3},
		{"the only worker", Options{Workers: 1, MaxBatch: 4}, 1},
		{"a store that takes one at a time", Options{Workers: 3, MaxBatch: 1}, 3},
		{"split", Options{Workers: 4, MaxBatch: 4, Split: true}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				row.o.Strategy = "fifo"
				s := newStage(t, row.o)
				defer s.close()
				for i := range 6 {
					s.submit(fmt.Sprint("slow", i), isWrite)
				}
				require.Len(t, s.started, row.writes)
				s.submit("read")
				require.Equal(t, row.writes < row.o.Workers, slices.Contains(s.started, "read"))
				for len(s.ended) < 7 {
					s.endAny()
				}
				require.Len(t, s.started, 7, "the others follow")
			})
		})
	}
}

// Unblock finds nothing that waits while a worker has the only write in its hands, on
// its way into the line of those that are held. So the worker itself looks again.
func TestBlocked_UnblockedWhileAWriteIsSetAside(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var blocked atomic.Bool
		s := newStage(t, Options{Strategy: "sync", Blocked: func(bool) bool { return blocked.Load() }})
		defer s.close()
		pushing, pushed := make(chan struct{}), make(chan struct{})
		pops := 0 // with a read on its way in
		s.use(strategies.Spec{Name: "rogue", New: func(c strategies.Config) strategies.Discipline {
			fifo, _ := strategies.Lookup("fifo")
			r := &rogue{Discipline: fifo.New(c)}
			inPush := false
			r.push = func(t *strategies.Task) strategies.Verdict {
				if t.Owner.(*Task).Payload == "refused" {
					inPush = true
					<-pushing
					return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: strategies.ReasonFull}
				}
				return r.Discipline.Push(t, 0)
			}
			r.pop = func() (*strategies.Task, strategies.PopResult, strategies.Reason) {
				if !inPush {
					return r.Discipline.Pop(0)
				}
				if pops++; pops == 1 { // the worker enters the stack
					return nil, strategies.Contended, strategies.ReasonNone
				}
				task, what, reason := r.Discipline.Pop(0)
				if pops == 2 {
					close(pushing) // no read waits any more
					<-pushed
					blocked.Store(false)
					s.Unblock()
				}
				return task, what, reason
			}
			return r
		}})
		s.submit("slow")
		blocked.Store(true)
		s.submit("w", isWrite)
		go func() {
			s.Submit(s.task("refused"))
			close(pushed)
		}()
		synctest.Wait()
		s.end("slow")
		require.Greater(t, pops, 1)
		s.requireStarted("slow", "w")
	})
}

// Held writes that do not fit into a turn any more keep their place, and what is
// ahead of the queue does not keep those that are held from being taken together.
func TestBlocked_HeldWritesAreTakenTogetherInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, block, unblock := newBlockable(t, Options{Strategy: "fifo", MaxBatch: 8, MaxBatchBytes: 10})
		defer s.close()
		sized := func(n int64) taskOption { return func(t *Task) { t.Write, t.Size = true, n } }
		s.submit("slow1")
		for i, size := range []int64{4, 4, 9, 1, 1, 1} {
			s.submit(fmt.Sprint("w", i), sized(size))
		}
		s.submit("slow2")
		block()
		s.end("slow1") // the writes are held
		s.requireStarted("slow1", "slow2")
		unblock()
		s.end("slow2")
		require.Equal(t, [][]string{{"slow1"}, {"slow2"}, {"w0", "w1"}, {"w2", "w3"}, {"w4", "w5"}}, s.turns)
	})
}

// Reads are not turned away for writes that cannot be begun, under no strategy, also
// while all workers are busy: they take the room of the oldest of them.
func TestBlocked_WritesTakeUpNoRoomOfReads(t *testing.T) {
	t.Parallel()
	for _, spec := range strategies.Specs() {
		t.Run(spec.Name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s, block, unblock := newBlockable(t, Options{Strategy: spec.Name, Capacity: 3})
				defer s.close()
				s.submit("slow")
				block()
				for i := range 3 {
					s.submit(fmt.Sprint("w", i), isWrite)
				}
				for i := range 3 {
					s.submit(fmt.Sprint("r", i))
				}
				if c := s.Gauge().Capacity; c > 0 {
					require.LessOrEqual(t, s.Gauge().Depth, c)
				}
				s.end("slow")
				for i := range 3 {
					require.Contains(t, s.started, fmt.Sprint("r", i))
				}
				unblock()
				require.Zero(t, s.Gauge().Depth)
			})
		})
	}
}

// Where a strategy without a bound has held more than the next one has room for, that
// does not keep them.
func TestBlocked_SwitchKeepsToTheCapacity(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, block, unblock := newBlockable(t, Options{Strategy: "sync", Capacity: 3})
		defer s.close()
		block()
		for i := range 5 {
			s.submit(fmt.Sprint("w", i), isWrite)
		}
		require.Equal(t, 5, s.Gauge().Depth)
		require.NoError(t, s.Switch("fifo"))
		require.Equal(t, 3, s.Gauge().Depth)
		s.requireEnded("w0:full", "w1:full")
		unblock()
		s.requireStarted("w2", "w3", "w4")
	})
}

// However many come at once: when they have come, as many wait as may, and no more.
func TestBlocked_CapacityIsExact(t *testing.T) {
	t.Parallel()
	for range 100 {
		const capacity, submitters = 16, 8
		begun, goOn := make(chan struct{}, 3*capacity), make(chan struct{})
		d, err := Open(Options{
			Strategy: "fifo", Capacity: capacity, Workers: 1, MaxBatch: 1,
			Blocked: func(bool) bool { return true },
			Run: func(tasks []*Task, done func(*Task)) {
				begun <- struct{}{}
				<-goOn
				done(tasks[0])
			},
		})
		require.NoError(t, err)
		var waiting atomic.Int64
		submit := func(write bool) {
			waiting.Add(1)
			d.Submit(&Task{Write: write, Done: func(*Task) { waiting.Add(-1) }})
		}
		submit(false)
		<-begun // and keeps the worker busy
		var all sync.WaitGroup
		for range submitters {
			all.Go(func() {
				for range capacity / submitters {
					submit(true)
					submit(true)
					submit(false)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1+capacity, waiting.Load())
		require.Equal(t, capacity, d.Gauge().Depth)
		close(goOn)
		d.Close()
		require.Zero(t, waiting.Load())
	}
}

// So it is with reads: of those that have begun to come while writes made room for others, none is one too many.
func TestBlocked_CapacityIsExactForReads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, q := newScripted(t, Options{Capacity: 3, Blocked: func(bool) bool { return true }})
		defer s.close()
		s.submit("slow")
		s.submit("r0")
		s.submit("w0", isWrite)
		s.submit("w1", isWrite)
		s.submit("r1") // has r0 go ahead, and w0 leave
		second := func() { s.Submit(s.task("r2")) }
		first := func() { q.counted.Store(&second) } // there is a write that may make room
		q.counted.Store(&first)
		s.submit("r3")
		require.Equal(t, 3, s.Gauge().Depth)
		s.requireEnded("w0:full", "w1:full", "r0:full")
		s.end("slow")
		s.requireStarted("slow", "r1", "r2", "r3")
	})
}

// While writes end in time, reads behind them in the queue keep to its order, and its
// room is the discipline's affair. Once a write hangs, the worker that is kept from
// writes takes the reads behind it.
func TestWriting_ReadsPassWhatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStage(t, Options{Strategy: "fifo", Workers: 2, MaxBatch: 4, Capacity: 2})
		defer s.close()
		s.submit("slow-write", isWrite)
		s.submit("slow-read")
		s.submit("w", isWrite)
		s.submit("r")
		s.submit("one too many")
		s.end("slow-read")
		s.requireStarted("slow-write", "slow-read")
		s.requireEnded("one too many:full", "slow-read")
		time.Sleep(time.Duration(hang) + time.Millisecond)
		synctest.Wait()
		s.requireStarted("slow-write", "slow-read", "r")
		require.Equal(t, 1, s.Gauge().Depth)
		s.end("slow-write")
		s.requireStarted("slow-write", "slow-read", "r", "w")
	})
}
