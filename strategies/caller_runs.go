package strategies

// callerRuns serves tasks in the order of their arrival. When it is full, the
// goroutine that brings the next one runs it itself, which slows that client
// down instead of turning it away: backpressure, after the policy of the same
// name in Java's ThreadPoolExecutor.
type callerRuns struct{ bounded }

var _ Remover = (*callerRuns)(nil)

func newCallerRuns(c Config) Discipline { return &callerRuns{boundedOf(c)} }

// Push adds t, or gives it back to the caller to run if the queue is full.
func (q *callerRuns) Push(t *Task, _ int64) Verdict {
	return q.pushUnlessFull(t, Verdict{Outcome: CallerRuns})
}

// Pop takes the oldest task.
func (q *callerRuns) Pop(int64) (*Task, PopResult, Reason) { return q.popOldest() }
