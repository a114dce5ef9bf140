package format

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
)

// MarkName is a file in the folder that says how long the manifest is, and its
// checksum. Pebble takes whatever it cannot read in a manifest for its end: all
// tables that were added later are forgotten then, and removed.
//
// Each sync of the manifest rewrites the mark, without a sync of its own. So what
// it says is never too much: after a power cut it may say less than there is, or
// nothing, and the last record of the manifest is then what Examine says of
// it. A stop syncs it. A start removes one that is not about the manifest in force:
// there may be another manifest of that name later.
const MarkName = "MARK"

// Extent is the beginning of a file.
type Extent struct {
	size int64
	sum  uint32
}

// IsOf reports whether a file of that content begins so.
func (e Extent) IsOf(content []byte) bool {
	return int64(len(content)) >= e.size && crc32.Checksum(content[:e.size], castagnoli) == e.sum
}

// Write adds to the beginning. It never fails.
func (e *Extent) Write(p []byte) (int, error) {
	e.size += int64(len(p))
	e.sum = crc32.Update(e.sum, castagnoli, p)
	return len(p), nil
}

// Mark returns what the mark says of a manifest.
func Mark(name string, e Extent) string {
	line := fmt.Sprintf("%s %d %08x", name, e.size, e.sum)
	return fmt.Sprintf("%s %08x\n", line, crc32.Checksum([]byte(line), castagnoli))
}

// CompareMark compares the content of a manifest with the mark, if the mark is about
// it. It reports whether there is one that is not.
func CompareMark(read func(name string) ([]byte, error), manifest string, content []byte) (stale bool, _ error) {
	text, err := read(MarkName)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", MarkName, err)
	}
	var name string
	var e Extent
	_, err = fmt.Sscanf(string(text), "%s %d %x", &name, &e.size, &e.sum)
	if err != nil || name != manifest || string(text) != Mark(name, e) {
		return true, nil //nolint:nilerr // a power cut may leave half of one
	}
	if !e.IsOf(content) {
		return false, fmt.Errorf("%s %w: its first %d bytes are not what was written", manifest, ErrDamaged, e.size)
	}
	return false, nil
}
