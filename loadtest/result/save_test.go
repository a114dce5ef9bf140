package result

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/profiles"
)

func TestResult_IsTheSameOnceLoaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "result.json")
	r := someResult()
	capacity := 256
	r.URL, r.Command, r.Started, r.Capacity, r.Strategy = "http://127.0.0.1:1", "loadtest run <&>", time.Unix(1, 2).UTC(), &capacity, "fifo"
	r.Timeline = []Interval{{Offered: 1, P99: 2}}
	r.CPUByPart = profiles.Costs{profiles.GC: 1}
	r.Profiles = map[profiles.Kind][]byte{profiles.CPU: []byte("cpu"), profiles.Block: []byte("block")}
	require.NoError(t, r.Save(path))
	require.Equal(t, map[profiles.Kind]string{profiles.CPU: "result.cpu.pb.gz", profiles.Block: "result.block.pb.gz"}, r.ProfileFiles)
	requireFiles(t, dir, "result.block.pb.gz", "result.cpu.pb.gz", "result.json")
	content, err := os.ReadFile(filepath.Join(dir, "result.cpu.pb.gz"))
	require.NoError(t, err)
	require.Equal(t, "cpu", string(content))

	again, err := Load(path)
	require.NoError(t, err)
	r.Profiles = nil // they stay in their files
	require.Equal(t, r, again)

	// Others may read it, and a link to it stays a link.
	link := filepath.Join(dir, "link.json")
	require.NoError(t, os.Symlink(path, link))
	r.Seed = 99
	require.NoError(t, r.Save(link))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	again, err = Load(path)
	require.NoError(t, err)
	require.EqualValues(t, 99, again.Seed)
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())
}

func requireFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	require.Equal(t, want, names)
}

func TestResult_SaveSaysWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	r := someResult()
	path := filepath.Join(t.TempDir(), "missing", "result.json")
	require.EqualError(t, r.Save(path), "cannot write "+path+": no such file or directory")
	dir := t.TempDir()
	require.EqualError(t, r.Save(dir), "cannot write "+dir+": is a directory")
	// A device is written to, and not replaced.
	require.NoError(t, r.Save(os.DevNull))
	info, err := os.Stat(os.DevNull)
	require.NoError(t, err)
	require.False(t, info.Mode().IsRegular())
	if _, err := os.Stat("/dev/full"); err == nil {
		require.EqualError(t, r.Save("/dev/full"), "cannot write /dev/full: no space left on device")
	}
}

func TestWriteFile_KeepsWhatWasThereWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "result.json")
	require.NoError(t, someResult().Save(path))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	err = WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 100_000))
		return errors.Join(err, &os.PathError{Op: "write", Path: "a temporary file", Err: syscall.ENOSPC})
	})
	require.EqualError(t, err, "cannot write "+path+": no space left on device")
	require.ErrorIs(t, err, syscall.ENOSPC)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	requireFiles(t, dir, "result.json")
}

func TestLoad_SaysWhatIsNoResult(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, tt := range map[string]struct{ content, want string }{
		"empty.json":  {"", "unexpected end of JSON input"},
		"cut.json":    {`{"url": "http://x", "latency_ms": {"mean": 1`, "unexpected end of JSON input"},
		"other.json":  {`{"groups": []}`, "it has no latency_ms"},
		"early.json":  {`{"latency_ms": {"p50": 1}, "status": {"404": 3}}`, "it has no latency_ms with a count"},
		"list.json":   {`[1]`, "array"},
		"typo.json":   {`{"latency_ms": {"mean": "fast"}}`, "latency_ms.mean"},
		"number.json": {`{"latency_ms": {}, "requests": 1.5}`, "requests"},
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(tt.content), 0o600))
		_, err := Load(path)
		require.ErrorContains(t, err, path+": not a result of loadtest run: ")
		require.ErrorContains(t, err, tt.want)
	}
	path := filepath.Join(dir, "missing.json")
	_, err := Load(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, path)
}
