package scenario

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
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

// Setting is one name of [Settings]. [All] has what there is to know of each, but for what it
// means to the service or to the generator.
type Setting struct {
	// Name is what files call it, Flag what compare and simulate do.
	Name, Flag string
	// Part is where files have it.
	Part Part
	// Work says of one of the service that it decides how much work a request is. See Demand.
	Work bool
	// Program is the only one that has the flag: compare or simulate; empty if both do.
	Program string
	// Separator is between several values of the flag, a comma if it is empty. Placeholder and
	// Help are shown for it.
	Separator, Placeholder, Help string

	// label formats the value for people, or say does.
	label string
	say   func(*Combination) string
	// read returns what the field of a Combination holds.
	read func(value string) (any, error)
}

// Part is a part of a file.
type Part string

// The parts.
const (
	OfService Part = "service"
	OfLoad    Part = "load"
)

// All lists all settings, in the order in which labels name them and in which they multiply, the
// last fastest.
var All = []Setting{
	{Name: "strategy", Flag: "strategies", Part: OfService, Placeholder: "NAME", Help: "Strategies, or all.",
		say: (*Combination).Setting, read: readStrategy},
	{Name: "workers", Flag: "workers", Part: OfService, Placeholder: "N", Help: "Numbers of workers.",
		label: "%d workers", read: number(1, 1<<16, true)},
	{Name: "capacity", Flag: "capacities", Part: OfService, Placeholder: "N", Help: "Numbers of requests that may wait.",
		label: "%d waiting", read: number(1, 1<<20, false)},
	{Name: "objective", Flag: "objectives", Part: OfService, Placeholder: "TIME",
		Help: "What the service is told that answers are good within, where that is not the --slo: a time, none (nobody is refused for being late), or unset.", label: "objective %s", read: readObjective},
	{Name: "sync", Flag: "sync", Part: OfService, Placeholder: "MODE", Help: "always, never, interval:10ms.",
		label: "sync %s", read: readSync},
	{Name: "balance", Flag: "balance", Part: OfService, Program: "simulate", Placeholder: "NAME",
		Help: "How the load balancer chooses: round-robin (the default), random, least-outstanding, power-of-two, client-hash.", label: "%s", read: oneOf(sim.Balances...)},
	{Name: "nodes", Flag: "nodes", Part: OfService, Work: true, Program: "simulate", Placeholder: "N",
		Help: "Numbers of services with these settings behind a load balancer; connections are for each, rates that are multiples are of all of them.", label: "%d nodes", read: number(1, maxNodes, false)},
	{Name: "slow_node", Flag: "slow-node", Part: OfService, Work: true, Program: "simulate", Placeholder: "SPEED",
		Help: "The speed of the first node, where the others have 1.", label: "one of speed %g", read: above0(100, "a speed above 0, up to 100, where that of the other nodes is 1")},
	{Name: "mix", Flag: "mixes", Part: OfLoad, Separator: ";", Placeholder: "MIX", Help: "Mixes such as 'put=50,get=50;get=100'.",
		label: "%s", read: text[workload.Mix]},
	{Name: "connections", Flag: "connections", Part: OfLoad, Placeholder: "N",
		Help: "Numbers of connections, for each node if there are several.", label: "%d connections", read: number(1, workload.MaxConnections, true)},
	{Name: "store_delay", Flag: "store-delay", Part: OfService, Work: true, Placeholder: "TIME",
		Help: "What each operation sleeps first, such as 4ms or exp:4ms.", label: "%s of work", read: readDelay},
	{Name: "store_parallel", Flag: "store-parallel", Part: OfService, Work: true, Placeholder: "N",
		Help: "How many operations the delayed store does at once; 0, the default, for as many as come.", label: "%d at once", read: number(0, 1<<16, false)},
	{Name: "store_serial", Flag: "store-serial", Part: OfService, Work: true, Program: "simulate", Placeholder: "SHARE",
		Help:  "How operations slow each other: with n at once each takes 1 + SHARE·(n-1) times as long, as a step of a model server does.",
		label: "%g of it serial", read: above0(1, "a share above 0, up to 1")},
	{
		Name: "fill", Flag: "fill", Part: OfLoad, Program: "compare", Placeholder: "SIZE", Help: "How much the store holds.",
		say: func(c *Combination) string { return positive(workload.ByteCount(c.Fill), "store of %v") },
		read: func(value string) (any, error) {
			var bytes workload.ByteCount
			err := bytes.UnmarshalText([]byte(value))
			return bytes, cmp.Or(err, unless(bytes > 0, value, "at least 1 byte"))
		},
	},
	{Name: "keys", Flag: "keys", Part: OfLoad, Placeholder: "N", Help: "Numbers of keys.",
		label: "%d keys", read: number(1, workload.MaxKeys, false)},
	{Name: "key_distribution", Flag: "key-distributions", Part: OfLoad, Placeholder: "NAME", Help: "uniform, zipf, sequential, latest.",
		label: "%s", read: text[workload.Distribution]},
	{Name: "value_size", Flag: "value-sizes", Part: OfLoad, Placeholder: "SIZE", Help: "Bytes of a value.",
		label: "values of %s", read: text[workload.Sizes]},
	{Name: "profile", Flag: "profiles", Part: OfLoad, Separator: ";", Placeholder: "SHAPE",
		Help: "How the rate changes: steady, spike:4x,5s, ramp:0.5x,10x, burst:5x,100ms,1s.", label: "%s", read: text[workload.Profile]},
	{Name: "clients", Flag: "clients", Part: OfLoad, Separator: ";", Placeholder: "WEIGHTS",
		Help: "Who asks, such as greedy=95,other*19=5.", label: "clients %s", read: text[workload.Clients]},
	{Name: "priority", Flag: "priorities", Part: OfLoad, Separator: ";", Placeholder: "WEIGHTS",
		Help: "How important it is, such as 0=10,3=60,7=30.", label: "priorities %s", read: text[workload.Priorities]},
	{Name: "timeout_header", Flag: "timeout-header", Part: OfLoad, Placeholder: "true|false", Help: "Whether clients tell their time-out.",
		label: "deadlines told%.0s", read: none("false", oneOf("true", "false"))},
	{Name: "retries", Flag: "retries", Part: OfLoad, Separator: ";", Placeholder: "N,BACKOFF",
		Help: "What clients do with a refusal: none, or attempts and back-off such as 3,10ms.", label: "retries %s", read: none("none", text[workload.Retries])},
	{
		Name: "think", Flag: "think", Part: OfLoad, Placeholder: "TIME",
		Help: "How long connections rest between an answer and the next request, with --rates max.",
		say:  func(*Combination) string { return "" }, // the rate says it
		read: none("0", func(value string) (any, error) {
			d, err := time.ParseDuration(value)
			return value, unless(err == nil && d > 0 && d <= time.Hour, value, "0 or a duration up to 1h")
		}),
	},
	{
		Name: "rate", Flag: "rates", Part: OfLoad, Placeholder: "RATE", Help: "Requests a second, multiples of the capacity such as 0.9x, or max.",
		say: func(c *Combination) string {
			switch {
			case c.Rate != "" && c.Rate != "max":
				return strings.Replace(c.Rate+"/s", "x/s", "x", 1)
			case c.Think != "":
				return "closed loop with " + c.Think + " between requests"
			default:
				return "closed loop"
			}
		},
		read: func(value string) (any, error) {
			_, _, err := ParseRate(value)
			return value, err
		},
	},
}

