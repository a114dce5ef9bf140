// Package format reads what Pebble writes, as far as Spillway must know it: how logs,
// manifests, tables and markers look, and what it means that one is missing or
// damaged. Pebble does not promise any of it beyond opening its own folders again. So
// it is all here, and the tests of the store fail if a version of Pebble has another
// format.
//
// It also has the two notes that the store keeps beside Pebble's files, of what must
// be in them: see MarkName and LogsName.
package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// How the names begin of some of Pebble's files.
const (
	ManifestMarker = "marker.manifest."       // and the name of the manifest is its end
	VersionMarker  = "marker.format-version." // and the version of the format is its end
	ManifestPrefix = "MANIFEST-"
)

// ErrNewer is what a start ends with on a folder of a newer format.
var ErrNewer = errors.New("a newer version has written it")

// Version returns the format that a marker names, if this version knows it.
func Version(marker string) (uint64, error) {
	format, err := strconv.ParseUint(strings.TrimPrefix(filepath.Ext(marker), "."), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %w: it ends in no number", marker, ErrDamaged)
	}
	if format > uint64(pebble.FormatNewest) {
		return 0, fmt.Errorf("%w: it is in format %d, and this version knows %d at most",
			ErrNewer, format, pebble.FormatNewest)
	}
	return format, nil
}

// Marked returns the manifest that a marker names, if the name is one of such a
// marker.
func Marked(name string) (manifest string, ok bool) {
	rest, ok := strings.CutPrefix(name, ManifestMarker)
	if !ok {
		return "", false
	}
	_, manifest, ok = strings.Cut(rest, ".")
	return manifest, ok
}

// LogNumber returns the number of a log, if the name is one of a log.
func LogNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// blockSum is how many bytes the checksum has, at the end of a block of a table.
const blockSum = 4

// tableMagic ends a table. What is read with it is the footer, which is no block:
// at first, and again if a table could not be opened or was closed meanwhile.
const tableMagic = "\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3"

// IsBlock reports whether a read of a table was of a block with the checksum that it
// has at its end.
func IsBlock(p []byte) bool {
	if len(p) <= blockSum {
		return false
	}
	body := p[:len(p)-blockSum]
	return Checksum(body) == binary.LittleEndian.Uint32(p[len(body):])
}

// MayBeOther reports whether a read of a table may have been of something else than
// a block.
func MayBeOther(p []byte) bool {
	return len(p) <= blockSum || bytes.HasSuffix(p, []byte(tableMagic))
}
