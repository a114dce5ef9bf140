package sim

import "math"

// batch is work that goes on at one pace, which depends on how much there is, as in a
// Resource. It runs in virtual time, of which a second is a second of work for each.
type batch struct {
	s        *simulation
	resource Resource // of which the pace is taken
	work     agenda   // by virtual time
	size     int
	virtual  float64 // the time, in nanoseconds
	since    int64   // when that was
}

// pass lets the virtual time pass until now.
func (b *batch) pass() {
	if b.size > 0 {
		b.virtual += float64(b.s.now-b.since) * b.resource.pace(b.size, 1)
	}
	b.since = b.s.now
}

// plan plans the end of what ends next, at the pace that is now. Of what was planned at
// another, finish takes no notice.
func (b *batch) plan() {
	if next := b.work.peek(); next != nil {
		left := max(0, float64(next.at)-b.virtual) / b.resource.pace(b.size, 1)
		b.s.agenda.plan(b.s.now+int64(math.Ceil(left)), finished, next.req)
	}
}

// add begins a request, which is so many nanoseconds of work.
func (b *batch) add(r *request, work int64) {
	b.pass()
	b.work.plan(int64(b.virtual)+work, finished, r)
	b.size++
	b.plan()
}

// finish ends a request if its work is done, and tells whether it is.
func (b *batch) finish(r *request) bool {
	b.pass()
	if next := b.work.peek(); next == nil || next.req != r || float64(next.at) > b.virtual+1 {
		return false
	}
	b.work.next()
	b.size--
	b.plan()
	return true
}
