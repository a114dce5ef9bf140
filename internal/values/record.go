package values

import (
	"encoding/binary"
	"math"
)

// record is memory from the beginning of a record on:
//
//	bytes  0 to 4   how many bytes belong to it, a multiple of 8
//	       4 to 6   the length of the key
//	       6        flags
//	       7        how often it was read lately, up to maxFreq
//	       8 to 12  the length of the value
//	      12 to 28  the tag of the value
//	      28        the key, behind it the value, and behind that when it is gone, if ever
//
// A filler has the first 8 alone.
type record []byte

const (
	recordHead  = 28
	expiryBytes = 8
	maxKey      = math.MaxUint16

	// live: the index refers to the record. full: it has a value. ends: that expires.
	live, full, ends = 1, 2, 4
	maxFreq          = 3
)

// recordSize returns how many bytes a record takes of a value that is gone then.
func recordSize(key, value int, expires int64) int {
	n := recordHead + key + value
	if expires != 0 {
		n += expiryBytes
	}
	return (n + 7) &^ 7
}

func (r record) room() int { return int(binary.LittleEndian.Uint32(r)) }

// setRoom makes a dead record of so many bytes.
func (r record) setRoom(n int) { binary.LittleEndian.PutUint64(r, uint64(n)) }

func (r record) isLive() bool { return r[6]&live != 0 }

func (r record) kill() { r[6] = 0 }

func (r record) filled() bool { return r[6]&full != 0 }

func (r record) empty() { r[6] &^= full }

func (r record) freq() byte { return r[7] }

func (r record) setFreq(n byte) { r[7] = n }

func (r record) touch() {
	if r[7] < maxFreq {
		r[7]++
	}
}

func (r record) keyLength() int { return int(binary.LittleEndian.Uint16(r[4:])) }

func (r record) key() []byte { return r[recordHead:][:r.keyLength()] }

// setKey makes a dead record a live one.
func (r record) setKey(key []byte) {
	binary.LittleEndian.PutUint16(r[4:], uint16(len(key)))
	r[6] = live
	copy(r[recordHead:], key)
}

func (r record) value() []byte {
	return r[recordHead+r.keyLength():][:binary.LittleEndian.Uint32(r[8:])]
}

func (r record) setValue(value []byte) {
	binary.LittleEndian.PutUint32(r[8:], uint32(len(value)))
	r[6] |= full
	copy(r[recordHead+r.keyLength():], value)
}

func (r record) expiry() []byte {
	return r[recordHead+r.keyLength()+len(r.value()):][:expiryBytes]
}

func (r record) meta() (m Meta) {
	copy(m.Tag[:], r[12:])
	if r[6]&ends != 0 {
		m.Expires = int64(binary.LittleEndian.Uint64(r.expiry()))
	}
	return m
}

// setMeta is for a record with its value.
func (r record) setMeta(m Meta) {
	copy(r[12:recordHead], m.Tag[:])
	if r[6] &^= ends; m.Expires != 0 {
		r[6] |= ends
		binary.LittleEndian.PutUint64(r.expiry(), uint64(m.Expires))
	}
}
