package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// errFenced is what an instance gets that wants to write a table after it has
// been fenced.
var errFenced = errors.New("the folder belongs to another instance now")

// disk stands between one instance of Pebble and the file system. It sees each
// failure to change the data folder before Pebble does, and keeps from Pebble
// those for which Pebble has no provision.
//
// The log. Under NoSync Pebble keeps a failure of the log to itself, and at the
// next rotation it panics with its locks held, so that even Close would hang. So
// the first failure makes the log lost: from then on whatever Pebble writes to
// it, or to a log it creates later, is discarded and said to have succeeded. The
// log on disk stays a prefix of what was written, as after a power cut at that
// moment, and nothing may be acknowledged any more that relies on it: see
// logLost. Pebble's memtables are whole, and it can flush them when the disk is
// well again.
//
// The manifest, and the marker that names it. After a failure there Pebble calls
// Fatalf, and if that returns it panics soon, in a goroutine of its own, since
// its tables do not match. So such a failure is not returned: the goroutine
// waits, and what can be repeated is, at the pace of the store's attempts to come
// back. A sync cannot, as the system forgets what it could not write. So a manifest
// is written anew: see manifestFile. If the folder was to be synced for a marker,
// the instance is broken, and another must take its place; that is at the start,
// and then once in 128 MB of manifest.
//
// Tables. Failures are returned, and Pebble repeats the flush or compaction,
// without a pause: see pace.
//
// The folder. Pebble has several handles of it to sync which files there are, and
// survives a failure of some of them. Their syncs are no-ops: a file is entered into the
// folder for good by its own sync or rename, a log and a marker when it is made. So a
// failure there is one of the file, of which the rules above say what becomes.
//
// A disk can be fenced. Afterwards nothing that the instance begins reaches
// the folder, and it is told that all is well, so that another instance may own
// the folder while this one serves those who still read from it. What it had begun
// may hang: see settled.
type disk struct {
	vfs.FS
	dir   string
	hooks diskHooks
	files *possessions
	// logAhead is how many zeros are written ahead of what is in a log; see
	// logFile.extend.
	logAhead int64

	// opening is set while Pebble opens the folder, and reading is the file that
	// it has opened last then.
	opening atomic.Bool
	reading atomic.Pointer[string]

	lost       atomic.Pointer[error]
	understood sync.Map // from names of tables to *atomic.Bool; see tableFile

	// fencing is closed by fence, ending by end.
	fencing, ending chan struct{}
	endOnce         sync.Once

	mu struct {
		sync.Mutex // which nobody holds while the file system works
		fenced     bool
		aborted    bool
		changes    int           // under way, but for those that do no harm: see settled
		creating   []string      // names of tables
		quiet      chan struct{} // closed when there are none; nil if nobody waits for that
	}
	// taken are the names of tables that predecessors may still create.
	taken []string
}

// diskHooks are what a disk calls. They must not call Pebble.
type diskHooks struct {
	// failed is called with each failure to change the data folder.
	failed func(error)
	// broken is called before failed if only another instance can go on.
	broken func(error)
	// pause waits for the next attempt of the store to come back, or until stop
	// is closed. It returns at once if the store can write.
	pause func(stop <-chan struct{})
	// remove is asked before a table is removed, and may keep it for later.
	remove func(name string) (later bool)
	// fsynced is called after each sync of a log, once the folder is open.
	fsynced func(time.Duration)
}

func newDisk(fs vfs.FS, dir string, files *possessions, hooks diskHooks) *disk {
	return &disk{FS: fs, dir: dir, files: files, hooks: hooks, fencing: make(chan struct{}), ending: make(chan struct{})}
}

// logLost returns nil, or why the log on disk ends before what was written. A
// write may be acknowledged only if logLost returns nil after it was applied,
// under NoSync, or after it was synced.
func (d *disk) logLost() error {
	if p := d.lost.Load(); p != nil {
		return *p
	}
	return nil
}

