// Package profiles says how the service's CPU time divides between network, queue, work and
// garbage collection. What is below that, go tool pprof shows: the profiles
// are kept as they are.
//
// A stack is walked from the leaf towards the root of its goroutine, and the first function
// that a rule names decides. So every sample belongs to one part, and system calls, allocating
// and waking others count for whoever does them.
package profiles

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// Kind is a kind of profile, named as the pprof endpoints name it.
type Kind string

// The kinds that are taken.
const (
	CPU    Kind = "cpu"
	Allocs Kind = "allocs"
	Mutex  Kind = "mutex"
	Block  Kind = "block"
)

// Kinds lists them.
var Kinds = []Kind{CPU, Allocs, Mutex, Block}

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
	// adminPlane is metrics that are scraped, and profiles that are taken: no cost of serving.
	adminPlane Part = "admin plane"
)

// Parts lists them in the order in which they are shown.
var Parts = []Part{Network, Queue, Work, GC, Scheduler, Other}

// rule says to which part the functions belong whose names begin with a prefix.
type rule struct {
	prefix string
	part   Part
}

const module = "github.com/spillway-go/spillway/"

// roots decide over goroutines by the function that they began with.
var roots = []rule{
	{"net/http.", adminPlane},
	{"runtime/pprof.profileWriter", adminPlane},
	{"github.com/prometheus/client_golang/prometheus.(*Registry).Gather", adminPlane}, // a scrape's helpers
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

// Costs is how much CPU time was spent on each part, in nanoseconds.
type Costs map[Part]int64

// Attribute says where the CPU time of a profile was spent; nowhere if it is of another kind.
func Attribute(p *profile.Profile) Costs {
	costs := Costs{}
	at := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == "cpu" })
	if at < 0 {
		return costs
	}
	for _, s := range p.Sample {
		if part := partOf(s); part != adminPlane {
			costs[part] += s.Value[at]
		}
	}
	return costs
}

// Parse reads a profile as the pprof endpoints give it, compressed or not.
func Parse(b []byte) (*profile.Profile, error) {
	p, err := profile.ParseData(b)
	if err != nil {
		return nil, fmt.Errorf("%d bytes that are no pprof profile: %w", len(b), err)
	}
	return p, nil
}