// Demand reports whether the setting decides what is asked for, or how much work that is. Only
// combinations that agree in all such can be compared.
func (s *Setting) Demand() bool { return s.Part == OfLoad || s.Work }

// fields has the index of the field of each setting, by its name in JSON.
var fields = func() map[string]int {
	byName := map[string]int{}
	for i, of := 0, reflect.TypeFor[Combination](); i < of.NumField(); i++ {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		byName[name] = i
	}
	return byName
}()

// in returns the field of the setting.
func (s *Setting) in(c *Combination) reflect.Value {
	return reflect.ValueOf(c).Elem().Field(fields[s.Name])
}

// set reads a value.
func (s *Setting) set(c *Combination, value string) error {
	read, err := s.read(value)
	if err == nil {
		field := s.in(c)
		field.Set(reflect.ValueOf(read).Convert(field.Type()))
	}
	return err
}

// Label says the setting in words; empty if it is the default.
func (s *Setting) Label(c *Combination) string {
	if s.say != nil {
		return s.say(c)
	}
	if field := s.in(c); !field.IsZero() {
		return positive(field.Interface(), s.label)
	}
	return ""
}

// positive formats what is neither empty nor 0.
func positive(value any, label string) string {
	switch fmt.Sprint(value) {
	case "", "0", "0 B":
		return ""
	case "1":
		label = strings.TrimSuffix(label, "s") // of many
	}
	return fmt.Sprintf(label, value)
}

