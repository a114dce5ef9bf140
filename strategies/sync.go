package strategies

// inline is the strategy sync: no queue at all, whoever brings a task runs it.
// It is what a plain handler does, and the yardstick for every queue.
type inline struct{}

func newSync(Config) Discipline { return inline{} }

// Push gives t back to the caller to run.
func (inline) Push(*Task, int64) Verdict { return Verdict{Outcome: CallerRuns} }

// Pop finds nothing, ever.
func (inline) Pop(int64) (*Task, PopResult, Reason) { return nil, Empty, ReasonNone }

// Len returns 0.
func (inline) Len() int { return 0 }

// Cap returns 0.
func (inline) Cap() int { return 0 }
