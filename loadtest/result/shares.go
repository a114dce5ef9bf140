package result

import (
	"fmt"
	"maps"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// Part numbers the requests that have the operation, the priority and the kind of
// client in common.
type Part int32

// parts says which parts a load has. It does not change.
type parts struct {
	groups []string       // of clients
	byName map[string]int // the group of each client
}

func newParts(o *workload.Options) *parts {
	p := &parts{byName: map[string]int{}}
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

// of returns the part of the requests with that operation, priority, or -1, and
// client, or "".
func (p *parts) of(op workload.Op, priority int8, client string) Part {
	group := 0
	if client != "" {
		group = p.byName[client]
	}
	return Part((group*priorityParts+int(priority)+1)*int(workload.OpCount) + int(op))
}

func (p *parts) count() int { return max(1, len(p.groups)) * priorityParts * int(workload.OpCount) }

// op returns the operation of a part.
func (part Part) op() workload.Op { return workload.Op(part % Part(workload.OpCount)) }

// shares sums up what was counted by part: by kind of clients, by priority, and by
// operation if there are several.
func (p *parts) shares(counted []Share) map[string]Share {
	all, operations := map[string]Share{}, map[string]Share{}
	for part, s := range counted {
		if s.Requests == 0 {
			continue
		}
		op := Part(part).op().String()
		operations[op] = operations[op].Add(s)
		rest := part / int(workload.OpCount)
		if priority := rest%priorityParts - 1; priority >= 0 {
			name := fmt.Sprintf("priority %d", priority)
			all[name] = all[name].Add(s)
		}
		if len(p.groups) > 0 {
			name := "client " + p.groups[rest/priorityParts]
			all[name] = all[name].Add(s)
		}
	}
	if len(operations) > 1 {
		maps.Copy(all, operations)
	}
	return all
}
