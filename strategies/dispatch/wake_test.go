package dispatch

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// lastLook is a discipline that has found nothing, and calls a function before it says so.
type lastLook struct {
	strategies.Discipline
	found func()
}

func (l *lastLook) Pop(now int64) (*strategies.Task, strategies.PopResult, strategies.Reason) {
	t, what, reason := l.Discipline.Pop(now)
	if t == nil {
		l.found()
	}
	return t, what, reason
}

// A write that comes while the only worker has just found nothing is not left behind: it
// seems to be at a write then, and nobody else may begin one.
func TestSubmit_WhileTheOnlyWorkerLooks(t *testing.T) {
	t.Parallel()
	for _, maxBatch := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			fifo, err := strategies.Lookup("fifo")
			require.NoError(t, err)
			var d *Dispatcher
			opened, ended, submitted := make(chan struct{}), make(chan struct{}, 1), false
			task := &Task{Write: true, Done: func(*Task) { ended <- struct{}{} }}
			make1 := fifo.New
			fifo.New = func(c strategies.Config) strategies.Discipline {
				return &lastLook{make1(c), func() {
					<-opened
					if !submitted { // by the one worker
						submitted = true
						d.Submit(task)
					}
				}}
			}
			d, err = Open(Options{Spec: fifo, Workers: 1, MaxBatch: maxBatch, Run: func(tasks []*Task, done func(*Task)) {
				for _, t := range tasks {
					done(t)
				}
			}})
			require.NoError(t, err)
			defer d.Close()
			close(opened)
			synctest.Wait()
			require.Len(t, ended, 1)
		})
	}
}
