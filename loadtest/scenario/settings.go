package scenario

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/workload"
	"github.com/spillway-go/spillway/strategies"
)

// MaxCombinations is how many combinations a scenario may have.
const MaxCombinations = 1000

// Settings are the values of each setting by its name, such as "strategy" or
// "rate"; several values are an axis.
type Settings map[string][]string

// all stands for every strategy that is not named beside it.
const all = "all"

// maxNodes is how many services there may be behind a load balancer.
const maxNodes = 10_000

// command comes before the name of a service that is started by a command.
const command = "service:"

// Command returns the name of the service, started by a command, that the combination
// asks for in the place of a strategy, if it does.
func (c *Combination) Command() (name string, ok bool) { return strings.CutPrefix(c.Strategy, command) }

// setting is one name of Settings.
type setting struct {
	name string
	load bool // of the load, not of the service
	set  func(c *Combination, value string) error
}

// settings lists all settings. In this order they multiply, the last fastest.
var settings = []setting{
	{"strategy", false, func(c *Combination, value string) error {
		c.Strategy = value
		if value == all {
			return nil
		}
		if name, ok := strings.CutPrefix(value, command); ok && !isName(name) {
			return fmt.Errorf("%q is not the name of a service, such as service:nginx", value)
		} else if ok {
			return nil
		}
		_, err := strategies.Lookup(value)
		return err
	}},
	{"workers", false, func(c *Combination, value string) error { return setCount(&c.Workers, value, 1<<16) }},
	{"capacity", false, func(c *Combination, value string) error { return setInt(&c.Capacity, value, 1, 1<<20) }},
	{"objective", false, func(c *Combination, value string) error {
		c.Objective = value
		if value == NoObjective || value == Unset {
			return nil
		}
		if d, err := time.ParseDuration(value); err != nil || d <= 0 || strategies.CheckObjective(d) != nil {
			return fmt.Errorf("%q is not a duration from %v to %v, none, or unset", value, strategies.ShortestObjective, strategies.LongestObjective)
		}
		return nil
	}},
	{"sync", false, func(c *Combination, value string) error {
		c.Sync = value
		if text, ok := strings.CutPrefix(value, "interval:"); ok {
			if d, err := time.ParseDuration(text); err == nil && d > 0 {
				return nil
			}
		} else if value == "always" || value == "never" {
			return nil
		}
		return fmt.Errorf("%q is not always, never or an interval such as interval:10ms", value)
	}},
	{"store_delay", false, func(c *Combination, value string) error {
		c.StoreDelay = value
		if d, err := time.ParseDuration(strings.TrimPrefix(value, "exp:")); err == nil && d == 0 {
			return nil
		}
		if _, err := sim.ParseDistribution(value); err != nil || strings.HasPrefix(value, "lognormal:") { // which the service does not know
			return fmt.Errorf("%q is not 0, a duration such as 4ms, exp:4ms or bimodal:1ms,30ms,0.1, up to 1h", value)
		}
		return nil
	}},
	{"store_parallel", false, func(c *Combination, value string) error { return setInt(&c.StoreParallel, value, 0, 1<<16) }},
	{"nodes", false, func(c *Combination, value string) error { return setInt(&c.Nodes, value, 1, maxNodes) }},
	{"slow_node", false, func(c *Combination, value string) error {
		var ok bool
		if c.SlowNode, ok = parseNumber(value, 100); !ok {
			return fmt.Errorf("%q is not a speed above 0, up to 100, where that of the other nodes is 1", value)
		}
		return nil
	}},
	{"balance", false, func(c *Combination, value string) error {
		if c.Balance = value; !slices.Contains(sim.Balances, value) {
			return fmt.Errorf("%q is not one of %s", value, strings.Join(sim.Balances, ", "))
		}
		return nil
	}},
	{"fill", true, func(c *Combination, value string) error {
		var bytes workload.ByteCount
		err := bytes.UnmarshalText([]byte(value))
		if c.Fill = int64(bytes); err == nil && bytes < 1 {
			err = fmt.Errorf("%q is not at least 1 byte", value)
		}
		return err
	}},
	{"connections", true, func(c *Combination, value string) error {
		return setCount(&c.Connections, value, workload.MaxConnections)
	}},
	{"mix", true, func(c *Combination, value string) error { return setText(&c.Mix, value, new(workload.Mix)) }},
	{"keys", true, func(c *Combination, value string) error { return setInt(&c.Keys, value, 1, workload.MaxKeys) }},
	{"key_distribution", true, func(c *Combination, value string) error {
		return setText(&c.Distribution, value, new(workload.Distribution))
	}},
	{"value_size", true, func(c *Combination, value string) error {
		return setText(&c.ValueSize, value, new(workload.Sizes))
	}},
	{"profile", true, func(c *Combination, value string) error { return setText(&c.Profile, value, new(workload.Profile)) }},
	{"clients", true, func(c *Combination, value string) error { return setText(&c.Clients, value, new(workload.Clients)) }},
	{"priority", true, func(c *Combination, value string) error {
		return setText(&c.Priority, value, new(workload.Priorities))
	}},
	{"timeout_header", true, func(c *Combination, value string) error {
		if value != "true" && value != "false" {
			return fmt.Errorf("%q is not true or false", value)
		}
		if c.TimeoutHeader = value; value == "false" {
			c.TimeoutHeader = ""
		}
		return nil
	}},
	{"retries", true, func(c *Combination, value string) error {
		if c.Retries = value; value == "none" {
			c.Retries = ""
			return nil
		}
		return new(workload.Retries).UnmarshalText([]byte(value))
	}},
	{"think", true, func(c *Combination, value string) error {
		if c.Think = value; value == "0" {
			c.Think = ""
			return nil
		}
		if d, err := time.ParseDuration(value); err != nil || d <= 0 || d > time.Hour {
			return fmt.Errorf("%q is not 0 or a duration up to 1h", value)
		}
		return nil
	}},
	{"rate", true, func(c *Combination, value string) error {
		c.Rate = value
		_, _, err := ParseRate(value)
		return err
	}},
}

