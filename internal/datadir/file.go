package datadir

import (
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// file is a file as vfs has them, which lets nobody else make one of an os.File.
type file struct {
	*os.File
	ranges bool
}

func wrap(f *os.File) vfs.File { return &file{File: f, ranges: syncsRanges(f)} }

func (f *file) Stat() (vfs.FileInfo, error) { return describe(f.File.Stat()) }

// dir is a folder, which is there to be synced.
type dir struct{ file }

func dirOf(f *os.File) vfs.File { return &dir{file{File: f}} }

func (d *dir) SyncData() error { return d.Sync() }

type info struct{ fs.FileInfo }

func describe(i fs.FileInfo, err error) (vfs.FileInfo, error) {
	if err != nil {
		return nil, err
	}
	return info{i}, nil
}

// DeviceID says nothing: nobody asks.
func (info) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
