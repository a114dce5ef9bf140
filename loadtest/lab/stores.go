package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spillway-go/spillway/loadtest/observe"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// filling says what a store holds before a run: values of these sizes under the
// keys from 0 to keys-1, so that every get of a run finds something.
type filling struct {
	keys  uint64
	sizes workload.Sizes
}

// mean is that of the values, in bytes.
func (f filling) mean() int64 { return max(1, int64(f.sizes.Min+f.sizes.Max)/2) }

// bytes is about what it takes on disk: the values are random, so that nothing
// can be compressed.
func (f filling) bytes() int64 {
	const entry = 32 // the key, and what Pebble adds
	return int64(f.keys) * (f.mean() + entry)
}

func (f filling) String() string {
	return fmt.Sprintf("%d values of %v bytes", f.keys, f.sizes)
}

// stores keeps filled stores, and gives every run a clone of one. A clone takes
// next to no time and space: its tables are links, since Pebble never changes a
// table that it has written, but only removes it.
type stores struct {
	dir string
	// fill fills the store in a folder, from nothing.
	fill func(ctx context.Context, dir string, f filling) error
}

func (s *stores) filled(f filling) string {
	return filepath.Join(s.dir, fmt.Sprintf("filled-%dx%v", f.keys, f.sizes))
}

func (s *stores) has(f filling) bool {
	_, err := os.Stat(s.filled(f))
	return err == nil
}

// scratch is where the store of the present run lies.
func (s *stores) scratch() string { return filepath.Join(s.dir, "run") }

func (s *stores) prepare(ctx context.Context, fillings []filling) error {
	if err := os.RemoveAll(s.scratch()); err != nil {
		return err
	}
	for _, f := range fillings {
		if s.has(f) {
			continue
		}
		// Under its name there is only ever a store that is complete.
		if err := s.fill(ctx, s.scratch(), f); err != nil {
			return fmt.Errorf("fill a store with %v: %w", f, err)
		}
		if err := os.Rename(s.scratch(), s.filled(f)); err != nil {
			return err
		}
	}
	return nil
}

// missingBytes returns how much space is missing for the stores that are still
// to be filled, and for what the runs write on top. It knows the disk's size only
// where the system tells.
func (s *stores) missingBytes(fillings []filling) (need, free int64) {
	// What is written besides: logs, compactions, and the results.
	const besides = 256 << 20
	need = besides
	for _, f := range fillings {
		if !s.has(f) {
			need += f.bytes() + f.bytes()/4
		}
	}
	free, known := freeBytes(s.dir)
	if !known {
		free = need
	}
	return need, free
}

// clone makes a clone of a filled store, in the place of the last one.
func (s *stores) clone(f filling) (dir string, err error) {
	if err := os.RemoveAll(s.scratch()); err != nil {
		return "", err
	}
	return s.scratch(), cloneStore(s.filled(f), s.scratch())
}

// close removes what is there.
func (s *stores) close() error {
	if err := os.RemoveAll(s.scratch()); err != nil {
		return err
	}
	filled, err := filepath.Glob(filepath.Join(s.dir, "filled-*"))
	for _, dir := range filled {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	_ = os.Remove(s.dir) // stays if it holds what is not ours
	return err
}

func cloneStore(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		case filepath.Ext(path) == ".sst" && os.Link(path, target) == nil:
			return nil
		default: // also where the file system has no links
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(target, content, 0o644)
		}
	})
}

// compactions asks for the metrics that tell of compactions.
const compactions = "/metrics?name[]=spillway_store_compactions_total&name[]=spillway_store_level_files"

// awaitQuiet waits until the service has no compaction to do: until the number
// of those it has done, and of the tables, stay the same for a while. A
// store that compacts would do so anew in each of its clones. After a minute it
// has waited enough.
func awaitQuiet(ctx context.Context, s *service, period time.Duration) error {
	const enough = 3 // periods without a change
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(period)
	defer tick.Stop()
	var before []byte
	for same := 0; same < enough; {
		now, err := observe.Get(ctx, s.admin, compactions)
		if err != nil {
			return err
		}
		if same++; !bytes.Equal(now, before) {
			same = 0
		}
		before = now
		select {
		case <-tick.C:
		case <-deadline.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
