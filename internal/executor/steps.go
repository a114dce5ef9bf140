package executor

import (
	"bytes"
	"errors"
	"slices"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/store"
)

// ErrTooLarge is the error of a Batch whose results are longer than they may be. It has
// had no effect.
var ErrTooLarge = errors.New("the results are too large")

// Steps are what a Batch consists of: operations on several keys that take effect
// together or not at all. Each sees those before it.
type Steps struct {
	Ops []Step
	// Encode appends the result of the step of that index to dst.
	Encode func(dst []byte, index int, r Result) []byte
	// MaxBytes bounds what Encode appends in all.
	MaxBytes int
	// Refused are the steps whose conditions do not hold, by index, if Op.Err is
	// store.ErrCondition.
	Refused []Refusal

	marked [][]byte // keys that are being written, in order: see inFlight
}

// Step is an operation of a Batch: a Get, Put or Delete.
type Step struct {
	Kind       Kind
	Key, Value []byte
	TTL        uint32
	If         store.Condition

	tag etag.Tag // of the value that is put
}

// Result is what a step has come to.
type Result struct {
	// Found says that there is a value: that a Get has found, or that was put. Tag is
	// its validator.
	Found bool
	Tag   etag.Tag
	// Value is what a Get has found, until Encode returns, and TTL in how many seconds
	// it is gone, 0 for never.
	Value []byte
	TTL   uint32
}

// Refusal is a step whose condition does not hold.
type Refusal struct {
	Index int
	Found bool // there is a value, of that Tag
	Tag   etag.Tag
}

// Writes reports whether one of the steps writes.
func (s *Steps) Writes() bool {
	return slices.ContainsFunc(s.Ops, func(s Step) bool { return s.Kind != Get })
}

func (s *Steps) looks() bool {
	return slices.ContainsFunc(s.Ops, func(s Step) bool { return s.Kind == Get || !s.If.IsZero() })
}

func (s *Steps) appendKeys(keys [][]byte) [][]byte {
	for i := range s.Ops {
		if s.Ops[i].Kind != Get {
			keys = append(keys, s.Ops[i].Key)
		}
	}
	return keys
}

// mark notes which keys are being written at the moment.
func (s *Steps) mark(t *inFlight) {
	s.marked = s.marked[:0]
	for i := range s.Ops {
		if key := s.Ops[i].Key; t.bucket(key).Load() != 0 {
			s.marked = append(s.marked, key)
		}
	}
	slices.SortFunc(s.marked, bytes.Compare)
}

// looks reports whether what a write does depends on what is stored.
func (o *Op) looks() bool {
	if o.Kind == Batch {
		return o.Steps.looks()
	}
	return !o.If.IsZero()
}

// tag makes the validators of the values that a write puts, as far as they are stored or
// answered. It does so before anything is locked.
func (o *Op) tag() {
	o.Meta = store.Meta{}
	if o.Kind != Batch {
		if len(o.Value) > etag.LargeValue {
			o.Meta.Tag = etag.Of(o.Value)
		}
		return
	}
	for i := range o.Steps.Ops {
		if s := &o.Steps.Ops[i]; s.Kind == Put {
			s.tag = etag.Of(s.Value)
		}
	}
}

// writes returns how many keys a write may write.
func (o *Op) writes() (n int) {
	if o.Kind != Batch {
		return 1
	}
	for i := range o.Steps.Ops {
		if o.Steps.Ops[i].Kind != Get {
			n++
		}
	}
	return n
}

// looks returns what the tasks of b look at.
func (b *batch) looks() (looks []store.Look) {
	for _, t := range b.tasks {
		op := t.Payload.(*Op)
		switch {
		case op.Kind == Batch:
			looks = op.Steps.appendLooks(looks)
		case !op.If.IsZero():
			looks = append(looks, store.Look{Key: op.Key})
		}
	}
	return looks
}

// appendLooks appends what the steps look at that is stored. What a step before has
// written is not.
func (s *Steps) appendLooks(looks []store.Look) []store.Look {
	room := s.MaxBytes
	written := make(map[string]struct{})
	for i := range s.Ops {
		step := &s.Ops[i]
		if _, own := written[string(step.Key)]; !own {
			switch {
			case step.Kind == Get:
				looks = append(looks, store.Look{Key: step.Key, Room: &room})
			case !step.If.IsZero():
				looks = append(looks, store.Look{Key: step.Key})
			}
		}
		if step.Kind != Get {
			written[string(step.Key)] = struct{}{}
		}
	}
	return looks
}

