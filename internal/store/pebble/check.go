package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// ErrNoStore is returned by Check for a folder in which there is nothing of a
// store.
var ErrNoStore = errors.New("there is no store in it")

// Report is what Check has found.
type Report struct {
	// Keys is how many keys have a value, Bytes how long keys and values are
	// together. Both are 0 if there is damage.
	Keys, Bytes int64
	// Tables and TableBytes count the tables of the store, Logs the logs.
	Tables     int
	TableBytes int64
	Logs       int
	// Unused are tables in the folder that are not part of the store. A crash may
	// leave some, and the next start removes them. They are also what a MANIFEST
	// that has lost its end leaves behind.
	Unused []string
	// Damage is empty if all is well.
	Damage []Damage
}

// Damage is what is wrong with a file.
type Damage struct {
	File string // its name in the folder
	Err  error  // one line
	// Starts says that a store opens on the folder nevertheless. Some reads fail.
	Starts bool
}

// Check reads all of the store in dir and compares every checksum, without
// changing anything. Nobody may have the folder open meanwhile. The error says
// why the folder cannot be checked, as when a newer version has written it or a
// file cannot be read; damage is in the report. What a start takes for the traces
// of a crash is none: a log or a manifest whose end is cut off, beyond the mark.
func Check(ctx context.Context, dir string) (Report, error) {
	c, err := newChecker(dir)
	if err != nil {
		return Report{}, err
	}
	defer c.options.Cache.Unref()

	var db *pebble.DB
	if c.checkFormat() && c.checkValues() && c.checkManifest() {
		if db = c.open(); db != nil {
			defer func() { _ = db.Close() }()
		}
	}
	if c.unreadable != nil {
		return Report{}, c.unreadable
	}
	if err := c.checkTables(ctx, db); err != nil {
		return Report{}, err
	}
	if db != nil && len(c.report.Damage) == 0 {
		if err := c.count(ctx, db); err != nil {
			return Report{}, err
		}
	}
	if c.unreadable != nil {
		return Report{}, c.unreadable
	}
	return c.report, nil
}

// newChecker looks what is in the folder. The cache of its options has a reference.
func newChecker(dir string) (*checker, error) {
	c := &checker{dir: filepath.Clean(dir), now: time.Now().UnixMilli()}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			c.names = append(c.names, e.Name())
		}
	}
	if !slices.ContainsFunc(c.names, isOfStore) {
		return nil, ErrNoStore
	}
	o := Options{Dir: c.dir}
	o.setDefaults()
	c.options = o.pebbleOptions()
	c.options.ReadOnly = true
	c.options.FS = readOnly{vfs.Default, c}
	c.options.Logger = quiet{}
	c.options.Cache = pebble.NewCache(o.CacheBytes)
	c.options.EnsureDefaults()
	return c, nil
}

// isOfStore tells the files of a store by their names.
func isOfStore(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".log") ||
		strings.HasPrefix(name, "MANIFEST-") || strings.HasPrefix(name, "marker.")
}

type checker struct {
	dir      string
	names    []string // of the files in dir
	options  *pebble.Options
	manifest string                 // the name of the manifest in force, "" if there is none
	reading  atomic.Pointer[string] // the file but a table that Pebble has opened last
	report   Report
	prefix   format.Prefix // of the heads of values
	now      int64         // at which some have expired, in milliseconds since 1970
	// unreadable is the first error that says nothing of what is in the folder.
	unreadable error
}

// damaged notes what is wrong with a file, for which a start is refused, once for
// each file.
func (c *checker) damaged(file string, err error) { c.note(file, err, false) }

func (c *checker) note(file string, err error, starts bool) {
	if isOfSystem(err) || errors.Is(err, format.ErrNewer) {
		if c.unreadable != nil {
			return
		}
		if c.unreadable = err; !strings.Contains(err.Error(), file) {
			c.unreadable = fmt.Errorf("%s: %w", file, err)
		}
		return
	}
	same := func(d Damage) bool { return d.File == file }
	if slices.ContainsFunc(c.report.Damage, same) {
		return
	}
	line := strings.Join(strings.Fields(err.Error()), " ")
	c.report.Damage = append(c.report.Damage, Damage{file, errors.New(line), starts})
}

