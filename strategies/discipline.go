package strategies

// Discipline decides which tasks wait, in which order they are taken, and
// which are given up. It never blocks or panics, starts no goroutine and reads no clock:
// waiting is the dispatcher's work, and the time is an argument. All methods
// are safe for concurrent use by any number of goroutines.
//
// Times are nanoseconds on one monotonic clock. Concurrent callers may pass
// slightly disordered times.
//
// A panic in a method ends in the call that met it: the dispatcher logs it once, turns a task away whose Push it was,
// and goes on. It cannot release a lock of the discipline, so locks are released by defer. Tasks that the call was
// moving may be lost, and end when whoever waits for them gives up.
type Discipline interface {
	// Push offers a task. Unless the verdict is Queued the task stays the
	// caller's. A displaced task is the caller's too, which sheds it.
	Push(t *Task, now int64) Verdict
	// Pop takes the next task. Only with Run and Shed is the task not nil, and
	// then it is the caller's: to run, or to complete as shed for the reason
	// given.
	Pop(now int64) (*Task, PopResult, Reason)
	// Len returns how many tasks wait: those that Push accepted and that were
	// not yet popped, displaced or removed. It never exceeds Cap. A concurrent
	// Push counts its task no later than the task becomes visible to Pop.
	Len() int
	// Cap returns how many tasks may wait: at least 1, or 0 if none ever does,
	// or Unbounded.
	Cap() int
}

// Unbounded is the capacity of a discipline that never turns a task away.
const Unbounded = -1

// Remover is a Discipline that can give up a task before it is popped. Without it
// a task that has expired, or whose client has gone, is answered only when it
// is popped.
type Remover interface {
	// Remove takes t out of the queue if it still waits there, and reports
	// whether it did: the task is then the caller's. The caller is the one who
	// pushed t, or acts for it: t must not have been completed and submitted
	// again meanwhile. Another task may be queued at once.
	Remove(t *Task) bool
}

// CompletionObserver is a Discipline that is notified of completions.
type CompletionObserver interface {
	// Completed is called after a task that was popped here has been run:
	// waited is the time it spent in the queue, service the time that a worker
	// spent on it, both in nanoseconds.
	Completed(waited, service, now int64)
}

// Meter is a Discipline that goes by how long each task takes.
type Meter interface {
	// Began is called when t begins to run, was popped here or did not wait at all, and for each further turn of a
	// task that has several. The discipline notes in t.Run a number by which it knows the task until it ends, unless
	// Pop has noted one. Until Began returns t is the discipline's to look at.
	Began(t *Task, now int64)
	// Ended is called once for each task whose Run is not 0, when it has run as one of so many in the same turn, at
	// least 1, or is given up after it was popped: Began was not called then.
	Ended(run uint64, of int, now int64)
}

// Resizer is a Discipline that goes by the number of workers, which may change.
type Resizer interface {
	// Resize is called when there are so many workers from now on, at least 1.
	Resize(workers int)
}

// TurnObserver is a Discipline that counts or times the turns of the workers: a turn is a
// worker running one task, or a batch of them.
type TurnObserver interface {
	// TurnBegan is called when a worker begins a turn with tasks that were popped
	// here: once, also if it has popped several, and after the last of those pops.
	// A pop is therefore no turn.
	TurnBegan(now int64)
}

// Measurer is a Discipline that decides by what it has measured, and says so,
// so that people see why it has shed a task.
type Measurer interface {
	Measured() Measured
}

// Measured is what a discipline decides by, at one moment.
type Measured struct {
	// Limit is how many tasks it means to let wait, 0 if it has no such limit
	// below its capacity.
	Limit int
	// Pace is the time from one task that the workers begin to the next, in
	// nanoseconds, while tasks wait; 0 as long as it is not known.
	Pace int64
}

// Verdict is the answer to Push.
type Verdict struct {
	Outcome Outcome
	// Reason says why the outcome is TurnedAway, or why Displaced had to leave:
	// there ReasonNone stands for ReasonDisplaced.
	Reason Reason
	// Displaced is the task that had to leave so that the pushed one could be
	// queued, nil if none had to.
	Displaced *Task
}

// Displacement returns the reason to shed Displaced for.
func (v Verdict) Displacement() Reason {
	if v.Reason == ReasonNone {
		return ReasonDisplaced
	}
	return v.Reason
}

// Outcome says what became of a pushed task.
type Outcome uint8

const (
	// Queued means that the task waits in the queue.
	Queued Outcome = iota
	// TurnedAway means that the task was not accepted.
	TurnedAway
	// CallerRuns means that the caller shall run the task itself, now.
	CallerRuns
)

// PopResult says what Pop found.
type PopResult uint8

const (
	// Empty means that no task waits.
	Empty PopResult = iota
	// Contended means that a task waits but cannot be taken yet, because a
	// goroutine is in the middle of its Push: it has reserved a position and not yet
	// filled it, or is compacting. It returns from Push afterwards, and wakes a
	// worker then: a worker may therefore park on Contended as it may on Empty.
	Contended
	// Run means that the task shall be run.
	Run
	// Shed means that the discipline has given the task up.
	Shed
)
