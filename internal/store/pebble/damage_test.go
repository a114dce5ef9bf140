package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/store/pebble/format"
)

// content returns what a file of the folder "d" holds.
func content(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(path.Join("d", name))
	require.NoError(t, err)
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return b
}

// overwrite replaces what a file of the folder "d" holds.
func overwrite(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(path.Join("d", name), vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write(b)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// named returns the files of the folder "d" whose name begins and ends so.
func named(t *testing.T, fs vfs.FS, prefix, suffix string) (names []string) {
	t.Helper()
	all, err := fs.List("d")
	require.NoError(t, err)
	for _, name := range all {
		if strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// copyOf returns a copy of the file system as it is, as a killed process leaves
// it.
func copyOf(fs *vfs.MemFS) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// killedAtRest returns a copy of the file system of an open store in which the mark
// speaks of all that is in the manifest: no flush or compaction is writing its result.
func killedAtRest(t *testing.T, fs *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	for {
		killed := copyOf(fs)
		manifests := named(t, killed, format.ManifestPrefix, "")
		name := manifests[len(manifests)-1]
		var all format.Extent
		_, _ = all.Write(content(t, killed, name))
		if string(content(t, killed, format.MarkName)) == format.Mark(name, all) {
			return killed
		}
		runtime.Gosched()
	}
}

// TestOpen_FlippedLog flips bits of the log that a killed process leaves behind.
// The start is refused, or nothing is missing but the end of what was written:
// the records of the last three syncs, which no later record can vouch for.
func TestOpen_FlippedLog(t *testing.T) {
	t.Parallel()
	const unproven = 3
	flips := 60
	if testing.Short() {
		flips = 15
	}
	for _, row := range []struct {
		name           string
		records, value int
	}{
		{"records within a block", 100, 100},
		{"records of a tenth of a block", 60, 3000},
		{"records of several blocks", 20, 40_000},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewCrashableMem()
			s := openOnly(t, Options{Dir: "d", FS: mem, memTableBytes: 64 << 20})
			// Of a log that is so long that the records are in one.
			require.NoError(t, apply(s, put("first", strings.Repeat("v", 2<<20))))
			require.NoError(t, s.cur.Load().db.Flush())
			value := func(i int) string { return strings.Repeat(fmt.Sprint(i, "."), row.value)[:row.value] }
			ends := make([]int, row.records) // of the log after each
			logs := named(t, mem, "", ".log")
			log := logs[len(logs)-1]
			for i := range row.records {
				require.NoError(t, apply(s, put(fmt.Sprint(i), value(i))))
				ends[i] = len(bytes.TrimRight(content(t, mem, log), "\x00"))
			}
			killed := copyOf(mem)
			require.NoError(t, s.Close())
			whole := content(t, killed, log)
			r := rand.New(rand.NewPCG(1, uint64(row.value)))
			refused, lost := 0, 0
			for range flips {
				at, mask := r.IntN(ends[row.records-1]), byte(1)<<r.IntN(8)
				if r.IntN(2) == 0 {
					mask = byte(1 + r.IntN(255))
				}
				hit := 0
				for ends[hit] <= at {
					hit++
				}
				damaged := bytes.Clone(whole)
				damaged[at] ^= mask
				fs := copyOf(killed)
				overwrite(t, fs, log, damaged)
				s, err := Open(Options{Dir: "d", FS: fs, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					requireOneLine(t, err, log, "restore a backup")
					refused++
					continue
				}
				for i := range row.records {
					got := get(t, s, fmt.Sprint(i))
					if got == "absent" {
						require.GreaterOrEqual(t, hit, row.records-unproven, "byte %d of %d, mask %#x: lost %d without a word", at, len(whole), mask, i)
						lost++
						break
					}
					require.Equal(t, value(i), got)
				}
				require.NoError(t, s.Close())
			}
			t.Logf("%d refused, %d lost the end", refused, lost)
			require.NotZero(t, refused)
		})
	}
}

// TestOpen_FlippedManifestOrTable flips bits of tables and of the manifest, of a
// store that was closed and of one that was killed. The start is refused, or
// every read has the true value or an error.
func TestOpen_FlippedManifestOrTable(t *testing.T) {
	t.Parallel()
	const records = 2000
	value := func(i int) string { return strings.Repeat(fmt.Sprint(i, "."), 100) }
	mem := vfs.NewCrashableMem()
	s := openOnly(t, Options{Dir: "d", FS: mem, memTableBytes: 64 << 10})
	for i := range records {
		require.NoError(t, apply(s, put(fmt.Sprint(i%1000), value(i))))
	}
	// So that no table is there that nothing needs any more: a flip of one is not noticed.
	require.NoError(t, s.cur.Load().db.Compact(t.Context(), nil, []byte("z"), false))
	require.Eventually(t, func() bool {
		var needed uint64
		for _, level := range s.Stats().Levels {
			needed += level.Files
		}
		return uint64(len(named(t, mem, "", ".sst"))) == needed
	}, time.Minute, time.Millisecond)
	d, err := mem.OpenDir("d")
	require.NoError(t, err)
	require.NoError(t, d.Sync()) // a copy has what was removed since the last one
	require.NoError(t, d.Close())
	killed := killedAtRest(t, mem)
	require.NoError(t, s.Close())
	for _, row := range []struct {
		name           string
		fs             *vfs.MemFS
		prefix, suffix string
	}{
		{"the manifest of a closed store", mem, "MANIFEST-", ""},
		{"the manifest of a killed store", killed, "MANIFEST-", ""},
		{"a table of a closed store", mem, "", ".sst"},
		{"a table of a killed store", killed, "", ".sst"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(2, 2))
			refused, failed := 0, 0
			for range 10 {
				fs := copyOf(row.fs)
				names := named(t, fs, row.prefix, row.suffix)
				name := names[r.IntN(len(names))]
				damaged := content(t, fs, name)
				if len(damaged) == 0 {
					continue // a table that was just begun
				}
				at := r.IntN(len(damaged))
				damaged[at] ^= byte(1 + r.IntN(255))
				overwrite(t, fs, name, damaged)
				s, err := Open(Options{Dir: "d", FS: fs, CacheBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					requireOneLine(t, err, name, "restore a backup")
					refused++
					continue
				}
				// Not all, since Pebble looks for the flipped bit at each read.
				for i := at % 20; i < 1000; i += 20 {
					got, _, err := s.Get(nil, []byte(fmt.Sprint(i)))
					if err != nil {
						require.NotErrorIs(t, err, store.ErrNotFound, "%s, byte %d: %d is missing", name, at, i)
						failed++
						continue
					}
					require.Equal(t, value(1000+i), string(got), "%s, byte %d", name, at)
				}
				_ = s.Close()
			}
			t.Logf("%d starts refused, %d reads failed", refused, failed)
			require.NotZero(t, refused+failed)
		})
	}
}

// A manifest that has lost its end is not taken for an older one.
func TestOpen_TruncatedManifest(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	s := openOnly(t, Options{Dir: "d", FS: mem})
	for i := range 5 {
		require.NoError(t, apply(s, put(fmt.Sprint(i), "v")))
		require.NoError(t, s.cur.Load().db.Flush())
	}
	killed := killedAtRest(t, mem)
	require.NoError(t, s.Close())
	for name, from := range map[string]*vfs.MemFS{"closed": mem, "killed": killed} {
		manifest := named(t, from, format.ManifestPrefix, "")[0]
		whole := content(t, from, manifest)
		for size := 0; size < len(whole); size += 25 {
			fs := copyOf(from)
			overwrite(t, fs, manifest, whole[:size])
			_, err := Open(Options{Dir: "d", FS: fs, Logger: slog.New(slog.DiscardHandler)})
			requireOneLine(t, err, manifest, format.ErrDamaged.Error())
		}
		fs := copyOf(from)
		s, err := Open(Options{Dir: "d", FS: fs, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err, name)
		require.NoError(t, s.Close())
	}
}

// hostile returns a value full of what would be proof of damage if it were a part
// of one of the next logs, or of a manifest.
func hostile(log uint32, size int) string {
	var b []byte
	chunk := func(log bool, kind byte, number uint32, synced uint64) {
		at := len(b)
		b = append(b, 0, 0, 0, 0, 0, 0, kind)
		if log {
			b = binary.LittleEndian.AppendUint32(b, number)
			b = binary.LittleEndian.AppendUint64(b, synced)
		}
		binary.LittleEndian.PutUint32(b[at:], format.Checksum(b[at+6:]))
	}
	for len(b) < size {
		chunk(false, format.ManifestFull, 0, 0)
		for n := range uint32(50) {
			for synced := range uint64(3) {
				chunk(true, format.LogFull, log+n, synced<<14)
			}
		}
	}
	return string(b[:size])
}

// What clients send proves nothing, whatever it is, wherever the log ends behind
// it, and whatever the power has left of it.
func TestOpen_HostileValues(t *testing.T) {
	t.Parallel()
	every := 15
	if testing.Short() {
		every = 60
	}
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewCrashableMem()
			o := Options{Dir: "d", FS: mem, Sync: mode, memTableBytes: 64 << 10, Logger: slog.New(slog.DiscardHandler)}
			s := openOnly(t, o)
			r := rand.New(rand.NewPCG(4, 4))
			for i := range 300 {
				logs := named(t, mem, "", ".log")
				var number uint32
				_, err := fmt.Sscanf(logs[len(logs)-1], "%d.log", &number)
				require.NoError(t, err)
				value := hostile(number, 1+r.IntN(12_000))
				// As a key it is in the manifest, too.
				require.NoError(t, apply(s, put(fmt.Sprint(i%7), value), put(hostile(number, 1+r.IntN(900)), "v")))
				if i%every == 0 {
					for _, percent := range []int{10, 50, 90, 100} {
						o.FS = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: r})
						left, err := Open(o)
						require.NoError(t, err, "after write %d, with %d%% of what was not synced", i, percent)
						require.NoError(t, left.Close())
					}
				}
			}
			require.NoError(t, s.Close())
		})
	}
}