// loseLog reports a failure of the log. It returns after the log is marked as
// lost, and the caller then tells Pebble that all is well.
func (d *disk) loseLog(err error) {
	d.lost.CompareAndSwap(nil, &err)
	d.hooks.failed(err)
}

func (d *disk) inDir(name string) bool { return d.PathDir(name) == d.dir }

func (d *disk) isLog(name string) bool { return strings.HasSuffix(name, ".log") && d.inDir(name) }

func (d *disk) isTable(name string) bool { return strings.HasSuffix(name, ".sst") && d.inDir(name) }

// isVital says that Pebble does not survive a failure of that file. While it opens
// the folder that is any file but a table: a compaction that it has begun by then
// would go on without what it needs, and panic.
func (d *disk) isVital(name string) bool {
	if d.opening.Load() && d.inDir(name) && !d.isTable(name) {
		return true
	}
	return d.isManifest(name) || d.isMarker(name)
}

func (d *disk) isMarker(name string) bool {
	return strings.HasPrefix(d.PathBase(name), "marker.") && d.inDir(name)
}

// change runs f, which changes the file of that name. If the disk is fenced it
// does nothing, and succeeds, but not for a table: the instance would read it.
// If the file is vital f may run several times.
func (d *disk) change(name string, h harm, f func() error) error {
	for {
		err := d.changeOnce(name, h, f)
		if err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) ||
			errors.Is(err, errFenced) || !d.inDir(name) {
			return err
		}
		d.hooks.failed(err)
		if !d.isVital(name) {
			return err
		}
		d.hooks.pause(d.fencing)
	}
}

func (d *disk) changeOnce(name string, h harm, f func() error) error {
	if d.enter(name, h) {
		defer d.leave(name, h)
		return f()
	}
	if d.isTable(name) && d.refusesTables() {
		return errFenced
	}
	return nil
}

// sync is change for what cannot be repeated.
func (d *disk) sync(name string, h harm, f func() error) error {
	err := d.changeOnce(name, h, f)
	if err == nil || errors.Is(err, errFenced) || !d.inDir(name) {
		return err
	}
	if !d.isVital(name) {
		d.hooks.failed(err)
		return err
	}
	d.giveUp(err)
	return nil
}

// giveUp reports that only another instance can go on, and waits for it.
func (d *disk) giveUp(err error) {
	d.hooks.broken(err)
	d.hooks.failed(err)
	<-d.fencing
}

