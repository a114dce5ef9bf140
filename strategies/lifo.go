package strategies

// lifo serves the newest task first. When it is full, the oldest is displaced.
//
// Under overload the newest request is the one whose client is most likely still
// there, so most of what is served is served in time; the price is paid by the
// few that sink to the bottom. As long as the queue is nearly empty it behaves
// like first-in first-out.
type lifo struct{ bounded }

var _ Remover = (*lifo)(nil)

func newLIFO(c Config) Discipline { return &lifo{boundedOf(c)} }

// Push adds t, displacing the oldest task if the stack is full.
func (q *lifo) Push(t *Task, _ int64) Verdict { return q.pushDisplacing(t) }

// Pop takes the newest task.
func (q *lifo) Pop(int64) (*Task, PopResult, Reason) { return q.popNewest() }