// fill makes the writes of the tasks that are not readOnly already. The view may be nil if
// none looks at what is stored. Those become readOnly whose conditions do not hold, whose
// results are too large, and whose keys cannot be read.
func (b *batch) fill(view store.View) {
	p := present{view: view, writes: b.writes[:0]}
	for _, t := range b.tasks {
		op := t.Payload.(*Op)
		if op.readOnly {
			continue
		}
		if op.Kind == Batch {
			writes, head := len(p.writes), len(op.Buf)
			if op.Err = p.take(op); op.Err != nil {
				p.takeBack(writes)
				op.readOnly, op.Buf = true, op.Buf[:head]
			}
			continue
		}
		if !op.If.IsZero() {
			found, tag, err := p.stat(op.Key)
			if err == nil && !op.If.Holds(found, tag) {
				op.Meta, err = store.Meta{Tag: tag}, store.ErrCondition
			}
			if err != nil {
				op.readOnly, op.Err = true, err
				continue
			}
		}
		p.writes = append(p.writes, store.Write{Key: op.Key, Value: op.Value, Delete: op.Kind == Delete, TTL: op.TTL, Tag: op.Meta.Tag})
	}
	b.writes = p.writes
}

// manyWrites is from how many writes on they are found by a map.
const manyWrites = 32

// present is what keys hold: what is stored, and over that the writes so far.
type present struct {
	view   store.View
	writes []store.Write
	// latest is the last write of each key, and before, for each write, the one before
	// it of its key, or -1. Both are made when there are many writes and one is looked
	// for.
	latest map[string]int
	before []int
}

// find returns the last write of a key, or nil.
func (p *present) find(key []byte) *store.Write {
	if len(p.writes) < manyWrites {
		for i := len(p.writes) - 1; i >= 0; i-- {
			if bytes.Equal(p.writes[i].Key, key) {
				return &p.writes[i]
			}
		}
		return nil
	}
	if p.latest == nil {
		p.latest = make(map[string]int, 2*len(p.writes))
	}
	for i := len(p.before); i < len(p.writes); i++ {
		w := &p.writes[i]
		last, ok := p.latest[string(w.Key)]
		if !ok {
			last = -1
		}
		p.before = append(p.before, last)
		p.latest[string(w.Key)] = i
	}
	if i, ok := p.latest[string(key)]; ok {
		return &p.writes[i]
	}
	return nil
}

// takeBack takes back all writes but the first n.
func (p *present) takeBack(n int) {
	for i := len(p.before) - 1; i >= n; i-- {
		if key := string(p.writes[i].Key); p.before[i] >= 0 {
			p.latest[key] = p.before[i]
		} else {
			delete(p.latest, key)
		}
		p.before = p.before[:i]
	}
	p.writes = p.writes[:n]
}

// get returns what a key holds. The value is valid until the next call.
func (p *present) get(key []byte) (r Result, err error) {
	if w := p.find(key); w != nil {
		if w.Delete {
			return r, nil
		}
		r = Result{Found: true, Value: w.Value, TTL: w.TTL, Tag: w.Tag}
	} else {
		value, m, err := p.view.Get(key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return r, nil
		case errors.Is(err, store.ErrLeftOut):
			return r, ErrTooLarge
		case err != nil:
			return r, err
		}
		r = Result{Found: true, Value: value, TTL: m.TTL, Tag: m.Tag}
	}
	if r.Tag.IsZero() {
		r.Tag = etag.Of(r.Value)
	}
	return r, nil
}

// stat reports whether a key has a value, and its tag.
func (p *present) stat(key []byte) (found bool, tag etag.Tag, err error) {
	if w := p.find(key); w != nil {
		if tag = w.Tag; tag.IsZero() && !w.Delete {
			tag = etag.Of(w.Value)
		}
		return !w.Delete, tag, nil
	}
	m, err := p.view.Stat(key)
	if errors.Is(err, store.ErrNotFound) {
		return false, tag, nil
	}
	return err == nil, m.Tag, err
}

// take takes the steps of a Batch one after the other, and appends their results. If it
// fails, the writes that it has added are to be taken back.
func (p *present) take(op *Op) error {
	s := op.Steps
	s.Refused = s.Refused[:0]
	head := len(op.Buf)
	for i := range s.Ops {
		step := &s.Ops[i]
		var r Result
		if step.Kind == Get {
			var err error
			if r, err = p.get(step.Key); err != nil {
				return err
			}
		} else {
			if !step.If.IsZero() {
				found, tag, err := p.stat(step.Key)
				if err != nil {
					return err
				}
				if !step.If.Holds(found, tag) {
					s.Refused = append(s.Refused, Refusal{i, found, tag})
					continue
				}
			}
			w := store.Write{Key: step.Key, Value: step.Value, Delete: step.Kind == Delete, TTL: step.TTL}
			if !w.Delete {
				w.Tag = step.tag
				r = Result{Found: true, Tag: w.Tag}
			}
			p.writes = append(p.writes, w)
		}
		if op.Buf = s.Encode(op.Buf, i, r); len(op.Buf)-head > s.MaxBytes {
			return ErrTooLarge
		}
	}
	if len(s.Refused) > 0 {
		return store.ErrCondition
	}
	return nil
}
