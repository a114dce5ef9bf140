package dispatch

import (
	"sync/atomic"
	"time"
)

// gathering reserves several places for a task (a multi-server job), one after the other. Meanwhile the task is the
// first of the line ahead of the queue, and its places are not free. A place that is never given back must not have it
// block the others for ever. So it alternates between two phases of the same length: it gathers, or it has none and
// stands aside while others pass it, which is backfilling. The length doubles each time, up to a minute, so the task
// begins in the end if places are given back.
//
//	state     | task | has  | aside | timer             | left by
//	none      | nil  | 0    | false | stopped           | nextLocked
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
	// firstPhase is how long a task gathers places before others may pass it, the first time.
	firstPhase = 10 * time.Millisecond
	// longestPhase is what firstPhase is doubled to at most. Who needs places of others that keep them for longer may
	// have to wait until nobody else comes.
	longestPhase = time.Minute
)

// active reports whether a task has some of its places and waits for others.
func (g *gathering) active() bool { return g.task.Load() != nil }

// gatherFor gathers what is free of the places that t needs, of one resource. It returns how many those are, and whether
// they are there.
func (p *Places) gatherFor(t *Task) (need int64, enough bool) {
	g := &p.gathering
	for g.has == 0 {
		if g.of = p.freest(); g.of == nil {
			return p.need(t, p.Resources()[0]), false
		}
		g.has = g.of.claim(0, p.need(t, g.of))
	}
	need = p.need(t, g.of)
	g.has += g.of.claim(0, need-g.has)
	return need, g.has >= need
}

func (p *Places) drop() {
	if g := &p.gathering; g.has != 0 {
		g.of.free.Add(g.has)
		g.has = 0
	}
}

func (p *Places) stopGathering() {
	g := &p.gathering
	p.drop()
	g.task.Store(nil)
	g.aside = false
	g.timer.Stop()
}

func (p *Places) changePhase() {
	g := &p.gathering
	p.mu.Lock()
	if g.active() {
		if g.aside {
			g.phase = min(2*g.phase, longestPhase)
		} else {
			p.drop()
		}
		g.aside = !g.aside
		g.timer.Reset(g.phase)
	}
	p.assertLocked()
	p.mu.Unlock()
	p.grant(0)
}

// nextAsideLocked is nextLocked while others may pass the first task.
func (p *Places) nextAsideLocked(out *rejects, now int64) *Task {
	fits := func(t *Task) bool { return !t.expired(now) && p.take(t) }
	for t := p.ahead.first; t != nil; t = t.after {
		if fits(t) {
			return p.ahead.remove(t)
		}
	}
	// How many that do not fit may be passed beside the one that gathers: they leave the discipline, and so the order that
	// it would keep them in with what comes later. The longer that one waits the more, so that they hold up nobody for ever.
	lookahead := p.width() * int(p.gathering.phase/firstPhase)
	for p.anyFree() && p.ahead.len() <= lookahead {
		t := p.pop(now, out)
		if t == nil || fits(t) {
			return t
		}
		if p.mayWaitLocked(t, now, out) {
			p.ahead.push(t)
		}
	}
	return nil
}

// surplus returns the last of those that wait behind the task that gathers places.
func (p *Places) surplus(int64) (t *Task) {
	if p.gathering.active() && p.ahead.len() > 1 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := p.ahead.len() - 1; n > 0 && p.active.Load().full(n-1) {
			t = p.ahead.remove(p.ahead.last)
		}
	}
	return t
}
