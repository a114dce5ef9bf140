package pebble

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/spillway-go/spillway/internal/datadir"
)

// SyncMode says when a write counts as done.
type SyncMode string

const (
	// Always acknowledges a write when the log has been synced: Apply hands
	// back a Commit to wait for. Concurrent writes share a sync.
	Always SyncMode = "always"
	// Interval acknowledges a write at once and syncs the log every
	// Options.SyncInterval in which something was written. A crash of the
	// process or the machine loses at most the writes acknowledged in that time
	// and during the sync.
	Interval SyncMode = "interval"
	// Never acknowledges a write at once and leaves syncing to memtable
	// rotation and Close. A killed process may lose acknowledged writes.
	Never SyncMode = "never"
)

// Options configure a Store.
type Options struct {
	// Dir is the data folder. It is created if it does not exist.
	Dir string
	// Sync is the sync mode. Empty means Always.
	Sync SyncMode
	// SyncInterval is the time between syncs in the mode Interval. Zero means
	// 100 ms.
	SyncInterval time.Duration
	// CacheBytes is the size of the block cache. Memtables are accounted
	// against it, and sized by it and ValueBytes. Zero means 64 MiB.
	CacheBytes int64
	// ValueBytes is the size of the cache of values in front of Pebble, on top of
	// CacheBytes. In less than values.MinBytes nothing is kept.
	ValueBytes int64
	// MaxOpenFiles is how many tables are kept open. Zero means 8192: one that is
	// used stays open then, as 10 GB are some thousand tables, and opening one
	// costs a random read of three blocks.
	MaxOpenFiles int
	// Logger receives what Pebble logs, most of it at level debug, and the
	// changes between writable and unwritable. Nil means slog.Default.
	Logger *slog.Logger
	// SweepInterval is the shortest time between two passes over the store that remove
	// what has expired. Zero means 5 s.
	SweepInterval time.Duration
	// FS is the file system. Nil means the operating system's, which holds Dir: see
	// package datadir.
	FS vfs.FS
	// OnFsync is called after each sync of the log with its duration, from the
	// goroutine that writes the log. Nil means nobody wants to know.
	OnFsync func(time.Duration)
	// OnResume is called when Stalled has become false because the store has caught
	// up. It may call nothing of the store but Stalled and Writable. Nil means nobody
	// wants to know.
	OnResume func()
	// OnWritable is called with the reason when the store becomes unwritable,
	// and with nil when it is writable again. It may call nothing of the store but
	// Stalled and Writable. Nil means nobody wants to know.
	OnWritable func(error)
	// RetryInterval is the time between two attempts to become writable again.
	// Zero means 5 s.
	RetryInterval time.Duration

	// blockSize, memTableBytes and statsPatience, for which Stats waits for Pebble, are for
	// benchmarks and tests, as is now, of the clock. Zero means the defaults below.
	blockSize     int
	now           func() (wall time.Time, passed time.Duration)
	memTableBytes uint64
	statsPatience time.Duration
}

