package format

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/spillway-go/spillway/internal/etag"
)

// ValuesName is a file in the folder that says how values are kept: some have a head,
// which begins with Prefix. Versions before there were heads would hand them out with
// the values. They take this file for Pebble's marker of a format that they do not
// know, and refuse the folder with a line that says so. Pebble does not get to see it.
const ValuesName = VersionMarker + "000000.values.1001"

// OpenedName is the file that says who has opened the folder last. Each Open writes
// another text, so a store can tell its folder from a copy that somebody else has
// opened, and from a backup, which has none. It ends with OpenedValues if who has written
// it has seen to the file ValuesName.
const (
	OpenedName   = "OPENED"
	OpenedValues = " values\n"
)

// PrefixBytes is the length of a Prefix.
const PrefixBytes = 8

// Prefix is what the heads of values in a folder begin with. It is made by chance when
// the folder is made, or first opened by a version that writes heads, so that no value
// that was written before can begin so.
type Prefix [PrefixBytes]byte

// NewPrefix makes one.
func NewPrefix() (p Prefix) {
	_, _ = rand.Read(p[:]) // never fails
	return p
}

// Note returns the content of the file ValuesName.
func (p *Prefix) Note() []byte {
	return fmt.Appendf(nil, "%x %08x\n", p[:], crc32.Checksum(p[:], castagnoli))
}

// ReadPrefix reads the file ValuesName. It reports whether there is one.
func ReadPrefix(read func(name string) ([]byte, error)) (p Prefix, found bool, _ error) {
	note, err := read(ValuesName)
	if errors.Is(err, fs.ErrNotExist) {
		if opened, err := read(OpenedName); err == nil && bytes.HasSuffix(opened, []byte(OpenedValues)) {
			return p, false, fmt.Errorf("%s %w: it is missing, which says what values begin with", ValuesName, ErrDamaged)
		}
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("%s: %w", ValuesName, err)
	}
	var prefix []byte
	_, err = fmt.Sscanf(string(note), "%x", &prefix)
	if copy(p[:], prefix); err != nil || !bytes.Equal(note, p.Note()) {
		return p, false, fmt.Errorf("%s %w: it is not what was written", ValuesName, ErrDamaged)
	}
	return p, true, nil
}

// A head is the prefix, a byte that says what follows, when the value expires, and
// its validator, the latter two each if the byte says so.
const (
	hasExpiry = 1 << iota
	hasTag

	expiryBytes = 8
)

// Head is what is kept with a value. Most have none.
type Head struct {
	// Expires is when the value is gone, in milliseconds since 1970, 0 for never.
	Expires int64
	// Tag is the value's, zero if it is not kept.
	Tag etag.Tag
}

// Size returns how long the head of a value is, 0 if it has none.
func (p *Prefix) Size(h *Head, value []byte) int {
	n := 0
	if h.Expires != 0 {
		n += expiryBytes
	}
	if !h.Tag.IsZero() {
		n += len(h.Tag)
	}
	if n == 0 && !bytes.HasPrefix(value, p[:]) {
		return 0
	}
	return PrefixBytes + 1 + n
}

// Put writes a head of that Size.
func (p *Prefix) Put(dst []byte, h *Head) {
	dst = append(append(dst[:0], p[:]...), 0)
	says := &dst[PrefixBytes]
	if h.Expires != 0 {
		*says |= hasExpiry
		dst = binary.BigEndian.AppendUint64(dst, uint64(h.Expires))
	}
	if !h.Tag.IsZero() {
		*says |= hasTag
		_ = append(dst, h.Tag[:]...)
	}
}

// Split separates what is kept into head and value, which is a part of it.
func (p *Prefix) Split(kept []byte) (h Head, value []byte, _ error) {
	if !bytes.HasPrefix(kept, p[:]) {
		return h, kept, nil
	}
	rest := kept[PrefixBytes:]
	if len(rest) == 0 || rest[0] >= hasTag<<1 {
		return h, nil, fmt.Errorf("the head of a value %w", ErrDamaged)
	}
	says, rest := rest[0], rest[1:]
	if says&hasExpiry != 0 {
		if len(rest) < expiryBytes {
			return h, nil, fmt.Errorf("the head of a value %w", ErrDamaged)
		}
		h.Expires = int64(binary.BigEndian.Uint64(rest))
		rest = rest[expiryBytes:]
	}
	if says&hasTag != 0 {
		if len(rest) < len(h.Tag) {
			return h, nil, fmt.Errorf("the head of a value %w", ErrDamaged)
		}
		rest = rest[copy(h.Tag[:], rest):]
	}
	return h, rest, nil
}