// checkFormat reports whether this version knows the format, as far as the folder
// says which it is.
func (c *checker) checkFormat() bool {
	for _, name := range c.names {
		if strings.HasPrefix(name, format.VersionMarker) && name != format.ValuesName {
			if _, err := format.Version(name); err != nil {
				c.damaged(name, ofFile(name, err))
				return false
			}
		}
	}
	return true
}

// checkValues reads how values are kept, and reports whether that is known. Where it
// is not said, none has a head.
func (c *checker) checkValues() bool {
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(c.dir, name)) }
	prefix, found, err := format.ReadPrefix(read)
	if err != nil {
		c.damaged(format.ValuesName, ofFile(format.ValuesName, err))
		return false
	}
	if c.prefix = prefix; !found {
		c.prefix = format.NewPrefix()
	}
	return true
}

// checkManifest finds the manifest and compares it with the mark, and the logs with
// the note of them, and reports whether they could be what was written. What lies beyond the mark is examined when
// it is opened, as at a start.
func (c *checker) checkManifest() bool {
	// A marker is named after itself, a number that grows, and what it marks.
	// os.ReadDir sorts, and the numbers have leading zeros.
	for _, name := range c.names {
		if manifest, ok := format.Marked(name); ok {
			c.manifest = manifest
		}
	}
	if c.manifest == "" {
		c.damaged(format.ManifestMarker+"*", errors.New("it is missing, which says what belongs to the store"))
		return false
	}
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(c.dir, name)) }
	content, err := read(c.manifest)
	if err != nil {
		c.damaged(c.manifest, plain(err))
		return false
	}
	if _, err := format.CompareMark(read, c.manifest, content); err != nil {
		c.damaged(c.manifest, ofFile(c.manifest, err))
		return false
	}
	err = format.CompareLogs(read, c.names, content)
	if missing, ok := errors.AsType[*format.MissingLogError](err); ok {
		c.damaged(missing.Name, errors.New("it is missing, and may have held what was acknowledged last"))
		return true // all else can be looked at
	}
	if err != nil {
		c.damaged(format.LogsName, err)
	}
	return err == nil
}

// ofFile takes the name of a file from an error that begins with it.
func ofFile(name string, err error) error {
	if errors.Is(err, format.ErrDamaged) {
		return fmt.Errorf("it %s", strings.TrimPrefix(err.Error(), name+" "))
	}
	return err
}

// plain takes from an error of a file what others say already.
func plain(err error) error {
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		return cause.Err
	}
	return err
}

// open opens the store, which reads the manifest and the logs. It returns nil if
// it cannot be opened, and has noted then why.
func (c *checker) open() *pebble.DB {
	db, err := func() (db *pebble.DB, err error) {
		defer rescue(&err) // on some kinds of damage Pebble panics
		return pebble.Open(c.dir, c.options)
	}()
	if err != nil {
		c.blame(err)
		return nil
	}
	return db
}

// rescue turns a panic into an error.
func rescue(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%v", r)
	}
}

// tableError is a line of Pebble's on a table that is missing, or has another
// size than the manifest says.
var tableError = regexp.MustCompile(`^L\d+: (\d{6,}): (.*)`)

// blame finds the files for which the store cannot be opened.
func (c *checker) blame(err error) {
	if len(c.report.Damage) > 0 || c.unreadable != nil {
		return // it is known already
	}
	found := false
	for line := range strings.Lines(err.Error()) {
		if m := tableError.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			found = true
			file := m[1] + ".sst"
			if !slices.Contains(c.names, file) {
				m[2] = "it is missing"
			}
			c.damaged(file, errors.New(m[2]))
		}
	}
	reading := c.reading.Load()
	switch {
	case found:
	case !slices.ContainsFunc(c.names, func(name string) bool {
		return strings.HasPrefix(name, format.VersionMarker) && name != format.ValuesName
	}):
		c.damaged(format.VersionMarker+"*", errors.New("it is missing, which says in which format the store is"))
	case reading != nil:
		c.damaged(*reading, err)
	default:
		c.damaged(c.manifest, err)
	}
}

