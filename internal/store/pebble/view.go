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
}

func (v *view) Get(key []byte) ([]byte, store.Meta, error) {
	f, _, err := v.store.seek(v.it, key, v.now)
	return f.value, f.meta(), err
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
	if err := s.warm(expected); err != nil {
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
	writes, err := decide(v)
	if err = errors.Join(err, v.close()); err != nil || len(writes) == 0 {
		return nil, err
	}
	return s.apply(inst, writes)
}

// warm reads what the keys hold into the cache.
func (s *Store) warm(keys [][]byte) error {
	inst, err := s.acquire()
	if err != nil {
		return err
	}
	defer inst.release()
	v, err := s.newView(inst)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if v.it.SeekPrefixGE(key) {
			_, _ = v.it.ValueAndErr() // what is wrong is told to who wants it
		}
	}
	return v.close()
}
