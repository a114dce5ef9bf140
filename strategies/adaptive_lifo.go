package strategies

// adaptiveLIFO takes the oldest task while the queue is short, and the newest
// while a queue stands. When it is full, the oldest is displaced.
//
// It is the adaptive LIFO of Ben Maurer, "Fail at Scale", ACM Queue 13 (8),
// 2015: below capacity everybody is served in the order of arrival, which has
// the shortest tail; once a queue stands, waiting in order would take too long
// for everybody, and newest-first serves those who have just come in time.
//
// A queue stands while more tasks wait than standing for each worker. That is
// the rule of HHVM, the runtime that the article is about: a threshold of the
// length, so that it acts on a burst as fast as the burst fills the queue. There
// it is a setting, here it counts in tasks for each worker, because whoever
// comes then would wait for about that many service times, however long one is.
// Of a small capacity the upper half is a queue that stands.
//
// The threshold is a compromise. Simulated with 8 workers and exponential
// service, at a load of 0.95 a threshold of 1 takes the 99th percentile
// from first-in first-out's 12 mean service times to 45, and one of 8 leaves it
// as it is; at loads past 1 there is no difference, since the queue is always
// longer. What was overtaken stays at the bottom until it is displaced, or the
// queue has become short again.
type adaptiveLIFO struct {
	bounded
	short int64 // guarded by mu; as many tasks may wait without a queue standing
}

// standing is how many tasks wait for each worker, at most, in a short queue.
const standing = 8

var (
	_ Remover = (*adaptiveLIFO)(nil)
	_ Resizer = (*adaptiveLIFO)(nil)
)

func newAdaptiveLIFO(c Config) Discipline {
	q := &adaptiveLIFO{bounded: boundedOf(c)}
	q.Resize(c.Workers)
	return q
}

// Resize sets the number of workers.
func (q *adaptiveLIFO) Resize(workers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.short = int64(min(standing*max(1, workers), q.capacity/2))
}

// Push adds t, displacing the oldest task if the queue is full.
func (q *adaptiveLIFO) Push(t *Task, _ int64) Verdict { return q.pushDisplacing(t) }

// Pop takes the oldest task from a short queue, and the newest from one that
// stands.
func (q *adaptiveLIFO) Pop(int64) (*Task, PopResult, Reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := q.mu.front
	if q.waiting.Load() > q.short {
		next = q.mu.back
	}
	return popped(q.takeLocked(next))
}
