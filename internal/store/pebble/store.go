// Package pebble keeps the data in an embedded Pebble store: a log-structured
// merge tree in one folder.
//
// Four things are added to Pebble.
//
// Commits are handed back before they are durable, under Always: Apply returns
// when the writes are in the log's buffer and visible, and the Commit waits for
// the sync that it shares with all others of that moment.
//
// A store whose disk fails becomes unwritable instead of ending the process.
// The first failure is seen by disk, which sits between Pebble and the file
// system, before Pebble can acknowledge anything; reads go on; and a goroutine
// tries to come back: see recovery.go.
//
// Values that are read again are cached. Package values proves that reads stay
// linearizable: Get takes a ticket before it asks Pebble, a write is a change in the
// cache from before it is applied until it is visible, and the cache is cleared when the
// folder is opened again.
//
// Writes do not stall in Pebble: Stalled tells when to hold them back, so that they wait
// where they hold up nobody. See stall.go.
package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble/format"
	"github.com/spillway-go/spillway/internal/values"
)

// Store is a store in a folder. All methods are safe for concurrent use.
type Store struct {
	opts   Options
	cache  *pebble.Cache
	values *values.Cache
	lock   io.Closer // of the folder
	files  possessions
	// signature is what the folder has of this store, see format.OpenedName.
	signature string
	health    health
	stall     stall
	// gate is halted while the store is unwritable, see pause.
	gate     gate
	removals removals
	// taken are the names of tables that replaced instances may still create.
	taken []string
	lines lines

	// appliers counts the calls of Apply between their second look at health and
	// the end of Pebble's part. Once the store is unwritable and it is zero,
	// nothing is being written.
	appliers atomic.Int64
	// dirty says, under Interval, that something was written since the last
	// sync of the log.
	dirty atomic.Bool

	// cur is the instance in use: see acquire. The recovery replaces it.
	cur    atomic.Pointer[instance]
	closed atomic.Bool

	// prefix is what the heads of values begin with in the folder.
	prefix format.Prefix
	clock  clock
	// soonest is when the first value expires of those written since the sweeper
	// asked, 0 if none was.
	soonest atomic.Int64
	// order is held for reading while writes are applied, and for writing by a
	// Transact while it decides on what it has read before and applies: so no write
	// comes in between. Nothing is read or synced under it, but Pebble may begin another
	// log: then whoever waits for order would wait for Pebble as well.
	order   sync.RWMutex
	judging judging

	commits sync.Pool // of *commit

	closing chan struct{}  // closed by Close
	loops   sync.WaitGroup // the goroutines that end with closing
	old     sync.WaitGroup // instances that were replaced and are not yet closed

	figures answer[Stats] // of Pebble
	free    answer[uint64]
}

var _ store.Store = (*Store)(nil)

// Open opens the folder, or creates it. The error is one line for people.
func Open(o Options) (*Store, error) {
	o.setDefaults()
	switch o.Sync {
	case Always, Interval, Never:
	default:
		return nil, fmt.Errorf("unknown sync mode %q, choose one of %s, %s, %s", o.Sync, Always, Interval, Never)
	}
	o.Dir = filepath.Clean(o.Dir)
	s := &Store{opts: o, closing: make(chan struct{})}
	s.health.init(o.OnWritable, o.Logger)
	s.lines.log = o.Logger
	s.stall.init(o.OnResume)
	s.commits.New = func() any { return new(commit) }
	s.clock.now = o.now
	s.clock.read()

	if err := s.claim(); err != nil {
		return nil, err
	}
	var err error
	if s.values, err = values.New(values.Options{Bytes: o.ValueBytes, Now: s.clock.read}); err != nil {
		_ = s.lock.Close()
		return nil, err
	}
	s.cache = pebble.NewCache(o.CacheBytes)
	if err := s.start(); err != nil {
		s.cache.Unref()
		s.values.Close()
		_ = s.lock.Close()
		return nil, fmt.Errorf("cannot open the data folder %s: %w%s", o.Dir, firstLine{err}, advice(err))
	}
	s.health.serve()
	s.warnExposed()

	s.loops.Go(s.recoverLoop)
	s.loops.Go(s.stallLoop)
	s.loops.Go(s.watchLoop)
	s.loops.Go(s.sweepLoop)
	if o.Sync == Interval {
		s.loops.Go(s.syncLoop)
	}
	return s, nil
}

