package result

import (
	"fmt"
	"maps"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// Part numbers the requests that ask for the same, and have the priority and the kind
// of client in common.
type Part int32

// maxTargets is how many targets have figures of their own. Those after them share one
// more name, otherTargets.
const (
	maxTargets   = 50
	otherTargets = "other targets"
)

// parts says which parts a load has. It does not change.
type parts struct {
	// asked are what can be asked for: operations, or targets, each name once. index has
	// that of each target.
	asked  []string
	index  []int
	groups []string       // of clients
	byName map[string]int // the group of each client
}

func newParts(o *workload.Options) *parts {
	p := &parts{byName: map[string]int{}}
	seen := map[string]int{}
	for _, name := range o.Asked() {
		at, known := seen[name]
		switch {
		case known:
		case len(p.asked) < maxTargets:
			at = len(p.asked)
			p.asked = append(p.asked, name)
		default:
			if at = maxTargets; len(p.asked) == maxTargets {
				p.asked = append(p.asked, otherTargets)
			}
		}
		seen[name] = at
		p.index = append(p.index, at)
	}
	for _, name := range o.Clients.Names() {
		group := o.Clients.Group(name)
		if len(p.groups) == 0 || p.groups[len(p.groups)-1] != group { // a group's follow each other
			p.groups = append(p.groups, group)
		}
		p.byName[name] = len(p.groups) - 1
	}
	return p
}

// priorityParts is one more than there are priorities, for none.
const priorityParts = len(workload.Priorities{}) + 1

// of returns the part of a request.
func (p *parts) of(r *workload.Request) Part {
	group := 0
	if r.Client != "" {
		group = p.byName[r.Client]
	}
	return Part((group*priorityParts+int(r.Priority)+1)*len(p.asked) + p.index[r.Asks()])
}

func (p *parts) count() int { return max(1, len(p.groups)) * priorityParts * len(p.asked) }

// asks returns what the requests of a part ask for.
func (p *parts) asks(part Part) int { return int(part) % len(p.asked) }

// shares sums up what was counted by part: by kind of clients, by priority, and by
// what is asked for if that is several.
func (p *parts) shares(counted []Share) map[string]Share {
	all := map[string]Share{}
	for part, s := range counted {
		if s.Requests == 0 {
			continue
		}
		rest := part / len(p.asked)
		if priority := rest%priorityParts - 1; priority >= 0 {
			name := fmt.Sprintf("priority %d", priority)
			all[name] = all[name].Add(s)
		}
		if len(p.groups) > 0 {
			name := "client " + p.groups[rest/priorityParts]
			all[name] = all[name].Add(s)
		}
	}
	asked := map[string]Share{}
	for at, s := range p.byAsked(counted) {
		if s.Requests > 0 {
			asked[p.asked[at]] = s
		}
	}
	if len(asked) > 1 {
		maps.Copy(all, asked)
	}
	return all
}

// byAsked sums up what was counted by what is asked for.
func (p *parts) byAsked(counted []Share) []Share {
	sums := make([]Share, len(p.asked))
	for part, s := range counted {
		at := p.asks(Part(part))
		sums[at] = sums[at].Add(s)
	}
	return sums
}
