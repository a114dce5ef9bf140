package lab

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
	"github.com/spillway-go/spillway/strategies"
)

// loadOf returns the load of a combination, without its rate and the times of
// its scenario, and what the store is filled with: as many keys as the load has,
// or the bytes that are asked for, whichever is more.
func loadOf(c *scenario.Combination) (o workload.Options, f filling, err error) {
	o.Connections, o.TimeoutHeader = c.Connections, c.TimeoutHeader == "true"
	texts := []struct {
		name, text string
		into       interface{ UnmarshalText([]byte) error }
	}{
		{"mix", c.Mix, &o.Mix},
		{"key_distribution", c.Distribution, &o.Distribution},
		{"value_size", c.ValueSize, &o.ValueSize},
		{"profile", c.Profile, &o.Profile},
		{"clients", c.Clients, &o.Clients},
		{"priority", c.Priority, &o.Priority},
		{"retries", c.Retries, &o.Retries},
	}
	for _, t := range texts {
		if t.text == "" {
			continue
		}
		if err := t.into.UnmarshalText([]byte(t.text)); err != nil {
			return o, f, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	if c.Think != "" {
		if o.Think, err = time.ParseDuration(c.Think); err != nil {
			return o, f, fmt.Errorf("think: %w", err)
		}
	}
	defaults := o.WithDefaults()
	f.sizes = defaults.ValueSize
	f.keys = uint64(max(0, c.Fill) / f.mean())
	switch {
	case c.Keys > 0:
		o.Keys = c.Keys
	case f.keys > 0:
		o.Keys = f.keys
	default:
		o.Keys = defaults.Keys
	}
	f.keys = max(f.keys, o.Keys)
	if f.keys > workload.MaxKeys {
		return o, f, fmt.Errorf("fill: %d values are more than %d", f.keys, uint64(workload.MaxKeys))
	}
	return o, f, nil
}

// reference returns the settings that measure the capacity of the load of c. Their
// strategy is fifo: without a queue there is no telling what is served from what
// merely waits somewhere else. Of the combinations that ask for the same, they are
// those with the most workers, the longest queue and the greatest durability, so that
// it does not matter in which order the combinations stand. Of services that are started
// by commands it is the first.
func reference(all []scenario.Combination, c *scenario.Combination) scenario.Combination {
	if _, ok := c.Command(); ok {
		first := *c
		first.Strategy = all[0].Strategy
		return first
	}
	same := slices.DeleteFunc(slices.Clone(all), func(other scenario.Combination) bool { return asked(&other) != asked(c) })
	best := slices.MinFunc(same, func(a, b scenario.Combination) int {
		roomA, queuesA := roomOf(&a)
		roomB, queuesB := roomOf(&b)
		if queuesA != queuesB { // of the others, workers and capacity are not known
			return map[bool]int{true: -1, false: 1}[queuesA]
		}
		return cmp.Or(cmp.Compare(workersOf(&b), workersOf(&a)), cmp.Compare(roomB, roomA),
			cmp.Compare(a.Sync, b.Sync)) // always, interval, never
	})
	best.Strategy = "fifo"
	return best
}

// probing returns over how many connections a capacity is measured: as many as it
// takes, and no more than the load has or the service has room for. What is turned
// away comes back at once in a closed loop, and refusing it would take the CPU from
// what is served.
func probing(c *scenario.Combination) int {
	byDefault := workload.Options{}.WithDefaults().Connections
	connections := min(cmp.Or(c.Connections, byDefault), max(byDefault, workersOf(c)))
	if room, bounded := roomOf(c); bounded {
		connections = min(connections, room)
	}
	return connections
}

func workersOf(c *scenario.Combination) int {
	return cmp.Or(c.Workers, 2*runtime.NumCPU()) // what the service does by default
}

// roomOf returns how many requests a service with the settings of a combination
// holds before it turns one away; false if it turns none away.
func roomOf(c *scenario.Combination) (room int, bounded bool) {
	_, command := c.Command()
	spec, _ := strategies.Lookup(c.Strategy)
	if spec.Inline || c.Strategy == "unbounded" || command {
		return 0, false
	}
	return workersOf(c) + spec.CapacityOr(c.Capacity), true
}

// describe names the settings of a combination that are chosen, by their index in scenario.All.
func describe(c *scenario.Combination, chosen func(i int, s *scenario.Setting) bool) string {
	var said []string
	for i := range scenario.All {
		s := &scenario.All[i]
		if text := s.Label(c); text != "" && chosen(i, s) {
			said = append(said, text)
		}
	}
	return strings.Join(said, ", ")
}

// loadName names the load of a combination, without its rate.
func loadName(c *scenario.Combination) string {
	return cmp.Or(describe(c, func(_ int, s *scenario.Setting) bool { return s.Demand() && s.Name != "rate" }), "default load")
}

// groupsOf returns the groups of a scenario, without any run.
func groupsOf(s *scenario.Scenario) []Group {
	differs := make([]bool, len(scenario.All))
	for i := range differs {
		p := &scenario.All[i]
		for j := range s.Combinations {
			differs[i] = differs[i] || p.Label(&s.Combinations[j]) != p.Label(&s.Combinations[0])
		}
	}
	// The rate is the last: without it something must still be said.
	if !slices.Contains(differs[:len(differs)-1], true) {
		differs[0] = true
	}
	groups := make([]Group, len(s.Combinations))
	for i := range s.Combinations {
		c := &s.Combinations[i]
		groups[i] = Group{
			Combination: *c,
			// A default may be all in which a combination differs.
			Label:    cmp.Or(describe(c, func(i int, _ *scenario.Setting) bool { return differs[i] }), c.Setting()),
			Workload: describe(c, func(_ int, s *scenario.Setting) bool { return s.Demand() }),
			Load:     loadName(c),
			Runs:     []string{},
			Metrics:  map[string]Summary{},
		}
	}
	return groups
}

// orderOf returns the order in which n combinations are run, for each of the
// repetitions: drawn from the seed, and every other one the reverse of the one
// before it, so that over a pair none has an earlier place than another.
func orderOf(n, repetitions int, seed uint64) [][]int {
	random := rand.New(rand.NewPCG(seed, 0x0de5))
	orders := make([][]int, repetitions)
	for i := range orders {
		if i%2 == 0 {
			orders[i] = random.Perm(n)
			continue
		}
		orders[i] = slices.Clone(orders[i-1])
		slices.Reverse(orders[i])
	}
	return orders
}

// slug makes a part of a file name of a label.
func slug(label string) string {
	const longest = 60
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(label), "-"), "-")
	return strings.Trim(name[:min(len(name), longest)], "-.")
}

var notInNames = regexp.MustCompile(`[^a-z0-9.]+`)
