package virtual

import (
	"fmt"
	"time"

	"spillway/internal/sim"
	"spillway/loadtest"
)

// shares counts by what the requests of a load differ in.
type shares struct {
	o      *loadtest.Options
	groups map[string]string // of clients
	counts map[string]*loadtest.Share
	ops    map[loadtest.Op]*loadtest.Share
}

func newShares(o *loadtest.Options) *shares {
	return &shares{o: o, groups: map[string]string{}, counts: map[string]*loadtest.Share{}, ops: map[loadtest.Op]*loadtest.Share{}}
}

func (s *shares) count(r sim.Record, k kind) {
	if !r.Measured {
		return
	}
	if s.ops[k.op] == nil {
		s.ops[k.op] = new(loadtest.Share)
	}
	add(s.ops[k.op], r, s.o.SLO)
	if s.o.Clients != "" && r.Client != "" {
		group, known := s.groups[r.Client]
		if !known {
			group = "client " + s.o.Clients.Group(r.Client)
			s.groups[r.Client] = group
		}
		add(s.named(group), r, s.o.SLO)
	}
	if k.priority >= 0 {
		add(s.named(fmt.Sprintf("priority %d", k.priority)), r, s.o.SLO)
	}
}

func (s *shares) named(name string) *loadtest.Share {
	if s.counts[name] == nil {
		s.counts[name] = new(loadtest.Share)
	}
	return s.counts[name]
}

func add(share *loadtest.Share, r sim.Record, slo time.Duration) {
	share.Requests++
	if r.Outcome == sim.Served {
		share.Served++
		if r.Latency <= slo {
			share.Good++
		}
	}
}

// all returns the shares; operations only if there are several.
func (s *shares) all() map[string]loadtest.Share {
	all := map[string]loadtest.Share{}
	for name, share := range s.counts {
		all[name] = *share
	}
	if len(s.ops) > 1 {
		for op, share := range s.ops {
			all[op.String()] = *share
		}
	}
	return all
}