// Setting is how labels call what a combination has in the place of a strategy.
func (c *Combination) Setting() string { return strings.TrimPrefix(c.Strategy, command) }

// unless returns an error if a value is not what it has to be.
func unless(ok bool, value, want string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%q is not %s", value, want)
}

func readStrategy(value string) (any, error) {
	if value == all {
		return value, nil
	}
	if name, ok := strings.CutPrefix(value, command); ok {
		return value, unless(isName(name), value, "the name of a service, such as service:nginx")
	}
	_, err := strategies.Lookup(value)
	return value, err
}

func readObjective(value string) (any, error) {
	d, err := time.ParseDuration(value)
	ok := value == NoObjective || value == Unset || err == nil && d > 0 && strategies.CheckObjective(d) == nil
	return value, unless(ok, value, fmt.Sprintf("a duration from %v to %v, none, or unset", strategies.ShortestObjective, strategies.LongestObjective))
}

func readSync(value string) (any, error) {
	d, err := time.ParseDuration(strings.TrimPrefix(value, "interval:"))
	ok := value == "always" || value == "never" || strings.HasPrefix(value, "interval:") && err == nil && d > 0
	return value, unless(ok, value, "always, never or an interval such as interval:10ms")
}

func readDelay(value string) (any, error) {
	if d, err := time.ParseDuration(strings.TrimPrefix(value, "exp:")); err == nil && d == 0 {
		return value, nil
	}
	_, err := sim.ParseDistribution(value)
	ok := err == nil && !strings.HasPrefix(value, "lognormal:") // which the service does not know
	return value, unless(ok, value, "0, a duration such as 4ms, exp:4ms or bimodal:1ms,30ms,0.1, up to 1h")
}

// text reads what a type of text can hold.
func text[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](value string) (any, error) {
	return value, P(new(T)).UnmarshalText([]byte(value))
}

// none reads a word as nothing.
func none(word string, read func(string) (any, error)) func(string) (any, error) {
	return func(value string) (any, error) {
		if value == word {
			return "", nil
		}
		return read(value)
	}
}

func oneOf(values ...string) func(string) (any, error) {
	return func(value string) (any, error) {
		last := len(values) - 1
		want := "one of " + strings.Join(values, ", ")
		if last == 1 {
			want = values[0] + " or " + values[1]
		}
		return value, unless(slices.Contains(values, value), value, want)
	}
}

// number reads a whole number within bounds, and perhaps "cpus".
func number(least, most uint64, cpus bool) func(string) (any, error) {
	return func(value string) (any, error) {
		if cpus && value == "cpus" {
			return runtime.NumCPU(), nil
		}
		n, err := strconv.ParseUint(value, 10, 64)
		return n, unless(err == nil && n >= least && n <= most, value, fmt.Sprintf("a whole number from %d to %d", least, most))
	}
}

// above0 reads a number above 0 and at most so much.
func above0(most float64, want string) func(string) (any, error) {
	return func(value string) (any, error) {
		n, ok := parseNumber(value, most)
		return n, unless(ok, value, want)
	}
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
func find(name string) *Setting {
	i := slices.IndexFunc(All, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &All[i]
}

// Combinations returns the product of the settings, each combination once: where
// a strategy has no queue or no bound, or takes no workers, its combinations do
// not differ by them; nor do those with a rate by how long connections think. One capacity for several strategies is not auto's, which has a
// default of its own. Without a strategy it is fifo, without a rate it is max.
func (s Settings) Combinations() ([]Combination, error) {
	with := Settings{"strategy": {"fifo"}, "rate": {"max"}}
	maps.Copy(with, s)
	combinations := []Combination{{}}
	for _, setting := range All {
		values, given := with[setting.Name]
		if !given {
			continue
		}
		if i := slices.Index(values, all); setting.Name == "strategy" && i >= 0 {
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
					return nil, fmt.Errorf("%s: %w", setting.Name, err)
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
	}
	return nil
}
