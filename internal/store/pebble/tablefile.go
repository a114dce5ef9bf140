package pebble

import (
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// tableFile is a table that is read. It looks at the checksum of each block before
// Pebble does, which tries for one that does not match whether a single bit has
// been flipped, for each bit of the first 40 KiB. With a value of 1 MiB that takes a
// worker ten seconds or more, at every read.
type tableFile struct {
	vfs.File
	name string
	// understood is set once a read was of a block with a checksum as expected. All
	// files of a table share it.
	understood *atomic.Bool
}

func (d *disk) tableFile(f vfs.File, name string) vfs.File {
	name = d.PathBase(name)
	understood, _ := d.understood.LoadOrStore(name, new(atomic.Bool))
	return &tableFile{f, name, understood.(*atomic.Bool)}
}

func (f *tableFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if err != nil {
		return n, err
	}
	if format.IsBlock(p[:n]) {
		if !f.understood.Load() {
			f.understood.Store(true)
		}
	} else if f.understood.Load() && !format.MayBeOther(p[:n]) {
		return n, &blockError{f.name, off}
	}
	return n, nil
}

// blockError says that a block is not what was written.
type blockError struct {
	name string
	at   int64
}

func (e *blockError) Error() string {
	return fmt.Sprintf("%s %v: the checksum of the block at byte %d does not match", e.name, format.ErrDamaged, e.at)
}

// Is makes it a corruption to Pebble.
func (e *blockError) Is(target error) bool {
	return target == format.ErrDamaged || target == pebble.ErrCorruption
}