// start opens the instance to begin with.
func (s *Store) start() error {
	found, err := s.inspect()
	if err != nil {
		return err
	}
	var m manifest
	m.name = found.manifest
	_, _ = m.synced.Write(found.content)
	s.files.found(m, found.names)
	if err := s.readValues(); err != nil {
		return err
	}
	failed, _ := s.health.watch()
	inst, err := s.openInstance(failed, found.old)
	if err != nil {
		return err
	}
	err = s.health.reason()
	if err == nil {
		err = s.sign()
	}
	if err != nil {
		_ = s.shut(inst, nil)
		return err
	}
	s.cur.Store(inst)
	return nil
}

// claim makes sure that the folder exists, is writable, and is nobody else's.
func (s *Store) claim() error {
	fs, dir := s.opts.FS, s.opts.Dir
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot create the data folder %s: %w", dir, err)
	}
	// The probe comes first, so that a lock file that cannot be written is not
	// taken for one that somebody holds.
	if err := s.probe(); err != nil {
		return fmt.Errorf("cannot write to the data folder %s: %w", dir, err)
	}
	lock, err := fs.Lock(s.path(datadir.LockName))
	if err != nil {
		return fmt.Errorf("the data folder %s is in use by another process, or opened twice by this one: %w", dir, err)
	}
	s.lock = lock
	_ = fs.Remove(s.path(copyName))
	return nil
}

// acquire returns the instance in use with a reference, which is all that whoever
// reads or writes holds meanwhile.
func (s *Store) acquire() (*instance, error) {
	for !s.closed.Load() {
		if inst := s.cur.Load(); inst.acquire() {
			return inst, nil
		} // it was replaced, or the store is closed
	}
	return nil, store.ErrClosed
}

// readError says that an error came from the disk, to the log as well.
func (s *Store) readError(err error) error {
	s.lines.readError(err)
	return fmt.Errorf("cannot read: %w", err)
}

// Apply writes, even while writes should be held back. Under Always it returns a Commit;
// otherwise the writes may be acknowledged once it returns nil.
func (s *Store) Apply(writes []store.Write) (store.Commit, error) {
	s.order.RLock()
	defer s.order.RUnlock()
	return s.apply(nil, writes)
}

// apply applies the writes to the instance in use, which must be seen if that is not
// nil.
func (s *Store) apply(seen *instance, writes []store.Write) (store.Commit, error) {
	// The first look keeps those who come later away from the count. The second
	// is the one that counts, see appliers.
	if err := s.health.reason(); err != nil {
		return nil, err
	}
	s.appliers.Add(1)
	defer s.appliers.Add(-1)
	if err := s.health.reason(); err != nil {
		return nil, err
	}
	inst, err := s.acquire()
	if err != nil {
		return nil, err
	}
	handedOn := false // to the Commit
	defer func() {
		if !handedOn { // also if Pebble panics
			inst.release()
		}
	}()
	if seen != nil && inst != seen {
		return nil, errReopened
	}
	b := inst.db.NewBatch()
	change := s.values.Change()
	defer change.End()  // of what is not visible, or not known to be
	soonest := int64(0) // when the first of the values expires
	for i := range writes {
		m := s.add(b, &writes[i])
		change.Add(writes[i].Key, m)
		if then := m.Expires; then != 0 && (soonest == 0 || then < soonest) {
			soonest = then
		}
	}
	expiring := false
	if soonest != 0 {
		// When they are visible: a pass of the sweeper that has taken the time finds them.
		defer s.expires(soonest)
		if expiring = !inst.expiring.Load(); expiring {
			noteExpiring(b)
		}
	}
	if s.opts.Sync == Always {
		if err := inst.db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
			return nil, err
		}
		if expiring {
			inst.expiring.Store(true)
		}
		keep(change, writes)
		if err := inst.broken.Load(); err != nil {
			// The error may have been this batch's, and then no sync will ever
			// come for it. Pebble keeps the batch.
			return nil, s.unknown(*err)
		}
		c := s.commits.Get().(*commit)
		c.store, c.inst, c.batch = s, inst, b
		handedOn = true
		return c, nil
	}
	if err := inst.db.Apply(b, pebble.NoSync); err != nil {
		return nil, err
	}
	keep(change, writes)
	if expiring {
		inst.expiring.Store(true)
	}
	if s.opts.Sync == Interval && !s.dirty.Load() {
		s.dirty.Store(true)
	}
	if err := inst.lost(); err != nil {
		return nil, s.unknown(err)
	}
	_ = b.Close()
	return nil, nil
}