// Open opens a file for reading. What Pebble reads at its start it may misread:
// see format.Examine.
func (d *disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.Open(name, opts...)
	if err == nil && d.isTable(name) {
		f = d.tableFile(f, name)
	}
	if !d.opening.Load() || !d.inDir(name) {
		return f, err
	}
	base := d.PathBase(name)
	d.reading.Store(&base)
	if err != nil {
		return nil, err
	}
	if err := format.Examine(f, base); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// List is what Pebble does before it looks at other files. It takes a name that is told
// for a number that it must not use.
func (d *disk) List(dir string) ([]string, error) {
	d.reading.Store(nil)
	names, err := d.FS.List(dir)
	if dir == d.dir {
		for _, name := range d.taken {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return withoutValues(names), err
}

// withoutValues hides from Pebble the file that would be one of its markers.
func withoutValues(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return name == format.ValuesName })
}

// blame adds to an error of Pebble's Open the name of the file that it was
// reading, if the error does not say it.
func (d *disk) blame(err error) error {
	if name := d.reading.Load(); err != nil && name != nil && !strings.Contains(err.Error(), *name) {
		return fmt.Errorf("%s: %w", *name, err)
	}
	return err
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if d.isLog(name) {
		return d.createLog(name, c), nil
	}
	if d.isTable(name) {
		if err := d.pace(); err != nil {
			return nil, err
		}
	}
	if !d.isMarker(name) {
		return d.wrap(name, func() (vfs.File, error) { return d.FS.Create(name, c) })
	}
	// After a power cut there must be no marker of a manifest that is not there:
	// nothing says in which order files appear that were created between two syncs
	// of their folder.
	if err := d.sync(name, harmful, d.syncDir); err != nil {
		return nil, err
	}
	f, err := d.wrap(name, func() (vfs.File, error) {
		f, err := d.FS.Create(name, c)
		if manifest, ok := format.Marked(d.PathBase(name)); ok && err == nil {
			d.files.marked(manifest)
		}
		return f, err
	})
	if err == nil {
		err = d.sync(name, harmful, d.syncDir)
	}
	return f, err
}

func (d *disk) syncDir() error { return syncDir(d.FS, d.dir) }

func (d *disk) wrap(name string, open func() (vfs.File, error)) (vfs.File, error) {
	file := diskFile{disk: d, name: name, harm: d.harmOf(name)}
	opening := file.harm
	if d.isTable(name) {
		opening = creates
	}
	err := d.change(name, opening, func() (err error) {
		file.File, err = open()
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case file.File == nil: // fenced
		return &logFile{disk: d, name: d.PathBase(name)}, nil
	case d.isManifest(name):
		return &manifestFile{diskFile: file}, nil
	}
	return &file, nil
}

// pace is called before a table is created. While the store is unwritable it
// waits, because Pebble repeats a failed flush or compaction at once, for ever.
// A fenced instance waits for its end.
func (d *disk) pace() error {
	d.hooks.pause(d.fencing)
	if d.refusesTables() {
		<-d.ending
		return errFenced
	}
	return nil
}

func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	if name != d.dir {
		return f, nil
	}
	return entries{f}, nil
}

// entries is a handle of the folder by which nothing needs to be synced, see disk.
type entries struct{ vfs.File }

func (entries) Sync() error                { return nil }
func (entries) SyncData() error            { return nil }
func (entries) SyncTo(int64) (bool, error) { return true, nil }

func (d *disk) Remove(name string) error {
	return d.change(name, harmless, func() error {
		// Not before it is known that the disk is not fenced: a fenced instance
		// may remove what it believes to have replaced.
		if d.isTable(name) {
			d.understood.Delete(d.PathBase(name))
			if d.hooks.remove(name) {
				return nil
			}
		}
		d.files.removed(d.PathBase(name))
		return d.FS.Remove(name)
	})
}

func (d *disk) Rename(oldname, newname string) error {
	if err := d.change(newname, d.harmOf(newname), func() error { return d.FS.Rename(oldname, newname) }); err != nil || !d.inDir(newname) {
		return err
	}
	return d.sync(newname, harmful, d.syncDir)
}

func (d *disk) MkdirAll(dir string, perm os.FileMode) error {
	return d.change(dir, d.harmOf(dir), func() error { return d.FS.MkdirAll(dir, perm) })
}

// Lock does nothing: the Store holds the lock for its instances.
func (d *disk) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (d *disk) Unwrap() vfs.FS { return d.FS }

// diskFile is a file other than a log.
type diskFile struct {
	vfs.File
	disk *disk
	name string
	harm harm // of what is done to it
	// entered says that it is in the folder for good.
	entered bool
}

func (f *diskFile) Write(p []byte) (n int, err error) {
	err = f.disk.change(f.name, f.harm, func() error {
		m, err := f.File.Write(p[n:])
		n += m
		return err
	})
	if err == nil {
		n = len(p) // also if it was fenced
	}
	return n, err
}

func (f *diskFile) Sync() error { return f.sync(f.File.Sync) }

func (f *diskFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *diskFile) sync(do func() error) error {
	return f.disk.sync(f.name, f.harm, func() error {
		if err := do(); err != nil || f.entered || !f.disk.inDir(f.name) {
			return err
		}
		f.entered = true
		return f.disk.syncDir()
	})
}

func (f *diskFile) SyncTo(length int64) (full bool, err error) {
	err = f.disk.sync(f.name, f.harm, func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}
