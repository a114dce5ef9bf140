package pebble

import (
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errFenced is what an instance gets that has been replaced.
var errFenced = errors.New("the folder belongs to another instance now")

// disk stands between one instance of Pebble and the file system. It sees each
// failure to change the data folder before Pebble does, and it does three
// things for which Pebble has no provision.
//
// It keeps failures of the log from Pebble, which would keep them to itself
// under NoSync, and panic with its locks held at the next rotation, so that
// even Close would hang. The first failure makes the log lost: from then on
// whatever Pebble writes to it, or to a log it creates later, is discarded and
// said to have succeeded. The log on disk stays a clean prefix of what was
// written, as after a power cut at that moment, and nothing may be acknowledged
// any more that relies on it: see logLost. Pebble's memtables are whole, and it
// can flush them when the disk is well again.
//
// It slows down what Pebble retries without a pause, flushes and compactions,
// while the store is unwritable: see pace.
//
// And it can be fenced. Afterwards nothing that the instance still does
// reaches the folder, so that another instance may own it while this one serves
// those who still read from it.
type disk struct {
	vfs.FS
	dir     string
	onFsync func(time.Duration)
	// failed is called with each failure to change the data folder.
	failed func(error)
	// pace is called before a table is created, and may wait.
	pace func(*disk)
	// ending is closed when the instance is about to be closed: pace must not
	// hold it up any longer.
	ending    chan struct{}
	endOnce   sync.Once
	lost      atomic.Pointer[error]
	logHandle atomic.Int32 // folder handles of the log manager; for tests

	// mu is held for reading while the disk is being changed, and for writing
	// by fence, which therefore waits for the changes under way.
	mu     sync.RWMutex
	fenced bool
}

func newDisk(fs vfs.FS, dir string, onFsync func(time.Duration), failed func(error), pace func(*disk)) *disk {
	return &disk{FS: fs, dir: dir, onFsync: onFsync, failed: failed, pace: pace, ending: make(chan struct{})}
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
	d.failed(err)
}

// fence cuts the instance off from the folder.
func (d *disk) fence() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fenced = true
	err := errFenced
	d.lost.CompareAndSwap(nil, &err)
}

func (d *disk) isFenced() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.fenced
}

// end lets go of whoever waits in pace.
func (d *disk) end() { d.endOnce.Do(func() { close(d.ending) }) }

func (d *disk) inDir(name string) bool { return d.PathDir(name) == d.dir }

func (d *disk) isLog(name string) bool { return strings.HasSuffix(name, ".log") && d.inDir(name) }

// change runs f, which changes the file of that name, unless d is fenced.
func (d *disk) change(name string, f func() error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.fenced {
		return errFenced
	}
	err := f()
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) && d.inDir(name) {
		d.failed(err)
	}
	return err
}

// log runs f, which opens a log for writing. It returns a file that discards
// everything if the log is lost, or is lost by this.
func (d *disk) log(name string, f func() (vfs.File, error)) (vfs.File, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var file vfs.File
	if d.logLost() == nil {
		var err error
		if file, err = f(); err != nil {
			_ = d.FS.Remove(name) // whatever there may be of it
			d.loseLog(err)
			file = nil
		}
	}
	return &logFile{File: file, disk: d, name: d.PathBase(name), onFsync: d.onFsync}, nil
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if d.isLog(name) {
		return d.log(name, func() (vfs.File, error) { return d.FS.Create(name, c) })
	}
	if strings.HasSuffix(name, ".sst") && d.inDir(name) {
		d.pace(d)
	}
	return d.wrap(name, func() (vfs.File, error) { return d.FS.Create(name, c) })
}

func (d *disk) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if d.isLog(newname) {
		return d.log(newname, func() (vfs.File, error) { return d.FS.ReuseForWrite(oldname, newname, c) })
	}
	return d.wrap(newname, func() (vfs.File, error) { return d.FS.ReuseForWrite(oldname, newname, c) })
}

func (d *disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return d.wrap(name, func() (vfs.File, error) { return d.FS.OpenReadWrite(name, c, opts...) })
}

func (d *disk) wrap(name string, open func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	err := d.change(name, func() (err error) {
		f, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, disk: d, name: name}, nil
}

func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	if name == d.dir && openedByLogManager() {
		d.logHandle.Add(1)
		return &logFile{File: f, disk: d, name: d.PathBase(name), onFsync: func(time.Duration) {}}, nil
	}
	// Syncing a folder changes what is in it: the name is for inDir.
	return &diskFile{File: f, disk: d, name: d.PathJoin(name, "*")}, nil
}

