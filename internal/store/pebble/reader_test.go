package pebble

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// readAll returns what a Reader reads behind a key, which must be in order.
func readAll(t *testing.T, r *Reader, after []byte) (map[string]string, error) {
	t.Helper()
	it, err := r.After(after)
	require.NoError(t, err)
	got, last := map[string]string{}, ""
	for it.Next() {
		key, value, err := it.Entry()
		if err != nil {
			require.NoError(t, it.Close())
			return nil, err
		}
		require.Greater(t, string(key), last)
		last = string(key)
		got[last] = string(value)
	}
	err = it.Err()
	require.NoError(t, it.Close())
	return got, err
}

// copyDir copies the directory of a store that may be open. Files that it has no use for
// any more may go meanwhile; then the copy is begun again.
func copyDir(t *testing.T, to, from string) {
	t.Helper()
	for {
		err := os.CopyFS(to, os.DirFS(from))
		if err == nil {
			return
		}
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoError(t, os.RemoveAll(to))
	}
}

// All is read, from tables and from the log, in order, and nothing is changed.
func TestReader(t *testing.T) {
	t.Parallel()
	want := map[string]string{"\x00": "zero", "\x00\x00": "", "\xff\xff": "last", "a\nb": "\x00"}
	for i := range 3000 {
		want[fmt.Sprintf("k%05d", i)] = strings.Repeat("v", i%200)
	}
	dir := t.TempDir()
	s := openOnly(t, Options{Dir: dir, Sync: Never})
	for k, v := range want {
		require.NoError(t, apply(s, put(k, v)))
	}
	require.NoError(t, s.Close())
	s = openOnly(t, Options{Dir: dir})
	require.NoError(t, apply(s, put("in the log", "alone")))
	want["in the log"] = "alone"
	copied := t.TempDir() // what a kill would leave
	copyDir(t, filepath.Join(copied, "data"), dir)
	require.NoError(t, s.Close())
	dir = filepath.Join(copied, "data")
	before := contents(t, dir)

	r, err := OpenReader(dir)
	require.NoError(t, err)
	got, err := readAll(t, r, nil)
	require.NoError(t, err)
	require.Equal(t, want, got)
	// Behind each key is the next one, also where one begins with the other.
	keys := slices.Sorted(maps.Keys(want))
	share := 0.0
	for i, k := range keys {
		if i > 5 && i < len(keys)-5 && i%100 != 0 {
			continue
		}
		got, err := readAll(t, r, []byte(k))
		require.NoError(t, err)
		require.Len(t, got, len(keys)-i-1)
		require.NotContains(t, got, k)
		now, known := r.Share([]byte(k))
		require.True(t, known)
		require.GreaterOrEqual(t, now, share)
		share = now
	}
	require.InDelta(t, 1, share, 1e-9)
	require.False(t, r.Changed.IsZero())
	require.NoError(t, r.Close())
	require.Equal(t, before, contents(t, dir))

	again, err := OpenReader(dir)
	require.NoError(t, err)
	require.Equal(t, r.Fingerprint, again.Fingerprint)
	require.NoError(t, again.Close())
	s = openOnly(t, Options{Dir: dir}) // which writes nothing
	require.NoError(t, s.Close())
	again, err = OpenReader(dir)
	require.NoError(t, err)
	require.NotEqual(t, r.Fingerprint, again.Fingerprint)
	require.NoError(t, again.Close())
}

// A store without tables has no share to tell, and one without anything has no keys.
func TestReader_LogsAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openOnly(t, Options{Dir: dir})
	require.NoError(t, apply(s, put("k", "v")))
	data := filepath.Join(t.TempDir(), "data")
	copyDir(t, data, dir)
	require.NoError(t, s.Close())
	r, err := OpenReader(data)
	require.NoError(t, err)
	got, err := readAll(t, r, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"k": "v"}, got)
	_, known := r.Share([]byte("k"))
	require.False(t, known)
	require.NoError(t, r.Close())

	empty := t.TempDir()
	_, err = OpenReader(empty)
	require.ErrorIs(t, err, ErrNoStore)
	_, err = OpenReader(filepath.Join(empty, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Two snapshots of a folder that a service runs on may have files of the same names
// and sizes, as a log ends in zeros. They are told apart all the same.
func TestReader_FingerprintOfSnapshots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openOnly(t, Options{Dir: dir})
	require.Eventually(t, func() bool { // what a start leaves behind goes in the background
		logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
		return err == nil && len(logs) == 1
	}, time.Minute, time.Millisecond)
	prints := map[string]bool{}
	for _, value := range []string{"one", "two"} {
		require.NoError(t, apply(s, put("k", value)))
		data := filepath.Join(t.TempDir(), "data")
		copyDir(t, data, dir)
		logs, err := filepath.Glob(filepath.Join(data, "*.log"))
		require.NoError(t, err)
		require.Len(t, logs, 1)
		require.NoError(t, os.Truncate(logs[0], 4<<20)) // however far the zeros have got
		r, err := OpenReader(data)
		require.NoError(t, err)
		got, err := readAll(t, r, nil)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"k": value}, got)
		prints[r.Fingerprint] = true
		require.NoError(t, r.Close())
	}
	require.NoError(t, s.Close())
	require.Len(t, prints, 2)
}

// What a start refuses is refused, and a damaged table ends the reading rather than
// to leave something out.
func TestReader_Damage(t *testing.T) {
	t.Parallel()
	for pattern, spoil := range map[string]func([]byte) []byte{
		"MANIFEST-*": func(b []byte) []byte { return b[:len(b)/2] },
		"*.sst":      func(b []byte) []byte { b[len(b)/4] ^= 1; return b },
	} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := openOnly(t, Options{Dir: dir, Sync: Never})
			for i := range 5000 {
				require.NoError(t, apply(s, put(fmt.Sprintf("k%05d", i*7919%5000), fmt.Sprint(i))))
			}
			require.NoError(t, s.Close())
			files, err := filepath.Glob(filepath.Join(dir, pattern))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			for _, f := range files {
				text, err := os.ReadFile(f)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(f, spoil(text), 0o600))
			}
			r, err := OpenReader(dir)
			if err == nil {
				_, err = readAll(t, r, nil)
				require.NoError(t, r.Close())
				require.Equal(t, "*.sst", pattern)
			}
			require.Error(t, err)
		})
	}
}
