package pebble

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/spillway-go/spillway/internal/bufpool"
	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/values"
)

// A value that has expired is gone, though it is still there for a while. Whether it is
// gone is judged at one moment, such that everybody agrees:
//
//   - Who finds a value that has not expired, and looks at the clock then, may say that
//     it was there.
//   - Who finds one that has takes a moment, and then reads again. If it is still there,
//     it was gone at that moment. Otherwise a write may have come before it was.
//   - A Transact judges at one moment all that it looks at, and its writes are visible a
//     little later. Whoever takes a moment in between must not say that something is
//     gone which it has found. Nobody waits for it: to them what it has found stays,
//     for as long as it takes.

// moment is when it is judged what is gone.
type moment struct {
	now int64 // in milliseconds since 1970
	// kept are the keys whose values are there whatever the time: a Transact has found
	// them, and is not visible yet. It is not changed any more.
	kept map[string]struct{}
}

// gone reports whether the value of a key is gone that expires then, 0 for never.
func (m *moment) gone(key []byte, expires int64) bool {
	if expires == 0 || expires > m.now {
		return false
	}
	_, kept := m.kept[string(key)]
	return !kept
}

// judging hands out moments. Its lock is held for a look at the clock, and while an
// iterator is made, which reads nothing yet.
type judging struct {
	mu   sync.Mutex
	kept map[string]struct{} // by the Transact that is being applied
}

// moment returns the present moment.
func (s *Store) moment() moment {
	s.judging.mu.Lock()
	defer s.judging.mu.Unlock()
	return moment{s.clock.read(), s.judging.kept}
}

// snapshot returns an iterator over what is stored at a moment: it sees each Transact
// that has judged at an earlier one, or finds what that has found.
func (s *Store) snapshot(inst *instance, o *pebble.IterOptions) (*pebble.Iterator, moment, error) {
	s.judging.mu.Lock()
	defer s.judging.mu.Unlock()
	it, err := inst.db.NewIter(o)
	if err != nil {
		return nil, moment{}, s.readError(err)
	}
	return it, moment{s.clock.read(), s.judging.kept}, nil
}

// fetched is a value that was read.
type fetched struct {
	value   []byte
	tag     etag.Tag
	expires int64 // when it is gone, in milliseconds since 1970, 0 for never
}

// meta returns what is told of a value that is there at that time.
func (f *fetched) meta(now int64) store.Meta {
	return store.Meta{Tag: f.tag, TTL: secondsLeft(f.expires, now)}
}

// secondsLeft returns in how many seconds, rounded up and at least 1, a value is gone that
// is there now, 0 for never.
func secondsLeft(expires, now int64) uint32 {
	if expires == 0 {
		return 0
	}
	return uint32(max(1, (expires-now+999)/1000))
}

// split separates a value from what is told of it.
func (s *Store) split(kept []byte) (fetched, error) {
	h, value, err := s.prefix.Split(kept)
	if err != nil {
		return fetched{}, s.readError(err)
	}
	return fetched{value, h.Tag, h.Expires}, nil
}

// Get appends the value of key to dst.
func (s *Store) Get(dst, key []byte) ([]byte, store.Meta, error) {
	value, kept, ticket, hit := s.values.Get(dst, key)
	if hit {
		m := s.tell(value[len(dst):], key, kept, ticket)
		return value, m, nil
	}
	inst, err := s.acquire()
	if err != nil {
		return dst, store.Meta{}, err
	}
	defer inst.release()
	f, err := s.get(inst.db, dst, key)
	now := int64(0)
	if err == nil && f.expires != 0 {
		if now = s.clock.read(); f.expires <= now {
			m := s.moment()
			now = m.now
			if f, err = s.get(inst.db, dst, key); err == nil && m.gone(key, f.expires) {
				err = store.ErrNotFound
			}
		}
	}
	if err != nil {
		return dst, store.Meta{}, err
	}
	if value := f.value[len(dst):]; s.values.Keeps(key, len(value)) {
		if f.tag.IsZero() {
			f.tag = etag.Of(value) // which is wanted in any case
		}
		s.values.Fill(ticket, key, value, values.Meta{Tag: f.tag, Expires: f.expires})
	}
	return f.value, f.meta(now), nil
}

