package datadir

import (
	"os"

	"golang.org/x/sys/unix"
)

// Preallocate reserves space behind the end of the file, and leaves its size.
func (f *file) Preallocate(offset, length int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, offset, length)
}

func (f *file) SyncData() error { return unix.Fdatasync(int(f.Fd())) }

// SyncTo begins to write what there is up to offset, on the file systems of which it
// is known that they can, and syncs it on others.
func (f *file) SyncTo(offset int64) (full bool, err error) {
	if !f.ranges {
		return true, f.SyncData()
	}
	return false, unix.SyncFileRange(int(f.Fd()), 0, offset, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_BEFORE)
}

func (f *file) Prefetch(offset, length int64) error {
	_, _, errno := unix.Syscall(unix.SYS_READAHEAD, f.Fd(), uintptr(offset), uintptr(length))
	if errno != 0 {
		return errno
	}
	return nil
}

func syncsRanges(f *os.File) bool {
	var stat unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &stat) != nil || stat.Type != unix.EXT4_SUPER_MAGIC {
		return false
	}
	return unix.SyncFileRange(int(f.Fd()), 0, 0, 0) != unix.ENOSYS
}
