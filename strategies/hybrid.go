package strategies

// hybrid takes the oldest task and the newest in turn while it is busy, that is
// while more than one waits. When it is full, the oldest is displaced.
//
// It is the plainest compromise there is between first-in first-out and
// newest-first. Under overload half of the work goes to requests that have just
// come and are answered in time, the other half to those that have waited
// longest, so that nobody's wait depends on luck alone. Of that other half most
// come too late: simulated with 8 workers, 4 ms of exponential service, a queue
// of 256 and an objective of 100 ms, goodput is 0.50 of the service capacity at
// a load of 1.1, where first-in first-out has 0.01 and newest-first 0.99. Only when
// the load is so high that the oldest are displaced before they are late, here
// at a load of 2 and more, it comes back, to 0.97 and more.
type hybrid struct {
	bounded
	newest bool // is next, if more than one waits; guarded by mu
}

var _ Remover = (*hybrid)(nil)

func newHybrid(c Config) Discipline { return &hybrid{bounded: boundedOf(c)} }

// Push adds t, displacing the oldest task if the queue is full.
func (q *hybrid) Push(t *Task, _ int64) Verdict { return q.pushDisplacing(t) }

// Pop takes the oldest task and the newest in turn. A task that waits alone is
// both, and the oldest is next again: below capacity the order is that of arrival.
func (q *hybrid) Pop(int64) (*Task, PopResult, Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next, several := q.mu.front, q.waiting.Load() > 1
	if several && q.newest {
		next = q.mu.back
	}
	if next != nil {
		q.newest = several && !q.newest
	}
	return popped(q.takeLocked(next))
}
