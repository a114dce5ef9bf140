package pebble

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The mark is a file in the folder that says how long the manifest is, and its
// checksum. Pebble takes whatever it cannot read in a manifest for its end: all
// tables that were added later are forgotten then, and removed.
//
// Each sync of the manifest rewrites the mark, without a sync of its own. So what
// it says is never too much: after a power cut it may say less than there is, or
// nothing, and the last record of the manifest is then what damage.go says of
// it. Close syncs it. Open removes one that is not about the manifest in force:
// there may be another manifest of that name later.
const markName = "MARK"

// extent is the beginning of a file.
type extent struct {
	size int64
	sum  uint32
}

// Write adds to the beginning. It never fails.
func (e *extent) Write(p []byte) (int, error) {
	e.size += int64(len(p))
	e.sum = crc32.Update(e.sum, castagnoli, p)
	return len(p), nil
}

func markLine(name string, e extent) string {
	line := fmt.Sprintf("%s %d %08x", name, e.size, e.sum)
	return fmt.Sprintf("%s %08x\n", line, crc32.Checksum([]byte(line), castagnoli))
}

// mark writes the mark, if it can: it is not worth a failure.
func (d *disk) mark(manifest string, e extent) {
	_ = d.changeOnce(d.dir, func() error {
		f, err := d.FS.Create(d.PathJoin(d.dir, markName), vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		_, err = f.Write([]byte(markLine(d.PathBase(manifest), e)))
		return errors.Join(err, f.Close())
	})
}

// syncMark makes the mark durable.
func (s *Store) syncMark() error {
	f, err := s.opts.FS.OpenReadWrite(s.path(markName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return s.syncDir()
}

// compareMark compares the manifest with the mark, if the mark is about it. It
// reports whether there is one that is not.
func compareMark(read func(name string) ([]byte, error), manifest string) (stale bool, _ error) {
	text, err := read(markName)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", markName, err)
	}
	var name string
	var e extent
	_, err = fmt.Sscanf(string(text), "%s %d %x", &name, &e.size, &e.sum)
	if err != nil || name != manifest || string(text) != markLine(name, e) {
		return true, nil //nolint:nilerr // a power cut may leave half of one
	}
	content, err := read(manifest)
	if err != nil {
		return false, fmt.Errorf("%s: %w", manifest, err)
	}
	if int64(len(content)) < e.size || crc32.Checksum(content[:e.size], castagnoli) != e.sum {
		return false, fmt.Errorf("%s %w: its first %d bytes are not what was written", manifest, errDamaged, e.size)
	}
	return false, nil
}

// checkMark compares the manifest with the mark, if the mark is about it, and
// otherwise removes the mark.
func (s *Store) checkMark(manifest string) error {
	stale, err := compareMark(s.read, manifest)
	if err != nil || !stale {
		return err
	}
	if err := s.opts.FS.Remove(s.path(markName)); err != nil {
		return err
	}
	return s.syncDir()
}

// read reads a file of the folder.
func (s *Store) read(name string) ([]byte, error) {
	f, err := s.opts.FS.Open(s.path(name))
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}