// ParseRate returns a rate in requests a second, 0 for a closed loop, or, if relative, as
// a multiple of the capacity.
func ParseRate(text string) (rate float64, relative bool, err error) {
	if text == "max" {
		return 0, false, nil
	}
	number, relative := strings.CutSuffix(text, "x")
	most := 1e7
	if relative {
		most = 100
	}
	rate, ok := parseNumber(number, most)
	if !ok {
		return 0, false, fmt.Errorf("%q is not requests a second (up to 10000000), a multiple of the capacity such as 0.9x (up to 100x), or max", text)
	}
	return rate, relative, nil
}

// parseNumber reads a number above 0 and at most so much.
func parseNumber(text string, most float64) (number float64, ok bool) {
	// ParseFloat knows more forms than these, and not all of them are numbers.
	number, err := strconv.ParseFloat(text, 64)
	return number, err == nil && strings.Trim(text, "0123456789.") == "" && number > 0 && number <= most
}

// isName tells whether a service may be called so.
func isName(name string) bool {
	return name != "" && len(name) <= 40 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// find returns the setting of a name, if there is one.
func find(name string) *setting {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &settings[i]
}

// setText stores a value that text can hold.
func setText(field *string, value string, text encoding.TextUnmarshaler) error {
	*field = value
	return text.UnmarshalText([]byte(value))
}

// setInt stores a whole number within bounds.
func setInt[T int | uint64](field *T, value string, least, most T) error {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n < uint64(least) || n > uint64(most) {
		return fmt.Errorf("%q is not a whole number from %d to %d", value, least, most)
	}
	*field = T(n)
	return nil
}

// setCount is setInt from 1 that knows "cpus" as well.
func setCount(field *int, value string, most int) error {
	if value == "cpus" {
		*field = runtime.NumCPU()
		return nil
	}
	return setInt(field, value, 1, most)
}

// Combinations returns the product of the settings, each combination once: where
// a strategy has no queue or no bound, or takes no workers, its combinations do
// not differ by them; nor do those with a rate by how long connections think. One capacity for several strategies is not auto's, which has a
// default of its own. Without a strategy it is fifo, without a rate it is max.
func (s Settings) Combinations() ([]Combination, error) {
	with := Settings{"strategy": {"fifo"}, "rate": {"max"}}
	maps.Copy(with, s)
	combinations := []Combination{{}}
	for _, setting := range settings {
		values, given := with[setting.name]
		if !given {
			continue
		}
		if i := slices.Index(values, all); setting.name == "strategy" && i >= 0 {
			named := slices.Delete(slices.Clone(values), i, i+1)
			others := slices.DeleteFunc(strategies.Names(), func(name string) bool { return slices.Contains(named, name) })
			values = slices.Concat(values[:i], others, values[i+1:])
		}
		if len(values) > MaxCombinations/len(combinations) {
			return nil, fmt.Errorf("the axes multiply to more than %d combinations", MaxCombinations)
		}
		var product []Combination
		for _, c := range combinations {
			for _, value := range values {
				if err := setting.set(&c, value); err != nil {
					return nil, fmt.Errorf("%s: %w", setting.name, err)
				}
				product = append(product, c)
			}
		}
		combinations = product
	}
	if err := with.normalize(combinations); err != nil {
		return nil, err
	}
	seen := map[Combination]bool{}
	return slices.DeleteFunc(combinations, func(c Combination) bool {
		same := seen[c]
		seen[c] = true
		return same
	}), nil
}

// normalize sets what follows from other settings.
func (s Settings) normalize(combinations []Combination) error {
	if len(s["fill"]) > 0 && len(s["keys"]) > 0 {
		return errors.New("keys: not together with fill, which says already how many there are")
	}
	// One capacity for several strategies is that of those without a default of their own.
	ofAll := len(s["capacity"]) == 1 && (len(s["strategy"]) > 1 || s["strategy"][0] == all)
	for i := range combinations {
		c := &combinations[i]
		switch spec, _ := strategies.Lookup(c.Strategy); {
		case spec.Inline:
			c.Workers, c.Capacity = 0, 0
		case c.Strategy == "unbounded", spec.DefaultCapacity > 0 && ofAll:
			c.Capacity = 0
		}
		if _, ok := c.Command(); ok && (c.Workers > 0 || c.Capacity > 0 || c.Objective != "" || c.Sync != "" || c.StoreDelay != "" ||
			c.StoreParallel > 0 || c.Fill > 0) {
			return errors.New("service: a command is given no workers, capacity, objective, sync, store_delay, store_parallel and fill; say what it needs in the command")
		}
		if c.Rate != "max" {
			c.Think = ""
		}
		if c.SlowNode == 1 {
			c.SlowNode = 0
		}
		if c.Nodes <= 1 {
			c.Nodes, c.Balance = 0, ""
		} else if c.Balance = cmp.Or(c.Balance, sim.Balances[0]); c.Balance == sim.ClientHash && c.Clients == "" {
			return errors.New("balance: client-hash needs clients, or all that is sent goes to one node")
		}
		if err := c.setKeys(); err != nil {
			return err
		}
	}
	return nil
}

// setKeys sets how many values the store is filled with.
func (c *Combination) setKeys() error {
	if c.Fill == 0 {
		return nil
	}
	size := workload.Options{}.WithDefaults().ValueSize
	if c.ValueSize != "" {
		_ = size.UnmarshalText([]byte(c.ValueSize)) // has been checked
	}
	mean := max(1, int64(size.Min+size.Max)/2)
	c.Keys = uint64(max(1, c.Fill/mean))
	if c.Keys > workload.MaxKeys {
		return fmt.Errorf("fill: %d bytes are more than %d values", c.Fill, int64(workload.MaxKeys))
	}
	return nil
}
