package pebble

import (
	"errors"

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
//   - Who finds one that has, looks at the clock and then reads again. If it is still
//     there, it was gone when the clock was looked at. Otherwise a write may have come
//     before it was.
//   - A Transact judges at one moment all that it reads, and writes a little later.
//     Whoever might say in between that something is gone that it has found waits
//     for its end: see Store.judging.

// fetched is a value that was read.
type fetched struct {
	value   []byte
	tag     etag.Tag
	expires int64  // when it is gone, in milliseconds since 1970, 0 for never
	ttl     uint32 // the seconds until then, rounded up
}

func (f *fetched) meta() store.Meta { return store.Meta{Tag: f.tag, TTL: f.ttl} }

// secondsLeft returns in how many seconds, rounded up, a value is gone that expires in
// so many milliseconds.
func secondsLeft(left int64) uint32 { return uint32((left + 999) / 1000) }

// split separates a value from what is told of it, unless it is gone at that moment.
func (s *Store) split(kept []byte, moment func() int64) (f fetched, gone bool, _ error) {
	h, value, err := s.prefix.Split(kept)
	if err != nil {
		return f, false, s.readError(err)
	}
	if h.Expires != 0 {
		left := h.Expires - moment()
		if left <= 0 {
			return f, true, nil
		}
		f.ttl = secondsLeft(left)
	}
	f.value, f.tag, f.expires = value, h.Tag, h.Expires
	return f, false, nil
}

// Get appends the value of key to dst.
func (s *Store) Get(dst, key []byte) ([]byte, store.Meta, error) {
	value, kept, ticket, hit := s.values.Get(dst, key)
	if hit {
		return s.tell(value, len(dst), key, kept, ticket)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return dst, store.Meta{}, store.ErrClosed
	}
	f, gone, err := s.get(s.cur.db, dst, key, s.clock.read)
	if gone {
		s.judging.RLock()
		moment := s.clock.read()
		f, _, err = s.get(s.cur.db, dst, key, func() int64 { return moment })
		s.judging.RUnlock()
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
	return f.value, f.meta(), nil
}

// tell completes what is known of a value that was found in memory.
func (s *Store) tell(got []byte, head int, key []byte, kept values.Meta, t values.Ticket) ([]byte, store.Meta, error) {
	m := store.Meta{Tag: kept.Tag}
	if m.Tag.IsZero() {
		m.Tag = etag.Of(got[head:])
		s.values.SetTag(t, key, m.Tag)
	}
	if kept.Expires != 0 {
		m.TTL = secondsLeft(max(1, kept.Expires-s.clock.read()))
	}
	return got, m, nil
}

// pointRead are the options of the iterator behind Get.
var pointRead = pebble.IterOptions{KeyTypes: pebble.IterKeyTypePointsOnly, UseL6Filters: true}

// get returns what is stored now, its value appended to dst, and reports whether there
// is one that is gone.
func (s *Store) get(db pebble.Reader, dst, key []byte, moment func() int64) (fetched, bool, error) {
	it, err := db.NewIter(&pointRead)
	if err != nil {
		return fetched{}, false, s.readError(err)
	}
	f, gone, err := s.seek(it, key, moment)
	if err == nil {
		f.value = append(bufpool.Grow(dst, len(f.value)), f.value...)
	}
	if closeErr := it.Close(); closeErr != nil && (err == nil || errors.Is(err, store.ErrNotFound)) {
		return fetched{}, false, s.readError(closeErr)
	}
	return f, gone, err
}

// seek is get by an iterator, to which the value belongs.
//
// Pebble's Get never asks the filters of the last level, so it would read a
// block for a key that is not there. With Pebble's default comparer the prefix
// of a key is the key.
func (s *Store) seek(it *pebble.Iterator, key []byte, moment func() int64) (fetched, bool, error) {
	if !it.SeekPrefixGE(key) {
		if err := it.Error(); err != nil {
			return fetched{}, false, s.readError(err)
		}
		return fetched{}, false, store.ErrNotFound
	}
	kept, err := it.ValueAndErr()
	if err != nil {
		return fetched{}, false, s.readError(err)
	}
	f, gone, err := s.split(kept, moment)
	if gone {
		return fetched{}, true, store.ErrNotFound
	}
	return f, false, err
}

// view is what is stored at a moment.
type view struct {
	store  *Store
	it     *pebble.Iterator
	moment int64
	// ahead is what was found before of some keys.
	ahead map[string]ahead
}

// ahead is what was found of a key before a Transact, which has read and hashed its
// value: it holds for as long as the ticket does.
type ahead struct {
	ticket  values.Ticket
	found   bool
	tag     etag.Tag
	expires int64
}

// known returns what was found of the key before, if that still holds.
func (v *view) known(key []byte) (ahead, bool) {
	a, ok := v.ahead[string(key)]
	return a, ok && (a.expires == 0 || a.expires > v.moment) && v.store.values.Holds(a.ticket)
}

func (v *view) Get(key []byte) ([]byte, store.Meta, error) {
	f, _, err := v.store.seek(v.it, key, v.now)
	if err == nil && f.tag.IsZero() {
		if a, ok := v.known(key); ok {
			f.tag = a.tag
		}
	}
	return f.value, f.meta(), err
}

func (v *view) Stat(key []byte) (store.Meta, error) {
	if a, ok := v.known(key); ok {
		if !a.found {
			return store.Meta{}, store.ErrNotFound
		}
		return store.Meta{Tag: a.tag}, nil
	}
	f, _, err := v.store.seek(v.it, key, v.now)
	if err == nil && f.tag.IsZero() {
		f.tag = etag.Of(f.value)
	}
	return f.meta(), err
}

func (v *view) now() int64 { return v.moment }

// newView returns a view of what is stored now in the instance. It must be closed.
func (s *Store) newView(inst *instance) (*view, error) {
	v := &view{store: s, moment: s.clock.read()}
	var err error
	if v.it, err = inst.db.NewIter(&pointRead); err != nil {
		return nil, s.readError(err)
	}
	return v, nil
}

func (v *view) close() error {
	if err := v.it.Close(); err != nil {
		return v.store.readError(err)
	}
	return nil
}

// View calls read with what is stored now.
func (s *Store) View(read func(store.View) error) error {
	inst, err := s.acquire()
	if err != nil {
		return err
	}
	defer inst.release()
	s.judging.RLock()
	v, err := s.newView(inst)
	s.judging.RUnlock()
	if err != nil {
		return err
	}
	return errors.Join(read(v), v.close())
}

// Transact applies what decide returns, as one step with what decide sees.
func (s *Store) Transact(expected [][]byte, decide func(store.View) ([]store.Write, error)) (store.Commit, error) {
	if err := s.health.reason(); err != nil {
		return nil, err
	}
	before, err := s.readAhead(expected)
	if err != nil {
		return nil, err
	}
	s.order.Lock()
	defer s.order.Unlock()
	s.judging.Lock()
	defer s.judging.Unlock()
	inst, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer inst.release()
	v, err := s.newView(inst)
	if err != nil {
		return nil, err
	}
	v.ahead = before
	writes, err := decide(v)
	if err = errors.Join(err, v.close()); err != nil || len(writes) == 0 {
		return nil, err
	}
	return s.apply(inst, writes)
}

// readAhead finds out what the keys hold, while it holds up nobody. That brings their values
// into the cache of blocks as well.
func (s *Store) readAhead(keys [][]byte) (map[string]ahead, error) {
	found := make(map[string]ahead, len(keys))
	for _, key := range keys {
		found[string(key)] = ahead{ticket: s.values.Ticket(key)}
	}
	inst, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer inst.release()
	v, err := s.newView(inst)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		f, gone, err := s.seek(v.it, key, v.now)
		a := found[string(key)]
		switch {
		case err == nil:
			if a.found, a.tag, a.expires = true, f.tag, f.expires; a.tag.IsZero() {
				a.tag = etag.Of(f.value)
			}
		case gone || !errors.Is(err, store.ErrNotFound): // what is wrong is told to who wants it
			a.ticket = values.Ticket{}
		}
		found[string(key)] = a
	}
	return found, v.close()
}