// add adds a write to a batch, which is not indexed and takes anything that fits into
// its 4 GiB. It returns what is to be known of the value.
func (s *Store) add(b *pebble.Batch, w *store.Write) values.Meta {
	if w.Delete {
		_ = b.Delete(w.Key, nil)
		return values.Meta{}
	}
	var h format.Head
	if w.TTL != 0 {
		h.Expires = s.clock.read() + int64(w.TTL)*1000
	}
	if len(w.Value) > etag.LargeValue {
		if h.Tag = w.Tag; h.Tag.IsZero() {
			h.Tag = etag.Of(w.Value)
		}
	}
	m := values.Meta{Tag: h.Tag, Expires: h.Expires}
	head := s.prefix.Size(&h, w.Value)
	if head == 0 {
		_ = b.Set(w.Key, w.Value, nil)
		return m
	}
	op := b.SetDeferred(len(w.Key), head+len(w.Value))
	copy(op.Key, w.Key)
	s.prefix.Put(op.Value[:head:head], &h)
	copy(op.Value[head:], w.Value)
	_ = op.Finish()
	return m
}

// keep has the cache hold what was written, as far as it has held the keys: those are
// read, and others need not be. The writes are visible.
func keep(change *values.Change, writes []store.Write) {
	for i := range writes {
		if w := &writes[i]; !w.Delete && change.Known(i) {
			change.Put(i, w.Key, w.Value)
		}
	}
}

// errReopened is returned to who has looked at an instance that was replaced since.
var errReopened = fmt.Errorf("%w: it was opened again meanwhile", store.ErrUnwritable)

func (s *Store) unknown(cause error) error {
	return fmt.Errorf("%w: %w: %w", store.ErrUnknownOutcome, store.ErrUnwritable, cause)
}

// commit is a batch on its way to the disk.
type commit struct {
	store *Store
	inst  *instance
	batch *pebble.Batch
}

// Wait waits for the sync of the log.
func (c *commit) Wait() error {
	s, inst, batch := c.store, c.inst, c.batch
	*c = commit{}
	s.commits.Put(c)
	defer inst.release()
	err := batch.SyncWait()
	if err == nil {
		// A log that was lost later may have had this batch, but who knows.
		err = inst.disk.logLost()
	}
	if err != nil {
		return s.unknown(err)
	}
	return batch.Close()
}

// Range opens an iterator over a snapshot. It may stay open for long: it keeps
// the tables that it reads, and their space, from being given up.
func (s *Store) Range(start, end []byte, descending bool) (store.Iterator, error) {
	if len(end) == 0 {
		end = nil
	} else if bytes.Compare(start, end) >= 0 {
		return empty{}, nil
	}
	it, err := s.iterate(start, end, descending)
	if err != nil {
		return nil, err
	}
	return it, nil
}

func (s *Store) iterate(start, end []byte, descending bool) (*iterator, error) {
	inst, err := s.acquire()
	if err != nil {
		return nil, err
	}
	handedOn := false // to the iterator
	defer func() {
		if !handedOn {
			inst.release()
		}
	}()
	it, m, err := s.snapshot(inst, &pebble.IterOptions{LowerBound: start, UpperBound: end})
	if err != nil {
		return nil, err
	}
	handedOn = true
	return &iterator{store: s, inst: inst, it: it, descending: descending, moment: m}, nil
}

type iterator struct {
	store      *Store
	inst       *instance // nil after Close
	it         *pebble.Iterator
	descending bool
	started    bool
	moment     moment
}

func (i *iterator) Next() bool {
	first := !i.started
	i.started = true
	switch {
	case first && i.descending:
		return i.it.Last()
	case first:
		return i.it.First()
	case i.descending:
		return i.it.Prev()
	}
	return i.it.Next()
}

func (i *iterator) Entry() (key, value []byte, err error) {
	kept, err := i.it.ValueAndErr()
	if err != nil {
		return nil, nil, i.store.readError(err)
	}
	key = i.it.Key()
	f, err := i.store.split(kept)
	if err == nil && i.moment.gone(key, f.expires) {
		err = store.ErrNotFound
	}
	return key, f.value, err
}

func (i *iterator) Err() error {
	if err := i.it.Error(); err != nil {
		return i.store.readError(err)
	}
	return nil
}

func (i *iterator) Close() error {
	if i.inst == nil {
		return nil
	}
	err := i.it.Close()
	i.inst.release()
	i.inst = nil
	return err
}

// empty is an iterator over nothing.
type empty struct{}

func (empty) Next() bool                    { return false }
func (empty) Entry() (_, _ []byte, _ error) { return nil, nil, nil }
func (empty) Err() error                    { return nil }
func (empty) Close() error                  { return nil }

// Stalled reports whether writes should be held back, as flushes or compactions
// are behind. A store that cannot write holds back none: they fail at once.
func (s *Store) Stalled() bool { return s.stall.on.Load() && s.health.reason() == nil }