// checkTables compares the checksums of the tables of the store, or of all that
// are there if it is not known which belong to it.
func (c *checker) checkTables(ctx context.Context, db *pebble.DB) error {
	var tables []string
	for _, name := range c.names {
		switch filepath.Ext(name) {
		case ".sst":
			tables = append(tables, name)
		case ".log":
			c.report.Logs++
		}
	}
	if db != nil {
		levels, err := db.SSTables()
		if err != nil {
			return fmt.Errorf("list the tables: %w", err)
		}
		var live []string
		for _, level := range levels {
			for _, t := range level {
				live = append(live, fmt.Sprintf("%s.sst", t.BackingSSTNum))
			}
		}
		for _, name := range tables {
			if !slices.Contains(live, name) {
				c.report.Unused = append(c.report.Unused, name)
			}
		}
		slices.Sort(live)
		tables = slices.Compact(live)
	}
	for _, name := range tables {
		if err := ctx.Err(); err != nil {
			return err
		}
		size, err := c.checkTable(ctx, filepath.Join(c.dir, name))
		if err != nil {
			c.note(name, plain(err), db != nil)
			continue
		}
		c.report.Tables++
		c.report.TableBytes += size
	}
	return nil
}

// checkTable compares the checksums of all blocks of a table, and returns its
// size.
func (c *checker) checkTable(ctx context.Context, path string) (size int64, err error) {
	defer rescue(&err)
	f, err := vfs.Default.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(ctx, readable, c.options.MakeReaderOptions())
	if err != nil {
		return 0, errors.Join(err, readable.Close())
	}
	return info.Size(), errors.Join(r.ValidateBlockChecksums(), r.Close())
}

// count counts the keys, having checked that the levels of the tree do not
// contradict each other.
func (c *checker) count(ctx context.Context, db *pebble.DB) error {
	err := func() (err error) {
		defer rescue(&err)
		if err := db.CheckLevels(nil); err != nil {
			return err
		}
		it, err := db.NewIter(nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, it.Close()) }()
		for it.First(); it.Valid(); it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			h, value, err := c.prefix.Split(value)
			if err != nil {
				return err
			}
			if h.Expires != 0 && h.Expires <= c.now {
				continue
			}
			c.report.Keys++
			c.report.Bytes += int64(len(it.Key()) + len(value))
			if c.report.Keys%(1<<12) == 0 && ctx.Err() != nil {
				return nil
			}
		}
		return it.Error()
	}()
	if err != nil {
		c.note(c.manifest, fmt.Errorf("the tables that it lists contradict each other: %w", err), true)
		c.report.Keys, c.report.Bytes = 0, 0
	}
	return ctx.Err()
}

// readOnly is a file system that nothing can be changed in. Logs and manifests
// are examined as a start examines them.
type readOnly struct {
	vfs.FS
	checker *checker
}

func (r readOnly) List(dir string) ([]string, error) {
	names, err := r.FS.List(dir)
	return withoutValues(names), err
}

func (r readOnly) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := r.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	base := r.PathBase(name)
	if filepath.Ext(base) != ".sst" {
		r.checker.reading.Store(&base)
	}
	if err := format.Examine(f, base); err != nil {
		r.checker.damaged(base, ofFile(base, err))
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (readOnly) refuse(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrPermission}
}

func (r readOnly) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, r.refuse("create", name)
}

func (r readOnly) Link(_, name string) error { return r.refuse("link", name) }

func (r readOnly) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, r.refuse("open", name)
}

func (r readOnly) Remove(name string) error                  { return r.refuse("remove", name) }
func (r readOnly) RemoveAll(name string) error               { return r.refuse("remove", name) }
func (r readOnly) Rename(name, _ string) error               { return r.refuse("rename", name) }
func (r readOnly) MkdirAll(name string, _ fs.FileMode) error { return r.refuse("mkdir", name) }

func (r readOnly) ReuseForWrite(name, _ string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, r.refuse("open", name)
}

// Lock does nothing: whoever calls Check sees to it that the folder is nobody's.
func (readOnly) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (r readOnly) Unwrap() vfs.FS { return r.FS }

// quiet is a logger for a store of which all that matters is returned.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
