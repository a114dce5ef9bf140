// Package durable writes files that a crash leaves whole: as they were, or as they
// are to be. They are for their user alone.
package durable

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// WriteFile gives the file that content, in place of what it has. Once it returns
// nil that is durable; if it fails, or is cut off, the file has the one content or
// the other, and path + ".tmp" may be left over.
func WriteFile(path string, content []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes durable which files there are in a folder.
func SyncDir(dir string) error {
	f, err := vfs.Default.OpenDir(dir) // which knows where that is possible
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
