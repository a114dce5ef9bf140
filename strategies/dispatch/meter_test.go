package dispatch

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// metered is a first-in first-out queue that notes what it is told of runs.
type metered struct {
	strategies.Discipline
	mu          sync.Mutex
	last        uint64
	runs        map[uint64]string // that have not ended: popped or begun
	began, gave int
	shared      int // ended beside others
	wrong       string
}

func newMetered(t *testing.T) (*metered, strategies.Spec) {
	t.Helper()
	spec, err := strategies.Lookup("fifo")
	require.NoError(t, err)
	m := &metered{runs: map[uint64]string{}}
	queue := spec.New
	spec.New = func(c strategies.Config) strategies.Discipline {
		m.Discipline = queue(c)
		return m
	}
	return m, spec
}

func (m *metered) Remove(t *strategies.Task) bool { return m.Discipline.(strategies.Remover).Remove(t) }

func (m *metered) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, what, reason := m.Discipline.Pop(now)
	if t != nil {
		m.last++
		t.Run, m.runs[m.last] = m.last, "popped"
	}
	return t, what, reason
}

func (m *metered) Began(t *strategies.Task, _ int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began++
	switch {
	case t.Run == 0:
		m.last++
		t.Run = m.last
	case m.runs[t.Run] != "popped":
		m.wrong = fmt.Sprintf("Began of %d, which was %q", t.Run, m.runs[t.Run])
	}
	m.runs[t.Run] = "begun"
}

func (m *metered) Ended(run uint64, of int, _ int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.runs[run] {
	case "popped":
		m.gave++
	case "":
		m.wrong = fmt.Sprintf("Ended of %d, which is none", run)
	}
	if of > 1 {
		m.shared++
	}
	delete(m.runs, run)
}

// A discipline that goes by how long tasks take is told of those that never waited, of those that did, and of those that
// were popped and given up; of each once.
func TestPlaces_TellAMeter(t *testing.T) {
	t.Parallel()
	m, spec := newMetered(t)
	var granted []*Task
	p, err := Lend(Options{Spec: spec, Workers: 1, Grant: func(task *Task) { granted = append(granted, task) }})
	require.NoError(t, err)
	defer p.Close()
	done := func(*Task) {}
	first, late, next := &Task{Done: done}, &Task{Done: done}, &Task{Done: done}
	late.Deadline = 1
	require.True(t, p.Acquire(first))
	require.False(t, p.Acquire(late))
	require.False(t, p.Acquire(next))
	require.Equal(t, 1, m.began)
	p.Release(first)
	require.Equal(t, []*Task{next}, granted)
	require.Equal(t, strategies.ReasonExpired, late.Shed)
	require.Equal(t, 1, m.gave)
	p.Release(next)
	require.True(t, p.Acquire(first), "again")
	p.Release(first)
	require.Equal(t, 3, m.began)
	require.Empty(t, m.runs)
	require.Empty(t, m.wrong)
}

func TestDispatcher_TellsAMeter(t *testing.T) {
	t.Parallel()
	m, spec := newMetered(t)
	d, err := Open(Options{
		Spec: spec, Workers: 3, Capacity: 32, MaxBatch: 4,
		Run: func(tasks []*Task, done func(*Task)) {
			for _, task := range tasks {
				done(task)
			}
		},
	})
	require.NoError(t, err)
	var group, all sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 200 {
				all.Add(1)
				task := &Task{Write: i%2 == 0, InPlace: i%3 == 0, Done: func(*Task) { all.Done() }}
				if i%7 == g {
					task.Deadline = d.Now() + int64(time.Microsecond)
				}
				d.Submit(task)
				if i%11 == g {
					d.Cancel(task, strategies.ReasonAbandoned)
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, d.Drain(context.Background()))
	all.Wait()
	d.Close()
	require.Positive(t, m.began)
	require.Empty(t, m.runs)
	require.Empty(t, m.wrong)
}

// What a switch takes out of a meter never runs there. The meter is told, and not the strategy after it.
func TestSwitch_TellsTheFormerMeter(t *testing.T) {
	t.Parallel()
	m, spec := newMetered(t)
	fifo, err := strategies.Lookup("fifo")
	require.NoError(t, err)
	var broken []string
	p, err := Lend(Options{
		Spec: spec, Workers: 1, Grant: func(*Task) {},
		Broken: func(strategy, rule string) { broken = append(broken, strategy+": "+rule) },
	})
	require.NoError(t, err)
	defer p.Close()
	done := func(*Task) {}
	first, late, next := &Task{Done: done}, &Task{Done: done}, &Task{Done: done}
	late.Deadline = 1
	require.True(t, p.Acquire(first))
	require.False(t, p.Acquire(late))
	require.False(t, p.Acquire(next))
	require.NoError(t, p.SwitchTo(fifo))
	require.Equal(t, strategies.ReasonExpired, late.Shed)
	require.Equal(t, 2, m.gave)
	p.Release(first)
	p.Release(next)
	require.Empty(t, m.runs)
	require.Empty(t, m.wrong)
	require.Empty(t, broken)
}
