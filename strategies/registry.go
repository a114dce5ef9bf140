package strategies

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Spec describes a strategy. It can be passed as a value, or registered and then be
// chosen by name.
type Spec struct {
	// Name is how users choose the strategy: lower-case letters, digits and
	// hyphens.
	Name string
	// Summary says in one line what the strategy does, for help texts.
	Summary string
	// Inline says that no task ever waits or is handed to a worker: whoever
	// submits a task runs it.
	Inline bool
	// Reasons are those of its own for which it sheds tasks, beside those of
	// Reasons, which any strategy may give: at most 16, of lower-case letters,
	// digits, hyphens and underscores, 32 at most.
	Reasons []Reason
	// ByObjective says that the strategy refuses what would be answered later than the
	// objective, as ReasonLate.
	ByObjective bool
	// DefaultCapacity is how many tasks may wait if nobody says otherwise; 0 means
	// 256.
	DefaultCapacity int
	// New returns an empty discipline.
	New func(Config) Discipline

	// invalid says what is wrong with the options that the strategy was made with.
	invalid error
}

// Check returns an error if the description is incomplete or malformed, or if the
// options that the strategy was made with cannot be. It names field, value and range.
func (s Spec) Check() error {
	switch {
	case s.invalid != nil:
		return s.invalid
	case s.Name == "" || strings.Trim(s.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return fmt.Errorf("strategy %q: a name consists of lower-case letters, digits and hyphens", s.Name)
	case s.New == nil:
		return fmt.Errorf("strategy %q: New is nil", s.Name)
	case len(s.Reasons) > mostReasons:
		return fmt.Errorf("strategy %q: %d reasons of its own, at most %d are allowed", s.Name, len(s.Reasons), mostReasons)
	}
	for _, r := range s.Reasons {
		if !r.wellFormed() {
			return fmt.Errorf("strategy %q: the reason %q is none of 1 to %d lower-case letters, digits, hyphens and underscores", s.Name, string(r), longestReason)
		}
	}
	return nil
}

// mostReasons is how many reasons of its own a strategy may have.
const mostReasons = 16

// Sheds reports whether the strategy may shed a task for that reason.
func (s *Spec) Sheds(r Reason) bool {
	return slices.Contains(reasons, r) || slices.Contains(s.Reasons, r)
}

// checkDuration returns an error if an option of a strategy is too short or too long.
func checkDuration(strategy, field string, d time.Duration) error {
	if d < time.Microsecond || d > time.Hour {
		return fmt.Errorf("strategy %q: %s is %v, 1µs to 1h is allowed", strategy, field, d)
	}
	return nil
}

// CapacityOr returns how many tasks may wait: as many as are asked for or, if that
// is 0, as many as the strategy has by default.
func (s Spec) CapacityOr(asked int) int { return cmp.Or(asked, s.DefaultCapacity, defaultCapacity) }

const defaultCapacity = 256

// Config is what a discipline is made for.
type Config struct {
	// Capacity is how many tasks may wait, at least 1. Strategies that have no
	// bound, or no queue, ignore it.
	Capacity int
	// Workers is how many workers will pop, at least 1.
	Workers int
	// Objective is within which time tasks should be answered, for those that steer by it.
	// Nil means one that nobody has set.
	Objective *Objective
	// Weight returns the share of a client in proportion to the others, for strategies that go by it: 1 to 1,000,
	// beyond which it is the nearest. It is called under a lock: it should be quick and must not panic. Nil means 1
	// for all.
	Weight func(client string) int
	// Observe asks the discipline to give up nothing unless it is full, and to note
	// in Task.WouldShed what it would have given up. The order is the same.
	Observe bool
}

// ErrUnknown is wrapped by the error of Lookup.
var ErrUnknown = errors.New("unknown strategy")

// registry holds every strategy that can be chosen, sorted by name.
var registry = struct {
	sync.RWMutex
	specs []Spec
}{specs: builtin()}

// builtin lists the strategies that come with Spillway, sorted by name.
func builtin() []Spec {
	return []Spec{
		{Name: "adaptive-lifo", New: newAdaptiveLIFO, Summary: "bounded; oldest first while short, newest first while a queue stands; when full, the oldest is displaced"},
		{Name: "auto", New: newAuto, DefaultCapacity: 4096, ByObjective: true, Summary: "by the objective alone: in order of arrival while all can be answered within it; in an overload newest first, and what would be late is refused at once"},
		{Name: "caller-runs", New: newCallerRuns, Summary: "bounded first-in first-out; when full, the connection does the work itself"},
		CoDel(CoDelOptions{}),
		{Name: "drop-oldest", New: newDropOldest, Summary: "bounded first-in first-out; when full, the oldest is displaced"},
		EDF(EDFOptions{}),
		{Name: "fair", New: newFair, ByObjective: true, Summary: "the time of the workers in shares by client and weight; what would be late in its client's share is refused at once; when full, a task of the client with the most waiting work is displaced"},
		{Name: "fifo", New: newFIFO, Summary: "bounded first-in first-out; when full, the newest is turned away"},
		{Name: "hybrid", New: newHybrid, Summary: "bounded; takes the oldest and the newest in turn; when full, the oldest is displaced"},
		{Name: "lifo", New: newLIFO, Summary: "bounded stack, newest first; when full, the oldest is displaced"},
		{Name: "mpmc", New: newMPMC, Summary: "bounded ring without a mutex, first-in first-out; when full, the newest is turned away"},
		{Name: "priority", New: newPriority, Summary: "most important class first, first-in first-out within; when full, the newest of the least important is displaced"},
		{Name: "sharded", New: newSharded, Summary: "a queue for each worker, first-in first-out, two-choice placement, stealing; when all are full, the newest is turned away"},
		{Name: "sync", New: newSync, Summary: "no queue: the connection does the work itself", Inline: true},
		{Name: "unbounded", New: newUnbounded, Summary: "lock-free linked queue, first-in first-out, growing without bound"},
	}
}

// Register adds a strategy, so that it can be chosen by name like those that come
// with Spillway. It returns an error if the description is not in order, see Check,
// or the name is taken. A strategy that is passed as a value need not be registered.
func Register(s Spec) error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	registry.Lock()
	defer registry.Unlock()
	i, taken := find(s.Name)
	if taken {
		return fmt.Errorf("register: strategy %q: the name is taken", s.Name)
	}
	registry.specs = slices.Insert(registry.specs, i, s)
	return nil
}

// Lookup returns the strategy of that name, or an error that wraps ErrUnknown
// and lists the choices.
func Lookup(name string) (Spec, error) {
	registry.RLock()
	defer registry.RUnlock()
	if i, ok := find(name); ok {
		return registry.specs[i], nil
	}
	return Spec{}, fmt.Errorf("%w %q, choose one of %s", ErrUnknown, name, strings.Join(names(), ", "))
}

// Specs returns all strategies, sorted by name.
func Specs() []Spec {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Clone(registry.specs)
}

// Names returns the names of all strategies, sorted.
func Names() []string {
	registry.RLock()
	defer registry.RUnlock()
	return names()
}

// names needs the registry's lock.
func names() []string {
	all := make([]string, len(registry.specs))
	for i, s := range registry.specs {
		all[i] = s.Name
	}
	return all
}

// find needs the registry's lock. It returns where the name is, or belongs.
func find(name string) (int, bool) {
	return slices.BinarySearchFunc(registry.specs, name, func(s Spec, name string) int {
		return strings.Compare(s.Name, name)
	})
}
