package pebble

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The mark is a file in the folder that says how long the manifest is, and its
// checksum. Pebble takes whatever it cannot read in a manifest for its end: all
// tables that were added later are forgotten then, and removed.
//
// Each sync of the manifest rewrites the mark, without a sync of its own. So what
// it says is never too much: after a power cut it may say less than there is, or
// nothing, and the last record of the manifest is then what damage.go says of
// it. Close syncs it, and Open removes it, so that none outlives its manifest.
const markName = "MARK"

// extent is the beginning of a file.
type extent struct {
	size int64
	sum  uint32
}

func (e *extent) add(p []byte) {
	e.size += int64(len(p))
	e.sum = crc32.Update(e.sum, castagnoli, p)
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

// checkMark compares the manifest with the mark, if the mark is about it, and
// removes the mark.
func (s *Store) checkMark(manifest string) error {
	text, err := s.read(markName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var name string
	var e extent
	_, err = fmt.Sscanf(string(text), "%s %d %x", &name, &e.size, &e.sum)
	if err == nil && name == manifest && string(text) == markLine(name, e) {
		content, err := s.read(manifest)
		if err != nil {
			return err
		}
		if int64(len(content)) < e.size || crc32.Checksum(content[:e.size], castagnoli) != e.sum {
			return fmt.Errorf("%s %w: its first %d bytes are not what was written", manifest, errDamaged, e.size)
		}
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

// isManifest reports whether a file is a manifest of the folder.
func (d *disk) isManifest(name string) bool {
	return strings.HasPrefix(d.PathBase(name), manifestPrefix) && d.inDir(name)
}
