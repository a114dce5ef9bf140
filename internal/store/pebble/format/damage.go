package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrDamaged says that a file does not hold what was written to it.
var ErrDamaged = errors.New("is damaged")

// Logs and manifests are sequences of chunks, in blocks of 32 KiB. Where a chunk
// makes no sense, Pebble takes it for the end of the file: of what was being
// written when the power failed, some pages may be on the disk and others not.
// All that follows is dropped then, without a word, also if it is damage in the
// middle of what was synced and acknowledged, except where a later block of a log
// says otherwise, which is seldom: Pebble notes in each chunk how much had been
// synced, but does not count the blocks that were filled between two syncs.
//
// So the files that Pebble reads at its start are looked through first, for
// proof that what makes no sense was once on the disk:
//
//   - In a log, a later chunk that says so, or three later ones that say
//     something different each. The third was made after a sync that began when
//     the sync had ended after which the second was made; so this sync had all
//     that came before the first.
//   - In a manifest, the beginning of a later record, since each is synced
//     before the next is written.
//   - A chunk that would make sense if one byte of its length were another, or if
//     its type or log number were what they must be. Among other things Pebble
//     takes a chunk for the proper end of its log if it has the number of the next
//     one.
//
// Later chunks are looked for only where chunks can begin: at the beginning of a
// block, and behind another one. What lies within one is what clients have sent,
// and may look like anything. So when the head of a chunk makes no sense nothing
// else in its block counts.
//
// What remains unproven is damage to the last records before a crash, as many as
// three syncs wrote, and to a head, if less than that follows its block; no reader
// could tell it from a power cut. After a proper stop the logs hold nothing that is
// not in the tables.
const (
	// BlockBytes is the size of a block.
	BlockBytes = 32 << 10

	manifestHeader = 7  // checksum, length, type
	logHeader      = 19 // and log number, and the bytes synced so far

	// Types of chunks: full, first, middle, last.
	ManifestFull, manifestLast = 1, 4
	LogFull, logLast           = 9, 12
	// logEnd is the type of the mark at the proper end of a log, whose number is
	// the log's plus one, and whose other fields are zero.
	logEnd      = 5
	logEndBytes = 11

	// sector is what a disk writes whole or not at all.
	sector = 512
)

// examiner looks through a log or a manifest.
type examiner struct {
	log    bool
	number uint32 // of the log

	block  [BlockBytes]byte
	n      int   // how much of the block there is
	offset int64 // of the block

	broken bool
	at     int64 // where it is broken
	// Of the chunks after at: how many different things they say of what was
	// synced, and the latest.
	seen   int
	latest uint64
}

// chunk is one that makes sense.
type chunk struct {
	size   int
	synced uint64 // of a log
	starts bool   // a record
}

// examine returns an error that says where the file is damaged, if that can be
// proven.
func (e *examiner) examine(r io.Reader) error {
	for {
		n, err := io.ReadFull(r, e.block[:])
		if err == io.EOF {
			return nil
		}
		if err != nil && err != io.ErrUnexpectedEOF {
			return err
		}
		e.n = n
		if done, err := e.examineBlock(); done || err != nil {
			return err
		}
		e.offset += BlockBytes
	}
}

func (e *examiner) examineBlock() (done bool, _ error) {
	for p := 0; p < e.n; {
		c, ok := e.chunk(p)
		switch {
		case ok && e.broken && e.proves(c, p):
			return true, e.damaged()
		case ok:
			p += c.size
			continue
		case e.broken:
		case e.atEnd(p):
			return true, nil
		case e.isPadding(p):
			return false, nil
		default:
			e.broken, e.at = true, e.offset+int64(p)
			if e.isSpoiled(p) {
				return true, e.damaged()
			}
		}
		h, ok := e.header(p)
		if !ok || !e.isWhole(p) {
			return false, nil
		}
		p += h.size
	}
	return false, nil
}

func (e *examiner) damaged() error { return fmt.Errorf("%w at byte %d", ErrDamaged, e.at) }

