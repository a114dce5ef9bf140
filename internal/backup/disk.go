package backup

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is what a store writes to while backups are made of it. It sees to two
// things that a checkpoint does not.
//
// A log is copied up to what was written when the copy began. It is being written
// meanwhile, over zeros that were put there in advance, and a copy that is made
// block by block could have zeros before what was written later. Whoever opens the
// copy would take that for damage.
//
// A copy to another file system takes long, and ends when nobody waits for it any
// more.
type disk struct {
	vfs.FS

	mu      sync.Mutex
	written map[string]*atomic.Int64 // how long logs are, by path; only those made here
	ctx     context.Context          // of the backup that is being written, or nil
	dir     string                   // and its folder
}

var _ vfs.FS = (*disk)(nil)

func newDisk(fs vfs.FS) *disk {
	return &disk{FS: fs, written: make(map[string]*atomic.Int64)}
}

// begin makes what is created in dir fail once ctx has ended, until finish.
func (d *disk) begin(ctx context.Context, dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.dir = ctx, dir
}

func (d *disk) finish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.dir = nil, ""
}

// backing returns the context of the backup that a file belongs to, or nil.
func (d *disk) backing(name string) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx != nil && d.PathDir(name) == d.dir {
		return d.ctx
	}
	return nil
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	ctx := d.backing(name)
	if ctx != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f, err := d.FS.Create(name, c)
	switch {
	case err != nil:
		return nil, err
	case ctx != nil:
		return &copied{File: f, ctx: ctx}, nil
	case strings.HasSuffix(name, ".log"):
		return d.count(name, f), nil
	}
	return f, nil
}

func (d *disk) Link(oldname, newname string) error {
	if ctx := d.backing(newname); ctx != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return d.FS.Link(oldname, newname)
}

func (d *disk) Remove(name string) error {
	err := d.FS.Remove(name)
	if err == nil {
		d.forget(name)
	}
	return err
}

func (d *disk) count(name string, f vfs.File) vfs.File {
	n := new(atomic.Int64)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.written[name] = n
	return &counted{File: f, n: n}
}

func (d *disk) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.written, name)
}

// Open opens a file for reading, a log that is being written up to here.
func (d *disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	n := d.written[name]
	d.mu.Unlock()
	if n == nil {
		return f, nil
	}
	return &prefix{File: f, left: n.Load()}, nil
}

func (d *disk) Unwrap() vfs.FS { return d.FS }

// counted is a log that is being written. WriteAt is not counted: what it writes
// is in advance.
type counted struct {
	vfs.File
	n *atomic.Int64
}

func (f *counted) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.n.Add(int64(n))
	return n, err
}

// prefix is the beginning of a file.
type prefix struct {
	vfs.File
	left int64
}

func (f *prefix) Read(p []byte) (int, error) {
	if f.left <= 0 {
		return 0, io.EOF
	}
	n, err := f.File.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	return n, err
}

// copied is a file of a backup that is being written.
type copied struct {
	vfs.File
	ctx context.Context
}

func (f *copied) Write(p []byte) (int, error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.File.Write(p)
}
