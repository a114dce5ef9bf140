package sim

// slowdown is how many times as long each of n requests takes that a resource works at together,
// by Amdahl's law turned round: serial is the part of one's work that all others wait for. So the
// step of a model server with continuous batching grows with its batch.
func slowdown(n, serial float64) float64 { return 1 + serial*(n-1) }

// batch has the requests at which the hands of a store work together, each slowed down by all.
// Its clock is the work that each of them has been given since the start, in nanoseconds.
type batch struct {
	serial float64
	clock  float64
	since  int64                   // when the clock was set
	all    heap[float64, *request] // by the clock at which they end
	due    uint64                  // the event of the first of them, the only one that holds
}

// set sets the clock.
func (b *batch) set(now int64) {
	if n := len(b.all); n > 0 {
		b.clock += float64(now-b.since) / slowdown(float64(n), b.serial)
	}
	b.since = now
}

// add begins a request that takes so long alone.
func (b *batch) add(s *simulation, r *request, service int64) {
	b.set(s.now)
	b.all.push(entry[float64, *request]{at: b.clock + float64(service), value: r})
	b.plan(s)
}

// end takes the first request away, which has ended.
func (b *batch) end(s *simulation) {
	b.set(s.now)
	b.all.pop()
	b.plan(s)
}

// plan plans the end of the first request, in place of what was planned before.
func (b *batch) plan(s *simulation) {
	if len(b.all) == 0 {
		return
	}
	left := max(0, b.all[0].at-b.clock) * slowdown(float64(len(b.all)), b.serial)
	b.due = s.agenda.plan(s.now+int64(left), finished, b.all[0].value)
}
