package strategies

// fifo serves tasks in the order of their arrival, and turns the newest away
// when it is full.
//
// It is the discipline of most thread pools and of Go's channels. Below
// capacity it is the fairest. Past it, everyone who is served has waited for
// the whole queue, which may be longer than any client still listens.
type fifo struct{ bounded }

var _ Remover = (*fifo)(nil)

func newFIFO(c Config) Discipline { return &fifo{boundedOf(c)} }

// Push adds t unless the queue is full.
func (q *fifo) Push(t *Task, _ int64) Verdict {
	return q.pushUnlessFull(t, Verdict{Outcome: TurnedAway, Reason: ReasonFull})
}

// Pop takes the oldest task.
func (q *fifo) Pop(int64) (*Task, PopResult, Reason) { return q.popOldest() }