// TestExaminer_HostileTail cuts a log off within each record, of which a power cut
// has left some sectors.
func TestExaminer_HostileTail(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	s := openOnly(t, Options{Dir: "d", FS: mem})
	logs := named(t, mem, "", ".log")
	log := logs[len(logs)-1]
	var number uint32
	_, err := fmt.Sscanf(log, "%d.log", &number)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(5, 5))
	ends := []int{len(bytes.TrimRight(content(t, mem, log), "\x00"))}
	for i := range 40 {
		require.NoError(t, apply(s, put(fmt.Sprint(i), hostile(number, 1+r.IntN(20_000)))))
		ends = append(ends, len(bytes.TrimRight(content(t, mem, log), "\x00")))
	}
	whole := content(t, mem, log)
	require.NoError(t, s.Close())
	require.NoError(t, examineLog(t, whole, number))
	const sector = 512
	for i, end := range ends[1:] {
		for range 20 {
			torn := bytes.Clone(whole[:end])
			for at := ends[i] / sector * sector; at < end; at += sector {
				if r.IntN(2) == 0 {
					clear(torn[max(at, ends[i]):min(at+sector, end)])
				}
			}
			require.NoError(t, examineLog(t, torn, number), "record %d, from %d to %d", i, ends[i], end)
		}
	}
}

