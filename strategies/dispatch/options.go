package dispatch

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/concurrency"
)

// Options say how a Dispatcher works, or Places do. Split, MaxBatch, MaxBatchBytes, Run and Blocked are for a Dispatcher
// alone, Grant, Resources and Timed for Places. Functions may be nil unless they say otherwise.
type Options struct {
	// Strategy is the name of the strategy to begin with. Spec, if set, is the strategy as a value, instead.
	Strategy string
	Spec     strategies.Spec
	// Capacity is how many tasks may wait in each pool, up to 2^24. 0 means what each strategy has by default.
	Capacity int
	// Workers is the number of workers or places, at least 1, or 2 if Split is set. With Learn it is 0.
	Workers int
	// Resources are what the places are of, by their names: see Places.SetResources. Nil means one without a name. Each
	// has Workers places, or learns its own number.
	Resources []string
	// Learn, if not nil, has the number of workers or places learned within its bounds: see package concurrency. A Min
	// that is given holds in pauses too. Learn excludes Split. Under Observe the number is the upper bound and holds
	// nobody back, so nothing is learned.
	Learn *concurrency.Options
	// Split gives reads and writes a pool each, with a queue of the full capacity. Reads get half the workers, rounded up.
	Split bool
	// MaxBatch is how many writes a worker may take at once, at least 1. MaxBatchBytes bounds the sum of their Task.Size,
	// unless a single one has more; 0 means no bound.
	MaxBatch      int
	MaxBatchBytes int64
	// Run runs the tasks of one turn of a worker: a single task, or several writes. It calls done once for each, before
	// or after it returns, and returns when the worker may take more work. It must not keep the slice. Run is called by
	// many goroutines at once. A Dispatcher needs it.
	Run func(tasks []*Task, done func(*Task))
	// Grant is called once for each task that Acquire did not grant its places at once, when it gets them. It must not
	// block. Places need it.
	Grant func(*Task)
	// Objective is within which time tasks should be answered. Nil means one that nobody has set. The dispatcher calls
	// Answered.
	Objective *strategies.Objective
	// Weight is strategies.Config.Weight.
	Weight func(client string) int
	// Timed has every task measured that is lent places, for Task.InTime: otherwise some are.
	Timed bool
	// Observe sheds tasks only if the queue is full, past their deadline or when they are cancelled. Events.WouldShed is
	// called for those that the strategy would shed: where it goes by the objective, of those that were answered later.
	Observe bool
	// Blocked reports whether no write should be begun at present: by a worker or, if inline is set, by its submitter.
	// Such writes wait without a worker until Unblock is called; everything else goes on. Blocked is called often, by
	// many goroutines at once, and sometimes under locks. Nil means never. A write may still begin a moment after Blocked
	// has become true.
	Blocked func(inline bool) bool
	// Epoch is the zero of the dispatcher's clock. The zero value means now.
	Epoch time.Time
	// Events returns the hooks for the tasks of a strategy. It is called each time that a strategy becomes active.
	Events func(strategies.Spec) Events
	// Switched is called after a switch. Like Events, it must not call Switch, Drain or Close.
	Switched func(from, to string)
	// Resized is called after the number of workers or places has changed, by several goroutines at once, with no lock
	// held.
	Resized func()
	// Broken is called when a discipline breaks a rule of its interface, once for each time that its strategy becomes
	// active. The dispatcher goes on as well as it can. Broken is called under locks: it must neither block nor use the
	// dispatcher.
	Broken func(strategy, rule string)
}

// Events are called at the steps of a strategy's tasks, by many goroutines at once. They must not block. None may be nil,
// but WouldShed and LateWrong. Continuations do not count.
type Events struct {
	// Submitted: a task was submitted.
	Submitted func()
	// Started: a task is about to run, having waited that long in the queue: 0 if it was handed straight to a worker or
	// is run by its submitter.
	Started func(waited time.Duration)
	// Shed: a task was shed.
	Shed func(strategies.Reason)
	// WouldShed: the strategy would have shed a task. Called at most once per task, and only under Options.Observe.
	WouldShed func(strategies.Reason)
	// LateWrong: a task that the strategy would have refused as late, and served to see whether that is right, was
	// answered in time.
	LateWrong func()
}

// maxCapacity is where more could not be meant: some disciplines allocate it.
const maxCapacity = 1 << 24

func checkCapacity(n int) error {
	if n < 0 || n > maxCapacity {
		return fmt.Errorf("dispatch: capacity %d, need 1 to %d, or 0 for the strategy's own", n, maxCapacity)
	}
	return nil
}

// check checks what Open is given or, if lends is set, Lend.
func (o *Options) check(lends bool) error {
	least := 1
	if o.Split {
		least = 2
	}
	switch {
	case checkCapacity(o.Capacity) != nil:
		return checkCapacity(o.Capacity)
	case o.Learn != nil && (o.Split || o.Workers != 0):
		return fmt.Errorf("dispatch: Learn excludes Split and Workers")
	case o.Learn == nil && o.Workers < least:
		return fmt.Errorf("dispatch: %d workers, need at least %d", o.Workers, least)
	case lends && (o.Grant == nil || o.Split || o.Blocked != nil || o.Run != nil):
		return fmt.Errorf("dispatch: Lend needs Grant, and excludes Run, Split and Blocked")
	case lends:
		return nil
	case o.MaxBatch < 1:
		return fmt.Errorf("dispatch: batches of %d, need at least 1", o.MaxBatch)
	case o.Run == nil || o.Grant != nil:
		return fmt.Errorf("dispatch: Run is nil, or Grant is not")
	}
	return nil
}

func (o *Options) setDefaults() {
	if o.Events == nil {
		silent := Events{Submitted: func() {}, Started: func(time.Duration) {}, Shed: func(strategies.Reason) {}}
		o.Events = func(strategies.Spec) Events { return silent }
	}
	if o.Switched == nil {
		o.Switched = func(string, string) {}
	}
	if o.Broken == nil {
		o.Broken = func(string, string) {}
	}
	if o.Blocked == nil {
		o.Blocked = func(bool) bool { return false }
	}
	if o.Resized == nil {
		o.Resized = func() {}
	}
	o.MaxBatchBytes = cmp.Or(o.MaxBatchBytes, math.MaxInt64)
	o.Epoch = cmp.Or(o.Epoch, time.Now())
	o.Objective = cmp.Or(o.Objective, new(strategies.Objective))
}
