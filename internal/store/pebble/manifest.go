package pebble

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// manifestFile is a manifest that is being written.
type manifestFile struct {
	diskFile
	written format.Extent
}

// isManifest reports whether a file is a manifest of the folder.
func (d *disk) isManifest(name string) bool {
	return strings.HasPrefix(d.PathBase(name), format.ManifestPrefix) && d.inDir(name)
}

func (f *manifestFile) Write(p []byte) (int, error) {
	written := f.written
	_, _ = written.Write(p) // now, as a file system may use p as it likes
	n, err := f.diskFile.Write(p)
	if err == nil {
		f.written = written
	}
	return n, err
}

// Sync repeats a sync that has failed with a copy, see renew. Only if there can be
// none, another instance must take the place of this one.
func (f *manifestFile) Sync() error {
	sync, gone := f.File.Sync, error(nil)
	err := f.disk.change(f.name, harmful, func() error {
		err := sync()
		if errors.Is(err, errGone) || errors.Is(err, os.ErrNotExist) {
			gone = err
			return nil
		}
		sync = f.renew
		return err
	})
	if gone != nil {
		f.disk.giveUp(gone)
		return nil //nolint:nilerr // that has reported it
	}
	if err == nil {
		f.disk.mark(f.name, f.written)
	}
	return err
}

// mark notes how long a manifest is. The file is not worth a failure.
func (d *disk) mark(name string, e format.Extent) {
	name = d.PathBase(name)
	_ = d.changeOnce(d.dir, harmful, func() error {
		d.files.synced(manifest{name, e})
		f, err := d.FS.Create(d.PathJoin(d.dir, format.MarkName), vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		_, err = f.Write([]byte(format.Mark(name, e)))
		return errors.Join(err, f.Close())
	})
}

// errGone is what a manifest is broken by that is not what was written to it.
var errGone = errors.New("the manifest has changed after a failed sync")

// renew puts a synced copy in the place of the manifest, after a failed sync of
// which the system has forgotten what it could not write. What is read then may
// still be what was written: the checksum tells.
func (f *manifestFile) renew() error {
	d := f.disk
	from, err := d.FS.Open(f.name)
	if err != nil {
		return err
	}
	name := d.PathJoin(d.dir, copyName)
	to, err := d.FS.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	var copied format.Extent
	_, err = io.Copy(io.MultiWriter(&copied, to), from)
	if err = errors.Join(err, from.Close()); err == nil && copied != f.written {
		err = errGone
	}
	if err == nil {
		err = to.Sync()
	}
	if err == nil {
		err = d.FS.Rename(name, f.name)
	}
	if err == nil {
		err = d.syncDir()
	}
	if err != nil {
		_ = to.Close()
		_ = d.FS.Remove(name)
		return err
	}
	_ = f.File.Close() // which nobody reads any more
	f.File = to
	return nil
}

// copyName is the file that becomes the manifest if renew succeeds. Open removes
// what a crash has left of it.
const copyName = "MANIFEST.tmp"