// examineLog examines what a log of that number holds.
func examineLog(t *testing.T, content []byte, number uint32) error {
	t.Helper()
	name := fmt.Sprintf("%06d.log", number)
	log := vfs.NewMemFile(content)
	defer func() { require.NoError(t, log.Close()) }()
	return format.Examine(log, name)
}

// Zeros and what another log has left are an end, not damage.
func TestExaminer_TornTail(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	s := openOnly(t, Options{Dir: "d", FS: mem})
	for i := range 300 {
		require.NoError(t, apply(s, put(fmt.Sprint(i), strings.Repeat("v", 500))))
	}
	logs := named(t, mem, "", ".log")
	log := logs[len(logs)-1]
	whole := content(t, mem, log)
	whole = whole[:len(bytes.TrimRight(whole, "\x00"))+format.BlockBytes]
	require.NoError(t, s.Close())
	examined := func(log uint32, b []byte) error { return examineLog(t, b, log) }
	var number uint32
	_, err := fmt.Sscanf(log, "%d.log", &number)
	require.NoError(t, err)
	require.NoError(t, examined(number, whole))
	require.NoError(t, examined(number+7, whole), "another log")
	r := rand.New(rand.NewPCG(3, 3))
	for range 50 {
		cut := r.IntN(len(whole))
		require.NoError(t, examined(number, whole[:cut]), "cut at %d", cut)
		zeroed := bytes.Clone(whole)
		clear(zeroed[cut:])
		require.NoError(t, examined(number, zeroed), "zeros from %d", cut)
	}
	require.ErrorIs(t, examined(number, append([]byte{1}, whole[1:]...)), format.ErrDamaged)
	require.ErrorIs(t, errors.Unwrap(examined(number, append([]byte{1}, whole[1:]...))), format.ErrDamaged)
}