func (o *Options) setDefaults() {
	setDefault(&o.Sync, Always)
	setDefault(&o.SyncInterval, 100*time.Millisecond)
	setDefault(&o.CacheBytes, 64<<20)
	setDefault(&o.MaxOpenFiles, 8192)
	setDefault(&o.RetryInterval, 5*time.Second)
	setDefault(&o.SweepInterval, firstSweep)
	setDefault(&o.blockSize, 8<<10)
	setDefault(&o.statsPatience, 5*time.Second)
	// So that those that wait for their flush take no more than half of both caches
	// together, whatever memory there is, nor more than that of blocks, which they are
	// accounted against: it gives up blocks for them, but not those that are being read.
	// Values that are read again have a cache that gives up nothing for them. Sized by
	// the blocks alone they would be half as large beside a cache of values, and a PUT of
	// 100 KB would cost 1.3 times as much.
	both := o.CacheBytes + min(max(0, o.ValueBytes), o.CacheBytes)
	setDefault(&o.memTableBytes, uint64(min(max(both/(2*stallMemTables), minMemTable), maxMemTable)))
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.FS == nil {
		o.FS = datadir.New(o.Dir)
	}
	if o.OnFsync == nil {
		o.OnFsync = func(time.Duration) {}
	}
	if o.OnResume == nil {
		o.OnResume = func() {}
	}
	if o.OnWritable == nil {
		o.OnWritable = func(error) {}
	}
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// A memtable is a part of the cache, within these bounds. Large memtables make
// fewer and larger L0 tables, so that fewer bytes are rewritten by compactions;
// there is nothing to gain beyond some point.
const (
	minMemTable = 1 << 20
	maxMemTable = 64 << 20
)

// Writes stall, see Store.Stalled, when as many bytes as this many full memtables
// hold wait for their flush, or when a read might have to look into this many
// sublevels of L0. Pebble's own limits are out of reach: who waits there cannot be
// woken when the disk fails, and would keep the store from ever coming back.
const (
	stallMemTables   = 4
	stallL0Sublevels = 20
	outOfReach       = 1 << 20
)

// cleaner removes what is obsolete, as Pebble's own does. Pebble would not remove
// logs but write the next ones over them, of which it keeps one more than
// MemTableStopWritesThreshold, for good: all that a backup under load holds up.
// And behind the end of such a log would be what clients once wrote. It leaves
// that for a cleaner that needs the content of files, as the one that archives
// them says of itself.
type cleaner struct {
	pebble.DeleteCleaner
	needsContent
}

// needsContent lies one embedding deeper, so that only what DeleteCleaner lacks is
// taken from it.
type needsContent struct{ pebble.ArchiveCleaner }

// pebbleOptions returns Pebble's options but for those that belong to one
// instance. o has its defaults.
func (o *Options) pebbleOptions() *pebble.Options {
	p := &pebble.Options{
		// The newest format: columnar blocks, and log chunks that say how far
		// the log had been synced, by which recovery tells a torn tail from
		// corruption.
		FormatMajorVersion: pebble.FormatNewest,

		// Pebble starts with 256 KiB and doubles, so an idle store does not hold
		// this much.
		MemTableSize:                o.memTableBytes,
		MemTableStopWritesThreshold: outOfReach,

		Cleaner: cleaner{},

		// A point read looks at every sublevel of L0, so compact it early; the
		// bloom filters make the rest bearable when writes come in bursts.
		L0CompactionThreshold: 2,
		L0StopWritesThreshold: outOfReach,
		// The first level below L0 takes a memtable or so without a further
		// level.
		LBaseMaxBytes: 64 << 20,

		// One compaction at a time falls behind a write burst even on two
		// cores, since much of it is waiting for the disk.
		CompactionConcurrencyRange: func() (int, int) { return 1, max(2, runtime.GOMAXPROCS(0)/2) },

		MaxOpenFiles: o.MaxOpenFiles,

		// Hand the log to the disk bit by bit, so that the next sync, under
		// Interval and Never, or a memtable rotation, has little left to write.
		WALBytesPerSync: 512 << 10,
	}
	for i := range p.Levels {
		l := &p.Levels[i]
		// Ten bits a key let one in a hundred reads through that find nothing in
		// a table. Also on the last level, so that a read of an absent key costs
		// no read from the disk.
		l.FilterPolicy = bloom.FilterPolicy(10)
		l.FilterType = pebble.TableFilter
		// Random reads of 100-byte values from the block cache took 2.9 us with
		// 8 KiB and 3.4 us with 4 KiB, whose index is twice as large. From the
		// system's page cache 4 to 32 KiB were equal, 14 us. Larger blocks cost
		// more memory for each value that is worth caching, and more bytes from
		// the disk.
		l.BlockSize = o.blockSize
		// Index blocks are read on the way to each data block and should stay
		// few and cached.
		l.IndexBlockSize = 64 << 10
	}
	// Tables of 2 MB in L0 would make 5,000 of 10 GB; these make 200 to 500.
	p.TargetFileSizes[0] = 8 << 20
	return p
}