// header returns what the header at p of the block says, if a chunk of this file
// can have one like it.
func (e *examiner) header(p int) (chunk, bool) {
	b := e.block[p:e.n]
	length, first, _ := e.format()
	if len(b) < length {
		return chunk{}, false
	}
	size := length + int(binary.LittleEndian.Uint16(b[4:]))
	if size > len(b) || !e.isOurs(b) {
		return chunk{}, false
	}
	c := chunk{size: size, starts: b[6] <= first+1}
	if e.log {
		c.synced = binary.LittleEndian.Uint64(b[11:])
	}
	return c, true
}

// isOurs reports whether a header has a type and a log number of this file.
func (e *examiner) isOurs(header []byte) bool {
	_, first, last := e.format()
	return header[6] >= first && header[6] <= last &&
		(!e.log || binary.LittleEndian.Uint32(header[7:]) == e.number)
}

// format returns how long headers are, and the types that there are.
func (e *examiner) format() (header int, first, last byte) {
	if e.log {
		return logHeader, LogFull, logLast
	}
	return manifestHeader, ManifestFull, manifestLast
}

// isWhole reports whether the length in the header at p was written at once: one
// of which half was written may lead to where no chunk begins.
func (e *examiner) isWhole(p int) bool { return (p+4)/sector == (p+5)/sector }

// chunk returns the chunk at p of the block, if there is one that makes sense.
func (e *examiner) chunk(p int) (chunk, bool) {
	c, ok := e.header(p)
	return c, ok && Checksum(e.block[p+6:p+c.size]) == binary.LittleEndian.Uint32(e.block[p:])
}

// atEnd reports whether p is where the log was closed.
func (e *examiner) atEnd(p int) bool {
	if !e.log || p+logEndBytes > e.n {
		return false
	}
	var mark [logEndBytes]byte
	mark[6] = logEnd
	binary.LittleEndian.PutUint32(mark[7:], e.number+1)
	return string(mark[:]) == string(e.block[p:p+logEndBytes])
}

// isPadding reports whether the block ends at p, for want of room for a chunk.
func (e *examiner) isPadding(p int) bool {
	b := e.block[p:e.n]
	return len(b) < manifestHeader || e.log && len(b) < logHeader && len(bytes.Trim(b, "\x00")) == 0
}

// isSpoiled reports whether there is a chunk at p but for its type and log number,
// or one byte of its length.
func (e *examiner) isSpoiled(p int) bool {
	b := e.block[p:e.n]
	header, first, last := e.format()
	if len(b) < header {
		return false
	}
	length := int(binary.LittleEndian.Uint16(b[4:]))
	fixed := append([]byte(nil), b...)
	is := func(length int) bool {
		size := header + length
		return size <= len(b) && Checksum(fixed[6:size]) == binary.LittleEndian.Uint32(b)
	}
	if e.log {
		binary.LittleEndian.PutUint32(fixed[7:], e.number)
	}
	for fixed[6] = first; fixed[6] <= last; fixed[6]++ {
		if is(length) {
			return true
		}
	}
	if copy(fixed, b); !e.isOurs(b) {
		return false
	}
	for v := range 1 << 8 {
		if is(length&0xff00|v) || is(length&0xff|v<<8) {
			return true
		}
	}
	return false
}

// proves reports whether a chunk at p, after the one that makes no sense, proves
// that this one did.
func (e *examiner) proves(c chunk, p int) bool {
	if !e.log {
		return c.starts
	}
	if c.synced > uint64(e.offset)+uint64(p) {
		return false // as nothing behind it can have been synced before it
	}
	if c.synced > uint64(e.at) {
		return true
	}
	if e.seen == 0 || c.synced > e.latest {
		e.latest = c.synced
		e.seen++
	}
	return e.seen == 3
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is what Pebble writes at the head of a chunk, and at the end of a block of
// a table.
func Checksum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// Examine examines a log or a manifest by its name. Other files are none of its
// business.
func Examine(f vfs.File, name string) error {
	e := new(examiner)
	base := filepath.Base(name)
	if n, ok := LogNumber(base); ok {
		e.log, e.number = true, uint32(n)
	} else if !strings.HasPrefix(base, ManifestPrefix) {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// By ReadAt, so that Pebble begins at the beginning.
	if err := e.examine(io.NewSectionReader(f, 0, info.Size())); err != nil {
		return fmt.Errorf("%s %w", base, err)
	}
	return nil
}
