// Package profiles says how the service's CPU time and allocations divide between network,
// queue, work and garbage collection. What is below that, go tool pprof shows: the profiles
// are kept as they are.
//
// A stack is walked from the leaf towards the root of its goroutine, and the first function
// that a rule names decides. So every sample belongs to one part, and system calls, allocating
// and waking others count for whoever does them.
package profiles

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"
)

// Kind is a kind of profile, named as the pprof endpoints name it.
type Kind string

// The kinds that are taken. The first two are attributed.
const (
	CPU    Kind = "cpu"
	Allocs Kind = "allocs"
	Mutex  Kind = "mutex"
	Block  Kind = "block"
)

// Kinds lists them in the order in which they are shown, Attributed those that are attributed.
var (
	Kinds      = []Kind{CPU, Allocs, Mutex, Block}
	Attributed = Kinds[:2]
)

// values returns the name of the values that are attributed, and their unit.
func (k Kind) values() (name, unit string) {
	if k == CPU {
		return "cpu", "nanoseconds"
	}
	return "alloc_space", "bytes"
}

// Part is a part of the service to which cost is attributed.
type Part string

// The parts.
const (
	Network   Part = "network and HTTP" // reading, parsing, forming answers, writing
	Queue     Part = "queue and hand-over"
	Work      Part = "executor and store" // its log and compactions included
	GC        Part = "garbage collection"
	Scheduler Part = "scheduler"
	Other     Part = "other"
	// Admin is the admin plane at work: metrics that are scraped, profiles that are taken. It
	// is no cost of serving.
	Admin Part = "admin plane"
)

// Costs lists the parts that are cost, in the order in which they are shown.
var Costs = []Part{Network, Queue, Work, GC, Scheduler, Other}

// rule says to which part the functions belong whose names begin with a prefix.
type rule struct {
	prefix string
	part   Part
}

const module = "github.com/spillway-go/spillway/"

// roots decide over goroutines by the function that they began with.
var roots = []rule{
	{"net/http.", Admin},
	{"runtime/pprof.profileWriter", Admin},
	{"github.com/prometheus/client_golang/prometheus.(*Registry).Gather", Admin}, // a scrape's helpers
}

// rules decide from the leaf. Assisting and sweeping, which an allocation is made to do, are
// met before whoever allocates.
var rules = []rule{
	{"runtime.gc", GC},
	{"runtime.bgsweep", GC},
	{"runtime.bgscavenge", GC},
	{"runtime.deductSweepCredit", GC},
	{"runtime.(*sweepLocked).sweep", GC},
	{"runtime.wbBufFlush", GC},
	{"github.com/prometheus/client_golang/prometheus.", Other},
	{module + "internal/metrics.", Other},
	{module + "strategies", Queue},
	{module + "internal/httpfront.(*parker)", Queue},
	{module + "internal/httpfront.(*Exchange).Done", Queue},
	{module + "internal/httpfront.", Network},
	{module + "internal/server.", Network},
	{module + "internal/socket.", Network},
	{"github.com/valyala/fasthttp.", Network},
	{module + "internal/executor.", Work},
	{module + "internal/store/", Work},
	{"github.com/cockroachdb/pebble", Work},
}

func ruled(rules []rule, name string) (Part, bool) {
	i := slices.IndexFunc(rules, func(r rule) bool { return strings.HasPrefix(name, r.prefix) })
	if i < 0 {
		return "", false
	}
	return rules[i].part, true
}

// partOf returns the part of a stack.
func partOf(s *profile.Sample) Part {
	var names []string // leaf first
	for _, l := range s.Location {
		for _, line := range l.Line { // the innermost of inlined ones first
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	if len(names) == 0 {
		return Other
	}
	root := names[len(names)-1]
	if part, ok := ruled(roots, root); ok {
		return part
	}
	for _, name := range names {
		if part, ok := ruled(rules, name); ok {
			return part
		}
	}
	if strings.HasPrefix(root, "runtime.") {
		return Scheduler
	}
	return Other
}

// Attribution says which part of the service spent how much of one kind of cost.
type Attribution struct {
	Kind Kind `json:"kind"`
	// Unit is that of the values: nanoseconds, or bytes for allocations.
	Unit string `json:"unit"`
	// Total is the sum of the parts.
	Total int64 `json:"total"`
	// Parts leaves out those to which nothing goes.
	Parts map[Part]int64 `json:"parts"`
}

// Cost is the total without [Admin]: what shares are to be taken of.
func (a Attribution) Cost() int64 { return a.Total - a.Parts[Admin] }

// Share says in percent which share of the cost a part has, or "–" if there is no cost.
func (a Attribution) Share(part Part) string {
	cost := a.Cost()
	if cost <= 0 {
		return "–"
	}
	return strconv.FormatFloat(100*float64(a.Parts[part])/float64(cost), 'f', 1, 64)
}

// Attribute says where p was spent. A profile of another kind than k has no
// values to attribute, and a total of 0.
func Attribute(p *profile.Profile, k Kind) Attribution {
	name, unit := k.values()
	a := Attribution{Kind: k, Unit: unit, Parts: make(map[Part]int64)}
	at := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == name })
	if at < 0 {
		return a
	}
	for _, s := range p.Sample {
		if v := s.Value[at]; v != 0 {
			a.Total += v
			a.Parts[partOf(s)] += v
		}
	}
	return a
}

// Parse reads a profile as the pprof endpoints give it, compressed or not.
func Parse(b []byte) (*profile.Profile, error) {
	p, err := profile.ParseData(b)
	if err != nil {
		return nil, fmt.Errorf("%d bytes that are no pprof profile: %w", len(b), err)
	}
	return p, nil
}