// tell completes what is known of a value that was found in memory.
func (s *Store) tell(value, key []byte, kept values.Meta, t values.Ticket) store.Meta {
	f := fetched{tag: kept.Tag, expires: kept.Expires}
	if f.tag.IsZero() {
		f.tag = etag.Of(value)
		s.values.SetTag(t, key, f.tag)
	}
	if f.expires == 0 {
		return f.meta(0)
	}
	return f.meta(s.clock.read())
}

// pointRead are the options of the iterator behind Get.
var pointRead = pebble.IterOptions{KeyTypes: pebble.IterKeyTypePointsOnly, UseL6Filters: true}

// get returns what is stored now, expired or not, its value appended to dst.
func (s *Store) get(db pebble.Reader, dst, key []byte) (fetched, error) {
	it, err := db.NewIter(&pointRead)
	if err != nil {
		return fetched{}, s.readError(err)
	}
	f, err := s.seek(it, key)
	if err == nil {
		f.value = append(bufpool.Grow(dst, len(f.value)), f.value...)
	}
	if closeErr := it.Close(); closeErr != nil && (err == nil || errors.Is(err, store.ErrNotFound)) {
		return fetched{}, s.readError(closeErr)
	}
	return f, err
}

// seek is get by an iterator, to which the value belongs.
//
// Pebble's Get never asks the filters of the last level, so it would read a
// block for a key that is not there. With Pebble's default comparer the prefix
// of a key is the key.
func (s *Store) seek(it *pebble.Iterator, key []byte) (fetched, error) {
	if !it.SeekPrefixGE(key) {
		if err := it.Error(); err != nil {
			return fetched{}, s.readError(err)
		}
		return fetched{}, store.ErrNotFound
	}
	kept, err := it.ValueAndErr()
	if err != nil {
		return fetched{}, s.readError(err)
	}
	return s.split(kept)
}

// view is what is stored at a moment.
type view struct {
	store  *Store
	it     *pebble.Iterator
	moment moment
}

func (v *view) Get(key []byte) ([]byte, store.Meta, error) {
	f, err := v.store.seek(v.it, key)
	if err == nil && v.moment.gone(key, f.expires) {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, store.Meta{}, err
	}
	return f.value, f.meta(v.moment.now), nil
}

func (v *view) Stat(key []byte) (store.Meta, error) {
	value, m, err := v.Get(key)
	if err == nil && m.Tag.IsZero() {
		m.Tag = etag.Of(value)
	}
	return m, err
}

// View calls read with what is stored now.
func (s *Store) View(read func(store.View) error) error {
	inst, err := s.acquire()
	if err != nil {
		return err
	}
	defer inst.release()
	it, m, err := s.snapshot(inst, &pointRead)
	if err != nil {
		return err
	}
	err = read(&view{s, it, m})
	if closeErr := it.Close(); closeErr != nil {
		err = errors.Join(err, s.readError(closeErr))
	}
	return err
}

// looked is what was found of some keys, in memory.
type looked struct {
	inst   *instance // in which
	keys   map[string]*finding
	moment moment
}

// finding is what was found of a key. It holds for as long as its ticket does.
type finding struct {
	ticket  values.Ticket
	err     error // it could not be read
	found   bool
	tag     etag.Tag
	expires int64
	value   []byte // nil unless it was wanted
	leftOut bool   // it was wanted, and there was no room
}

// find returns what is there of a key, or ErrNotFound.
func (v *looked) find(key []byte) (*finding, error) {
	f := v.keys[string(key)]
	switch {
	case f == nil:
		return nil, fmt.Errorf("the key %.40q is looked at, but was not announced", key)
	case f.err != nil:
		return nil, f.err
	case !f.found || v.moment.gone(key, f.expires):
		return nil, store.ErrNotFound
	}
	return f, nil
}

func (v *looked) Get(key []byte) ([]byte, store.Meta, error) {
	f, err := v.find(key)
	switch {
	case err != nil:
		return nil, store.Meta{}, err
	case f.leftOut:
		return nil, store.Meta{}, store.ErrLeftOut
	}
	return f.value, store.Meta{Tag: f.tag, TTL: secondsLeft(f.expires, v.moment.now)}, nil
}

func (v *looked) Stat(key []byte) (store.Meta, error) {
	f, err := v.find(key)
	if err != nil {
		return store.Meta{}, err
	}
	return store.Meta{Tag: f.tag}, nil
}

// Transact applies what decide returns, as one step with what decide sees.
func (s *Store) Transact(looks []store.Look, decide func(store.View) ([]store.Write, error)) (store.Commit, error) {
	return s.transact(looks, func(v *looked) ([]store.Write, error) { return decide(v) })
}

