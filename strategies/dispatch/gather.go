package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/strategies"
)

// gathering is how a task gets several places, one after the other. While it has some of them and waits for more it
// is the first of the line ahead of the queue, and what it has is not free. So that somebody who keeps a place for
// ever does not have it keep the others from theirs, it alternates between two phases of the same length: it
// gathers, or it has none and stands aside while others pass it. The length doubles each time, up to a minute, so
// the task begins in the end if those who have places give them back.
//
//	state     | task | has  | aside | timer             | left by
//	none      | nil  | 0    | false | stopped           | start
//	gathering | set  | >= 0 | false | set, if it is of several places | enough places; its end: stop; the timer
//	aside     | set  | 0    | true  | set               | likewise
//
// All of it changes under backlog.mu.
type gathering struct {
	task  atomic.Pointer[Task] // read without the lock as well
	has   int64
	of    *Resource // whose places those are
	aside bool
	phase time.Duration
	timer *time.Timer
}

const (
	// firstPhase is how long a task gathers places before others may pass it, the
	// first time.
	firstPhase = 10 * time.Millisecond
	// longestPhase is what firstPhase is doubled to at most. Who needs places of others
	// that keep them for longer may have to wait until nobody else comes.
	longestPhase = time.Minute
)

// active reports whether a task has some of its places and waits for others.
func (g *gathering) active() bool { return g.task.Load() != nil }

// start has t keep what places it gets until they are those it needs. If others could make use of
// them, as these are several, they may pass it after a while: then change is called.
func (g *gathering) start(t *Task, need int64, change func()) {
	g.task.Store(t)
	if need == 1 {
		return
	}
	g.phase = firstPhase
	if g.timer == nil {
		g.timer = time.AfterFunc(g.phase, change)
	} else {
		g.timer.Reset(g.phase)
	}
}

// gatherFor gathers what is free of the places that t needs, of one resource. It returns how many it needs, and
// whether they are there.
func (s *places) gatherFor(t *Task) (need int64, enough bool) {
	g := &s.gathering
	for {
		if g.has == 0 {
			if g.of = s.freest(); g.of == nil {
				return s.need(t, (*s.resources.Load())[0]), false
			}
		}
		need = s.need(t, g.of)
		if g.has += g.of.claim(0, need-g.has); g.has >= need {
			return need, true
		}
		if g.has > 0 {
			return need, false
		}
	}
}

// drop frees what was gathered.
func (s *places) drop() {
	if g := &s.gathering; g.has != 0 {
		g.of.free.Add(g.has)
		g.has = 0
	}
}

// stopGathering ends the gathering, and frees what was gathered.
func (s *places) stopGathering() {
	g := &s.gathering
	s.drop()
	g.task.Store(nil)
	g.aside = false
	if g.timer != nil {
		g.timer.Stop()
	}
}

// changePhase changes from one phase to the other.
func (s *places) changePhase() {
	g := &s.gathering
	s.mu.Lock()
	if g.active() {
		if g.aside {
			g.phase = min(2*g.phase, longestPhase)
		} else {
			s.drop()
		}
		g.aside = !g.aside
		g.timer.Reset(g.phase)
	}
	s.assertLocked()
	s.mu.Unlock()
	s.grant(0)
}

// nextAsideLocked is nextLocked while others may pass the first task.
func (s *places) nextAsideLocked(out *rejects, now int64) *Task {
	fits := func(t *Task) bool { return !t.expired(now) && s.take(t) }
	for t := s.ahead.first; t != nil; t = t.after {
		if fits(t) {
			return s.ahead.remove(t)
		}
	}
	for s.anyFree() && s.ahead.len() <= s.lookahead() {
		t := s.pop(now, out)
		if t == nil || fits(t) {
			return t
		}
		s.ahead.push(t)
	}
	return nil
}

// lookahead returns how many tasks that do not fit may be passed, beside the one that
// gathers: they leave the discipline, and so the order that it would keep them in with
// what comes later. The longer that task waits the more, so that they hold up nobody for
// ever.
func (s *places) lookahead() int {
	return int(s.width.Load()) * int(s.gathering.phase/firstPhase)
}

// makeRoom sheds the last of those that wait behind the task that gathers places, if with them more tasks wait
// than may.
func (s *places) makeRoom(q *queue, _ int64) {
	for s.gathering.active() && s.ahead.len() > 1 {
		s.mu.Lock()
		var t *Task
		if n := s.ahead.len() - 1; n > 0 && q.full(n-1) {
			t = s.ahead.remove(s.ahead.last)
		}
		s.mu.Unlock()
		if t == nil {
			return
		}
		s.shed(t, strategies.ReasonFull)
	}
}
