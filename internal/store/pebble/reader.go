package pebble

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// Reader reads a store that nobody has open for writing, and changes nothing. It
// holds in memory what is in the logs. Its methods are safe for concurrent use, but
// for Close.
type Reader struct {
	db    *pebble.DB
	cache *pebble.Cache
	// Fingerprint tells apart what is in the folder from what it becomes by a start
	// of a store, which begins other files, and from any other store that is put in
	// its place.
	Fingerprint string
	// Changed is when a file of the store was last changed, by the file system.
	Changed time.Time

	prefix format.Prefix // of the heads of values
	now    int64         // at which some have expired, in milliseconds since 1970

	whole uint64 // bytes in tables, as far as they are known
}

// OpenReader opens the folder for reading. Nobody may open it for writing until
// Close is called. The error is about a folder that holds no store, one that a
// start would refuse, and what cannot be read; it is one line. Damage to tables is
// found out by reading them.
func OpenReader(dir string) (*Reader, error) {
	c, err := newChecker(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{cache: c.options.Cache, now: c.now}
	if c.checkFormat() && c.checkValues() && c.checkManifest() {
		r.db, r.prefix = c.open(), c.prefix
	}
	err = c.unreadable
	if err == nil && len(c.report.Damage) > 0 {
		first := c.report.Damage[0]
		err = fmt.Errorf("%s is damaged: %w", first.File, first.Err)
	}
	if err == nil {
		err = r.identify(c)
	}
	if err == nil {
		err = r.measure()
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// identify notes what there is.
func (r *Reader) identify(c *checker) error {
	h := sha256.New()
	for _, name := range c.names { // which are sorted
		if !isOfStore(name) {
			continue
		}
		info, err := os.Stat(filepath.Join(c.dir, name))
		if err != nil {
			return err
		}
		if info.ModTime().After(r.Changed) {
			r.Changed = info.ModTime()
		}
		_, _ = fmt.Fprintln(h, name, info.Size())
		// Logs have their size before they are written. Of tables the manifest tells
		// when each was made.
		if filepath.Ext(name) == ".sst" {
			continue
		}
		if err := addFile(h, filepath.Join(c.dir, name)); err != nil {
			return err
		}
	}
	r.Fingerprint = hex.EncodeToString(h.Sum(nil))
	return nil
}

// addFile writes what is in a file to h.
func addFile(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(h, f)
	return err
}

// measure finds out how much there is.
func (r *Reader) measure() (err error) {
	defer rescue(&err)
	it, err := r.db.NewIter(nil)
	if err != nil {
		return err
	}
	if it.Last() {
		r.whole, _ = r.db.EstimateDiskUsage(nil, it.Key())
	}
	return errors.Join(it.Error(), it.Close())
}

// Share estimates which share of the store, from 0 to 1, is in keys up to that
// one, by the sizes of the tables. It reports whether that says anything: it does
// not if next to all is in logs.
func (r *Reader) Share(key []byte) (share float64, known bool) {
	if r.whole == 0 {
		return 0, false
	}
	defer func() { _ = recover() }() // a figure is not worth more
	n, err := r.db.EstimateDiskUsage(nil, key)
	return min(float64(n)/float64(r.whole), 1), err == nil
}

// After returns an iterator over the entries whose keys are greater than key, in
// ascending order, over all for nil. It passes over what had expired when the Reader
// was opened. It must be closed before the Reader is.
func (r *Reader) After(key []byte) (store.ExpiringIterator, error) {
	var options pebble.IterOptions
	if key != nil {
		options.LowerBound = append(append([]byte(nil), key...), 0) // the next one that could be
	}
	it, err := r.db.NewIter(&options)
	if err != nil {
		return nil, err
	}
	return &walk{reader: r, it: it}, nil
}

// Close closes the store.
func (r *Reader) Close() (err error) {
	if r.db != nil {
		err = r.db.Close()
	}
	r.cache.Unref()
	return err
}

// walk is an iterator over a store that may be damaged: Pebble panics on some
// damage.
type walk struct {
	reader  *Reader
	it      *pebble.Iterator
	started bool
	err     error
	// Of the entry:
	head  format.Head
	value []byte
	bad   error
}

func (w *walk) Next() bool {
	for w.step() {
		if w.read(); w.bad != nil || w.head.Expires == 0 || w.head.Expires > w.reader.now {
			return true
		}
	}
	return false
}

func (w *walk) step() (ok bool) {
	if w.err != nil {
		return false
	}
	defer rescue(&w.err)
	if !w.started {
		w.started = true
		return w.it.First()
	}
	return w.it.Next()
}

// read reads the value of the entry.
func (w *walk) read() {
	defer rescue(&w.bad)
	var kept []byte
	if kept, w.bad = w.it.ValueAndErr(); w.bad == nil {
		w.head, w.value, w.bad = w.reader.prefix.Split(kept)
	}
}

func (w *walk) Entry() (key, value []byte, err error) { return w.it.Key(), w.value, w.bad }

func (w *walk) Expires() time.Time {
	if w.head.Expires == 0 {
		return time.Time{}
	}
	return time.UnixMilli(w.head.Expires)
}

func (w *walk) Err() error {
	if w.err != nil {
		return w.err
	}
	return w.it.Error()
}

func (w *walk) Close() (err error) {
	defer rescue(&err)
	return w.it.Close()
}