// openedByLogManager tells whether Pebble's log manager is the caller's caller.
// It syncs the folder through a handle of its own after it has created a log,
// and Pebble panics if that fails. All other handles may fail, and must be
// allowed to, since other files become part of the store by those syncs.
func openedByLogManager() bool {
	var pcs [8]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "/wal.(*StandaloneManager).") {
			return true
		}
		if !more {
			return false
		}
	}
}

func (d *disk) Link(oldname, newname string) error {
	return d.change(newname, func() error { return d.FS.Link(oldname, newname) })
}

func (d *disk) Remove(name string) error {
	return d.change(name, func() error { return d.FS.Remove(name) })
}

func (d *disk) RemoveAll(name string) error {
	return d.change(name, func() error { return d.FS.RemoveAll(name) })
}

func (d *disk) Rename(oldname, newname string) error {
	return d.change(newname, func() error { return d.FS.Rename(oldname, newname) })
}

func (d *disk) MkdirAll(dir string, perm os.FileMode) error {
	return d.change(dir, func() error { return d.FS.MkdirAll(dir, perm) })
}

// Lock does nothing: the Store holds the lock for its instances.
func (d *disk) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (d *disk) Unwrap() vfs.FS { return d.FS }

// diskFile is a file other than a log, or a folder.
type diskFile struct {
	vfs.File
	disk *disk
	name string
}

func (f *diskFile) Write(p []byte) (n int, err error) {
	err = f.disk.change(f.name, func() (err error) {
		n, err = f.File.Write(p)
		return err
	})
	return n, err
}

func (f *diskFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.disk.change(f.name, func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f *diskFile) Sync() error     { return f.disk.change(f.name, f.File.Sync) }
func (f *diskFile) SyncData() error { return f.disk.change(f.name, f.File.SyncData) }

func (f *diskFile) SyncTo(length int64) (full bool, err error) {
	err = f.disk.change(f.name, func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// logFile is a log, or the handle by which the log manager syncs the folder.
// Its methods never fail: see disk. File is nil if the log was already lost
// when it was created.
type logFile struct {
	vfs.File
	disk    *disk
	name    string
	onFsync func(time.Duration)
}

// try runs f unless the log is lost. If f fails, it is.
func (f *logFile) try(do func() error) {
	f.disk.mu.RLock()
	defer f.disk.mu.RUnlock()
	if f.disk.logLost() != nil {
		return
	}
	if err := do(); err != nil {
		f.disk.loseLog(err)
	}
}

func (f *logFile) Write(p []byte) (int, error) {
	f.try(func() error {
		_, err := f.File.Write(p)
		return err
	})
	return len(p), nil
}

func (f *logFile) sync(do func() error) error {
	f.try(func() error {
		start := time.Now()
		err := do()
		f.onFsync(time.Since(start))
		return err
	})
	return nil
}

func (f *logFile) Sync() error {
	return f.sync(func() error { return f.File.Sync() })
}

func (f *logFile) SyncData() error {
	return f.sync(func() error { return f.File.SyncData() })
}

func (f *logFile) SyncTo(length int64) (full bool, _ error) {
	f.try(func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, nil
}

func (f *logFile) Preallocate(offset, length int64) error {
	// It is an optimisation. What it could tell, the next Write will.
	if f.disk.logLost() == nil {
		_ = f.File.Preallocate(offset, length)
	}
	return nil
}

func (f *logFile) Close() error {
	if f.File != nil {
		// All that matters has been synced before, or was lost.
		_ = f.File.Close()
	}
	return nil
}

func (f *logFile) Stat() (vfs.FileInfo, error) {
	if f.File == nil {
		return noFileInfo{name: f.name}, nil
	}
	return f.File.Stat()
}

func (f *logFile) Fd() uintptr {
	if f.File == nil {
		return vfs.InvalidFd
	}
	return f.File.Fd()
}

// noFileInfo describes a log that is not on disk.
type noFileInfo struct {
	name string
}

func (i noFileInfo) Name() string         { return i.name }
func (noFileInfo) Size() int64            { return 0 }
func (noFileInfo) Mode() os.FileMode      { return 0o644 }
func (noFileInfo) ModTime() time.Time     { return time.Time{} }
func (noFileInfo) IsDir() bool            { return false }
func (noFileInfo) Sys() any               { return nil }
func (noFileInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
