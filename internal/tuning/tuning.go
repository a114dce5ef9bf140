// Package tuning changes the settings of a queue while it serves. A change is made whole or
// not at all: when one of its steps fails, those before it are undone.
package tuning

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/strategies"
)

// The modes.
const (
	Enforce = "enforce"
	Observe = "observe"
)

// The most workers, and requests that may wait.
const (
	MaxWorkers  = 65536
	MaxCapacity = 1 << 20
)

// Settings are what a queue works by.
type Settings struct {
	Strategy string
	Mode     string
	// Workers is 0 to have their number learned.
	Workers int
	// Capacity is 0 for that of the strategy.
	Capacity int
	// Objective is 0 if none is set, or strategies.NoObjective.
	Objective time.Duration
	// Upstreams are those of a Forwarder, with commas between them.
	Upstreams string
}

// Wants says what a setting may be, by its name in PUT /strategy.
func Wants(name string) string {
	switch name {
	case "strategy":
		return "one of " + strings.Join(strategies.Names(), ", ")
	case "mode":
		return Enforce + " or " + Observe
	case "workers":
		return fmt.Sprintf("1 to %d, or auto", MaxWorkers)
	case "capacity":
		return fmt.Sprintf("1 to %d, or 0 for %s", MaxCapacity, ofStrategy)
	case "slo":
		return "an slo such as 250ms, none or nothing, in quotes"
	default:
		return `a list of upstreams such as ["http://HOST:PORT"]`
	}
}

// check returns an error that names the field, its value and the choices.
func (s *Settings) check() error {
	if _, err := strategies.Lookup(s.Strategy); err != nil {
		return fmt.Errorf("strategy is %.40q, want %s", s.Strategy, Wants("strategy"))
	}
	switch {
	case s.Mode != Enforce && s.Mode != Observe:
		return fmt.Errorf("mode is %.40q, want %s", s.Mode, Wants("mode"))
	case s.Workers < 0 || s.Workers > MaxWorkers:
		return fmt.Errorf("workers is %d, want %s", s.Workers, Wants("workers"))
	case s.Capacity < 0 || s.Capacity > MaxCapacity:
		return fmt.Errorf("capacity is %d, want %s", s.Capacity, Wants("capacity"))
	}
	if err := strategies.CheckObjective(s.Objective); err != nil {
		return err
	}
	return nil
}

// Refusal is the error of a change that asks for what cannot be.
type Refusal struct{ error }

// Unwrap returns the reason.
func (r Refusal) Unwrap() error { return r.error }

// ErrSplit is returned by Queue.SetWorkers where reads and writes have workers of their own.
var ErrSplit = errors.New("the number of workers cannot change while SPILLWAY_POOLS is split")

// Queue is what is tuned.
type Queue interface {
	Switch(strategy string) error
	SetObserve(observe bool) error
	// SetWorkers and SetCapacity take 0 as Settings does.
	SetWorkers(n int) error
	SetCapacity(n int) error
	Objective() *strategies.Objective
}

// Forwarder is a Queue that forwards what its turn is. The error of SetUpstreams says what of them cannot be.
type Forwarder interface{ SetUpstreams(list string) error }

// Tuner changes the settings of a queue, one change at a time. All methods are safe for
// concurrent use.
type Tuner struct {
	queue Queue
	log   *slog.Logger
	one   sync.Mutex // a change is being made
	mu    sync.Mutex
	now   Settings
}

// New returns a tuner of a queue that works by these settings.
func New(q Queue, now Settings, log *slog.Logger) *Tuner {
	return &Tuner{queue: q, now: now, log: log}
}

// Now returns the settings in force.
func (t *Tuner) Now() Settings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// ofStrategy is a capacity of 0.
const ofStrategy = "that of the strategy"

// step is one of a change.
type step struct {
	what     string
	from, to string
	set      func(*Settings) error
}

func shown(n int, zero string) string {
	if n == 0 {
		return zero
	}
	return fmt.Sprint(n)
}

// steps returns what there is to do between two settings. A larger queue comes first and a
// smaller one last, so that what fits in the end has room all the time.
func (t *Tuner) steps(was, is *Settings) (steps []step) {
	add := func(differ bool, what, from, to string, set func(*Settings) error) {
		if differ {
			steps = append(steps, step{what, from, to, set})
		}
	}
	add(was.Upstreams != is.Upstreams, "upstreams", was.Upstreams, is.Upstreams, func(s *Settings) error {
		f, ok := t.queue.(Forwarder)
		if !ok {
			return Refusal{errors.New("upstreams are of the proxy, which this is not")}
		}
		if err := f.SetUpstreams(s.Upstreams); err != nil {
			return Refusal{fmt.Errorf("upstreams is %.100q, want %w", secure.HideUser(s.Upstreams), err)}
		}
		return nil
	})
	add(was.Strategy != is.Strategy, "strategy", was.Strategy, is.Strategy, func(s *Settings) error { return t.queue.Switch(s.Strategy) })
	add(was.Mode != is.Mode, "mode", was.Mode, is.Mode, func(s *Settings) error { return t.queue.SetObserve(s.Mode == Observe) })
	add(was.Workers != is.Workers, "workers", shown(was.Workers, "auto"), shown(is.Workers, "auto"), func(s *Settings) error { return t.queue.SetWorkers(s.Workers) })
	add(was.Objective != is.Objective, "objective", strategies.FormatObjective(was.Objective), strategies.FormatObjective(is.Objective),
		func(s *Settings) error { return t.queue.Objective().Set(s.Objective) })
	if was.Capacity != is.Capacity {
		resize := step{"capacity", shown(was.Capacity, ofStrategy), shown(is.Capacity, ofStrategy), func(s *Settings) error { return t.queue.SetCapacity(s.Capacity) }}
		if roomIn(is) > roomIn(was) {
			steps = slices.Insert(steps, 0, resize)
		} else {
			steps = append(steps, resize)
		}
	}
	return steps
}

// roomIn returns how many may wait, whatever the strategy.
func roomIn(s *Settings) int {
	spec, _ := strategies.Lookup(s.Strategy)
	return cmp.Or(s.Capacity, spec.CapacityOr(0))
}

// Change has change alter the settings, and makes them those in force. A Refusal says that
// they cannot be; any error, that nothing has changed.
func (t *Tuner) Change(change func(*Settings)) error {
	t.one.Lock()
	defer t.one.Unlock()
	was := t.Now()
	is := was
	change(&is)
	if err := is.check(); err != nil {
		return Refusal{err}
	}
	steps := t.steps(&was, &is)
	for i, s := range steps {
		err := s.set(&is)
		if err == nil {
			continue
		}
		for _, done := range slices.Backward(steps[:i]) {
			err = errors.Join(err, done.set(&was)) // which was in force, and so can be
		}
		if errors.Is(err, ErrSplit) {
			err = Refusal{err}
		}
		return err
	}
	t.mu.Lock()
	t.now = is
	t.mu.Unlock()
	for _, s := range steps {
		if s.what != "strategy" { // which the queue tells
			t.log.Info(s.what+" changed", "from", s.from, "to", s.to)
		}
	}
	return nil
}
