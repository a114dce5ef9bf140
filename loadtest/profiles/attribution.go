package profiles

import (
	"slices"
	"strconv"

	"github.com/google/pprof/profile"
)

// Kind is a kind of profile, named as the pprof endpoints name it.
type Kind string

// The kinds that are attributed.
const (
	CPU    Kind = "cpu"
	Allocs Kind = "allocs"
	Mutex  Kind = "mutex"
	Block  Kind = "block"
)

// Kinds lists them in the order in which they are shown.
var Kinds = []Kind{CPU, Allocs, Mutex, Block}

// values returns the name of the values that are attributed, and their unit.
func (k Kind) values() (name, unit string) {
	switch k {
	case CPU:
		return "cpu", "nanoseconds"
	case Allocs:
		return "alloc_space", "bytes"
	default:
		return "delay", "nanoseconds"
	}
}

// Part is a part of the service to which cost is attributed.
type Part string

// The parts, in the order in which they are shown.
const (
	NetworkRead  Part = "network read"
	NetworkWrite Part = "network write"
	HTTP         Part = "HTTP parsing" // and the forming of answers
	Queueing     Part = "queueing and hand-over"
	Executor     Part = "executor"
	Store        Part = "store"
	WAL          Part = "WAL and compaction"
	GC           Part = "garbage collection"
	Scheduler    Part = "scheduler"
	Other        Part = "other"
	// Admin is the admin plane at work: metrics that are scraped, profiles that
	// are taken. It is no cost of serving.
	Admin Part = "admin plane"
	// Parked is the waiting of goroutines that have nothing to do. Only block
	// profiles hold it, and it is no cost.
	Parked Part = "parked"
)

// Parts lists them in the order in which they are shown.
var Parts = []Part{NetworkRead, NetworkWrite, HTTP, Queueing, Executor, Store, WAL, GC, Scheduler, Other, Admin, Parked}

// Costs lists the parts that are cost, in the same order.
var Costs = slices.DeleteFunc(slices.Clone(Parts), func(p Part) bool { return p == Admin || p == Parked })

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

// Cost is the total without [Admin] and [Parked]: what shares are to be taken of.
func (a Attribution) Cost() int64 { return a.Total - a.Parts[Admin] - a.Parts[Parked] }

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
	at := valueIndex(p, name)
	if at < 0 {
		return a
	}
	c := newClassifier(k)
	for _, s := range p.Sample {
		if v := s.Value[at]; v != 0 {
			a.Total += v
			a.Parts[c.part(frames(s))] += v
		}
	}
	return a
}

// valueIndex returns where the values of that name are in p's samples, or -1.
func valueIndex(p *profile.Profile, name string) int {
	return slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == name })
}
