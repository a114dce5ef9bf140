package strategies

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Spec describes a strategy: a discipline that can be chosen by name.
type Spec struct {
	// Name is how users choose the strategy: lower-case letters, digits and
	// hyphens.
	Name string
	// Summary says in one line what the strategy does, for help texts.
	Summary string
	// Inline says that no task ever waits or is handed to a worker: whoever
	// submits a task runs it.
	Inline bool
	// New returns an empty discipline.
	New func(Config) Discipline
}

// Config is what a discipline is made for.
type Config struct {
	// Capacity is how many tasks may wait, at least 1. Strategies that have no
	// bound, or no queue, ignore it.
	Capacity int
	// Workers is how many workers will pop, at least 1.
	Workers int
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
		{Name: "auto", New: newAuto, Summary: "no setting: first-in first-out, newest first while a queue stands, of which it learns how long is too long"},
		{Name: "caller-runs", New: newCallerRuns, Summary: "bounded first-in first-out; when full, the connection does the work itself"},
		{Name: "codel", New: newCoDel, Summary: "bounded first-in first-out with controlled delay; when full, the newest is turned away"},
		{Name: "drop-oldest", New: newDropOldest, Summary: "bounded first-in first-out; when full, the oldest is displaced"},
		{Name: "edf", New: newEDF, Summary: "earliest deadline first, refusing what cannot be done in time; when full, the latest deadline is displaced"},
		{Name: "fair", New: newFair, Summary: "deficit round robin over clients; when full, the oldest of the client with the longest queue is displaced"},
		{Name: "fifo", New: newFIFO, Summary: "bounded first-in first-out; when full, the newest is turned away"},
		{Name: "hybrid", New: newHybrid, Summary: "bounded; takes the oldest and the newest in turn; when full, the oldest is displaced"},
		{Name: "lifo", New: newLIFO, Summary: "bounded stack, newest first; when full, the oldest is displaced"},
		{Name: "mpmc", New: newMPMC, Summary: "lock-free bounded ring, first-in first-out; when full, the newest is turned away"},
		{Name: "priority", New: newPriority, Summary: "most important class first, first-in first-out within; when full, the newest of the least important is displaced"},
		{Name: "sharded", New: newSharded, Summary: "a queue for each worker, first-in first-out, two-choice placement, stealing; when all are full, the newest is turned away"},
		{Name: "sync", New: newSync, Summary: "no queue: the connection does the work itself", Inline: true},
		{Name: "unbounded", New: newUnbounded, Summary: "lock-free linked queue, first-in first-out, growing without bound"},
	}
}

// Register adds a strategy, so that it can be chosen like those that come with
// Spillway. It returns an error if the description is incomplete or the name is
// malformed or taken.
func Register(s Spec) error {
	if s.New == nil {
		return fmt.Errorf("register strategy %q: New is nil", s.Name)
	}
	if s.Name == "" || strings.Trim(s.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("register strategy %q: a name consists of lower-case letters, digits and hyphens", s.Name)
	}
	registry.Lock()
	defer registry.Unlock()
	i, taken := find(s.Name)
	if taken {
		return fmt.Errorf("register strategy %q: the name is taken", s.Name)
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