// transact is Transact by what was read before: a read may hang, and would hold up every
// other write. So the keys are read while nobody waits, and once writes are held up, those
// that were written meanwhile are read again, if there are any, and so on. Each round
// that is for nothing means that somebody else has written.
func (s *Store) transact(looks []store.Look, decide func(*looked) ([]store.Write, error)) (store.Commit, error) {
	if err := s.health.reason(); err != nil {
		return nil, err
	}
	var v looked
	defer func() {
		if v.inst != nil {
			v.inst.release()
		}
	}()
	for {
		if err := s.gather(&v, looks); err != nil {
			return nil, err
		}
		if commit, done, err := s.attemptStep(&v, looks, decide); done {
			return commit, err
		}
	}
}

// attemptStep decides and applies, unless something was written that decide looks at.
func (s *Store) attemptStep(v *looked, looks []store.Look, decide func(*looked) ([]store.Write, error)) (_ store.Commit, done bool, _ error) {
	s.order.Lock()
	defer s.order.Unlock()
	for _, l := range looks {
		if !s.values.Holds(v.keys[string(l.Key)].ticket) {
			return nil, false, nil
		}
	}
	v.moment = s.keep(v)
	defer s.unkeep()
	writes, err := decide(v)
	if err != nil || len(writes) == 0 {
		return nil, true, err
	}
	commit, err := s.apply(v.inst, writes)
	return commit, true, err
}

// keep takes the moment of a Transact, for which it keeps what it has found until unkeep.
func (s *Store) keep(v *looked) moment {
	s.judging.mu.Lock()
	defer s.judging.mu.Unlock()
	now := s.clock.read()
	for key, f := range v.keys {
		if f.expires > now {
			if s.judging.kept == nil {
				s.judging.kept = make(map[string]struct{})
			}
			s.judging.kept[key] = struct{}{}
		}
	}
	return moment{now: now}
}

func (s *Store) unkeep() {
	s.judging.mu.Lock()
	defer s.judging.mu.Unlock()
	s.judging.kept = nil
}

// gather reads those of the keys of which nothing is known that still holds.
func (s *Store) gather(v *looked, looks []store.Look) error {
	inst, err := s.acquire()
	if err != nil {
		return err
	}
	switch v.inst {
	case nil:
		v.inst, v.keys = inst, make(map[string]*finding, len(looks))
	case inst:
		inst.release()
	default: // what was found of it holds no longer
		inst.release()
		return errReopened
	}
	if len(looks) == 0 {
		return nil
	}
	it, missing, err := s.announce(v, looks)
	if err != nil {
		return s.readError(err)
	}
	for _, l := range missing {
		s.gatherOne(it, v.keys[string(l.Key)], l)
	}
	if err := it.Close(); err != nil {
		return s.readError(err)
	}
	return nil
}

// announce takes tickets for those keys of which nothing is known that still holds, and
// returns them, with an iterator over what is stored. Writes are held up meanwhile, so that
// none is under way.
func (s *Store) announce(v *looked, looks []store.Look) (it *pebble.Iterator, missing []store.Look, err error) {
	s.order.Lock()
	defer s.order.Unlock()
	for _, l := range looks {
		f := v.keys[string(l.Key)]
		if f != nil && s.values.Holds(f.ticket) && (f.value != nil || l.Room == nil) {
			continue
		}
		if f != nil && l.Room != nil {
			*l.Room += len(f.value)
		}
		v.keys[string(l.Key)] = &finding{ticket: s.values.Ticket(l.Key)}
		missing = append(missing, l)
	}
	it, err = v.inst.db.NewIter(&pointRead)
	return it, missing, err
}

// gatherOne reads a key.
func (s *Store) gatherOne(it *pebble.Iterator, f *finding, l store.Look) {
	read, err := s.seek(it, l.Key)
	if errors.Is(err, store.ErrNotFound) {
		return
	}
	if err != nil {
		f.err = err
		return
	}
	if read.tag.IsZero() {
		read.tag = etag.Of(read.value)
	}
	f.found, f.tag, f.expires = true, read.tag, read.expires
	if l.Room == nil || f.value != nil {
		return
	}
	if f.leftOut = *l.Room < len(read.value); f.leftOut {
		return
	}
	*l.Room -= len(read.value)
	f.value = append(make([]byte, 0, max(1, len(read.value))), read.value...)
}
