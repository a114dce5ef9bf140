package strategies

// dropOldest serves tasks in the order of their arrival. When it is full, the
// oldest is displaced: whoever has waited longest is the likeliest to have given
// up, and nobody waits for more than one queue's length of newer arrivals.
type dropOldest struct{ bounded }

var _ Remover = (*dropOldest)(nil)

func newDropOldest(c Config) Discipline { return &dropOldest{boundedOf(c)} }

// Push adds t, displacing the oldest task if the queue is full.
func (q *dropOldest) Push(t *Task, _ int64) Verdict { return q.pushDisplacing(t) }

// Pop takes the oldest task.
func (q *dropOldest) Pop(int64) (*Task, PopResult, Reason) { return q.popOldest() }
