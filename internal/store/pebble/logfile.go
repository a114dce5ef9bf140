package pebble

import (
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// createLog makes a log. The file discards everything if the log is lost, or is lost by
// this.
func (d *disk) createLog(name string, c vfs.DiskWriteCategory) vfs.File {
	file := &logFile{disk: d, name: d.PathBase(name), fsynced: d.hooks.fsynced}
	file.try(func() (err error) {
		opened, err := d.FS.Create(name, c)
		var info vfs.FileInfo
		if err == nil {
			file.File = opened
			info, err = opened.Stat()
		}
		if err == nil {
			file.end = info.Size()
			err = d.name(name, info)
		}
		if err != nil {
			d.files.removed(d.PathBase(name))
			_ = d.FS.Remove(name) // whatever there may be of it
		}
		return err
	})
	return file
}

// name enters a log into the folder for good, and into the note of those that there
// are. Nothing is in it yet, so that a crash may leave it without its name.
func (d *disk) name(name string, log vfs.FileInfo) error {
	logs := d.files.begun(d.PathBase(name), log)
	if err := d.syncDir(); err != nil {
		return err
	}
	return noteLogs(d.FS, d.PathJoin(d.dir, format.LogsName), logs)
}

// logFile is a log. Its methods never fail: see disk. File is nil if the log was
// already lost when it was created. So is that of any file which a fenced instance
// creates, and whose log is lost as well.
type logFile struct {
	vfs.File
	disk    *disk
	name    string
	fsynced func(time.Duration) // may be nil

	// What follows belongs to the goroutine that writes the log.
	written, end int64 // where the next Write goes, and the size of the file
	synced       int64 // how much of it is on the disk for certain
}

// try runs f unless the log is lost. If f fails, it is.
func (f *logFile) try(do func() error) {
	err := f.disk.changeOnce(f.name, harmful, func() error {
		if f.disk.logLost() != nil {
			return nil //nolint:nilerr // it is known already
		}
		return do()
	})
	if err != nil {
		f.disk.loseLog(err)
	}
}

func (f *logFile) Write(p []byte) (int, error) {
	f.try(func() error {
		n, err := f.File.Write(p)
		f.written += int64(n)
		f.end = max(f.end, f.written)
		if err == nil && f.synced > 0 && f.written == f.end && f.written-f.synced <= littleAtATime {
			f.extend()
		}
		return err
	})
	return len(p), nil
}

var zeros [1 << 20]byte

// littleAtATime is what may be written between two syncs for zeros to be worth
// their while: of more than that, the data itself is what takes long.
const littleAtATime = 64 << 10

// extend writes zeros behind the end of the log. To sync what is then written
// over them is to sync data alone, and takes half as long: the file does not
// grow, and the file system has nothing to note in its journal.
//
// To whoever reads the log after a crash, zeros are its end, and only the last log may
// end so. One before it does not: it was closed, with its mark ahead of the zeros, or
// the start that found it is done with it, having flushed what was in it, if
// anything, before it began another. There are no zeros before the first sync, as
// nothing tells by then how much is written between two.
func (f *logFile) extend() {
	const page = 4 << 10
	n := f.disk.logAhead - f.end%page
	if n <= 0 {
		return
	}
	// What a failure could tell, the next Write will. It is not tried again.
	f.end += n
	if _, err := f.File.WriteAt(zeros[:n], f.end-n); err != nil {
		f.end = math.MaxInt64
	}
}

func (f *logFile) sync(do func() error) error {
	f.try(func() error {
		start := time.Now()
		err := do()
		if f.fsynced != nil && !f.disk.opening.Load() {
			f.fsynced(time.Since(start))
		}
		if err == nil {
			f.synced = f.written
		}
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
		f.disk.files.closed(f.name)
		// All that matters has been synced before, or was lost.
		_ = f.File.Close()
	}
	return nil
}

func (f *logFile) Fd() uintptr {
	if f.File == nil {
		return vfs.InvalidFd
	}
	return f.File.Fd()
}
