package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
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

// blockSum is how many bytes the checksum has, at the end of a block.
const blockSum = 4

// tableMagic ends a table. What is read with it is the footer, which is no block:
// at first, and again if a table could not be opened or was closed meanwhile.
const tableMagic = "\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3"

func (f *tableFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if err != nil || n <= blockSum {
		return n, err
	}
	if body := p[:n-blockSum]; checksum(body) == binary.LittleEndian.Uint32(p[len(body):]) {
		if !f.understood.Load() {
			f.understood.Store(true)
		}
	} else if f.understood.Load() && !bytes.HasSuffix(p[:n], []byte(tableMagic)) {
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
	return fmt.Sprintf("%s %v: the checksum of the block at byte %d does not match", e.name, errDamaged, e.at)
}

// Is makes it a corruption to Pebble.
func (e *blockError) Is(target error) bool {
	return target == errDamaged || target == pebble.ErrCorruption
}