// Writable returns nil, or why the store cannot write. It is cheap.
func (s *Store) Writable() error { return s.health.reason() }

// syncLoop syncs the log every interval in which something was written.
func (s *Store) syncLoop() {
	t := time.NewTicker(s.opts.SyncInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if s.dirty.Swap(false) {
				_ = s.Sync() // the log is lost then
			}
		case <-s.closing:
			return
		}
	}
}

// Sync makes all acknowledged writes durable, without what else Close does. The
// error says why they may not be. It is for a stop that cannot close the store,
// since a backup that hangs still reads from it.
func (s *Store) Sync() error {
	inst, err := s.acquire()
	if err != nil {
		return err
	}
	return syncLog(inst)
}

// syncLog makes durable what was applied to an instance, and releases that.
func syncLog(inst *instance) error {
	defer inst.release()
	// Failures come through the disk. Pebble returns none.
	_ = inst.db.LogData(nil, pebble.Sync)
	return inst.lost()
}

// Checkpoint writes a consistent copy of the store to dir, which must not
// exist. Tables are linked if dir is on the same file system. The copy can be
// opened as a data folder.
func (s *Store) Checkpoint(dir string) error {
	if err := s.health.reason(); err != nil {
		return err
	}
	if err := s.checkFolder(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnwritable, err)
	}
	inst, err := s.acquire()
	if err != nil {
		return err
	}
	defer inst.release()
	var options []pebble.CheckpointOption
	if s.opts.Sync != Always { // whose log has all that was acknowledged
		options = append(options, pebble.WithFlushedWAL())
	}
	if err := inst.db.Checkpoint(dir, options...); err != nil {
		return fmt.Errorf("cannot write a checkpoint to %s: %w", dir, err)
	}
	if err := s.writeFile(dir, format.ValuesName, s.prefix.Note()); err != nil {
		return fmt.Errorf("cannot write a checkpoint to %s: %w", dir, err)
	}
	if err := inst.lost(); err != nil {
		return fmt.Errorf("cannot write a checkpoint to %s: %w: %w", dir, store.ErrUnwritable, err)
	}
	return nil
}

// closePatience is for how long Close waits for the disk: longer than all that it tries may
// take.
const closePatience = 20 * time.Second

// Close makes all acknowledged writes durable and closes the store. It must not
// be called while a Commit is not waited for or an Iterator is open, and waits for
// other calls that are under way. The error says what may have been lost, or that an
// operation of the disk hangs: the rest ends once that does.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return store.ErrClosed
	}
	s.values.Close()
	close(s.closing)
	saved, closed := make(chan struct{}), make(chan error, 1)
	go func() {
		s.save()
		close(saved)
		closed <- s.close()
	}()
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case err := <-closed:
		return err
	case <-timer.C:
	}
	lost := "acknowledged writes may be lost"
	select {
	case <-saved:
		if s.opts.Sync == Always || s.health.reason() == nil {
			lost = "all that was acknowledged is saved"
		}
	default:
	}
	return fmt.Errorf("cannot close the data folder %s: the disk has not ended an operation in %v; %s", s.opts.Dir, closePatience, lost)
}

// save makes durable what was acknowledged, whatever else hangs, unless the log is lost.
// Under Always it is durable.
func (s *Store) save() {
	if s.opts.Sync == Always || s.health.reason() != nil {
		return
	}
	inst := s.cur.Load()
	for !inst.acquire() { // it was replaced meanwhile
		inst = s.cur.Load()
	}
	_ = syncLog(inst)
}

// close is what Close does once all is saved, as far as the disk can write.
func (s *Store) close() error {
	s.loops.Wait()

	var errs []error
	settled := false
	s.watch()
	if reason := s.health.reason(); reason != nil {
		errs = append(errs, s.lastChance(reason))
	}
	var enough chan struct{} // closed when the rest is not worth waiting for
	if s.health.reason() == nil {
		// What fails from here on is no loss.
		inst := s.cur.Load()
		if err := inst.lost(); err != nil {
			errs = append(errs, s.lastChance(err))
		} else {
			// So that the next start depends on no log, and has none to replay.
			// No longer than is worth it: nothing is lost without.
			enough = make(chan struct{})
			defer time.AfterFunc(5*time.Second, func() { close(enough) }).Stop()
			settled = s.settle(inst, s.health.failures(), enough) == nil
		}
	}
	if err := s.shut(s.cur.Load(), enough); err != nil {
		errs = append(errs, fmt.Errorf("cannot close the data folder %s: %w", s.opts.Dir, err))
	}
	s.old.Wait()
	s.cache.Unref()
	s.closeNotes(settled)
	if err := s.lock.Close(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
