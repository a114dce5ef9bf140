package result

import (
	"fmt"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// Part says what counts of a load a request belongs to: of what is asked for, of its priority,
// and of its kind of clients.
type Part [3]int32

// maxTargets is how many targets have figures of their own. Those after them share one
// more name, otherTargets.
const (
	maxTargets   = 50
	otherTargets = "other targets"
)

// parts says which parts a load has. It does not change.
type parts struct {
	// names are those of the parts: of what can be asked for, operations or targets, each name
	// once; of no priority and of each; of no kind of clients and of each. What is of none has
	// no name. The first so many are asked for.
	names []string
	asked int
	index []int          // of what each target, or operation, asks for
	kinds map[string]int // of clients, by their names
}

func newParts(o *workload.Options) *parts {
	p := &parts{kinds: map[string]int{}}
	seen := map[string]int{}
	for _, name := range o.Asked() {
		at, known := seen[name]
		switch {
		case known:
		case len(p.names) < maxTargets:
			at = len(p.names)
			p.names = append(p.names, name)
		default:
			if at = maxTargets; len(p.names) == maxTargets {
				p.names = append(p.names, otherTargets)
			}
		}
		seen[name] = at
		p.index = append(p.index, at)
	}
	p.asked = len(p.names)
	p.names = append(p.names, "")
	for priority := range len(workload.Priorities{}) {
		p.names = append(p.names, fmt.Sprintf("priority %d", priority))
	}
	p.names = append(p.names, "")
	names, kinds, _, _ := o.Clients.Parse() // has been checked
	for i, name := range names {
		if kind := "client " + kinds[i]; p.names[len(p.names)-1] != kind {
			p.names = append(p.names, kind)
		}
		p.kinds[name] = len(p.names) - 1
	}
	return p
}

// of returns the part of a request.
func (p *parts) of(r *workload.Request) Part {
	kind := p.asked + 1 + len(workload.Priorities{})
	if r.Client != "" {
		kind = p.kinds[r.Client]
	}
	return Part{int32(p.index[r.Asks()]), int32(p.asked + 1 + int(r.Priority)), int32(kind)}
}

// shares names what was counted by part, and what was asked for only if that is several.
func (p *parts) shares(counted []Share) map[string]Share {
	all, several := map[string]Share{}, 0
	for _, s := range counted[:p.asked] {
		if s.Requests > 0 {
			several++
		}
	}
	for at, s := range counted {
		if p.names[at] != "" && s.Requests > 0 && (at >= p.asked || several > 1) {
			all[p.names[at]] = s
		}
	}
	return all
}
