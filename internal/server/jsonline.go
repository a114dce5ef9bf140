package server

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/store"
)

// jsonLine parses a line with one JSON object whose fields hold no others (RFC 8259). It
// decodes in the place of the line, and allocates nothing but for what is wrong.
type jsonLine struct {
	rest []byte
	bad  string // what is wrong, "" if nothing is so far
}

func (p *jsonLine) fail(what string) {
	if p.bad == "" {
		p.bad = what
	}
}

// skip drops white space and returns the next byte, 0 at the end.
func (p *jsonLine) skip() byte {
	for len(p.rest) > 0 {
		switch c := p.rest[0]; c {
		case ' ', '\t', '\r':
			p.rest = p.rest[1:]
		default:
			return c
		}
	}
	return 0
}

// take drops the next byte if it is c, and reports whether it was.
func (p *jsonLine) take(c byte) bool {
	if p.skip() != c || len(p.rest) == 0 {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// first begins the object and returns the name of its first field, if it has one. The
// value must be taken next.
func (p *jsonLine) first() (name []byte, more bool) {
	if !p.take('{') {
		p.fail("it is no JSON object")
		return nil, false
	}
	if p.take('}') {
		return nil, p.end()
	}
	return p.name()
}

// next returns the name of the next field, if there is one.
func (p *jsonLine) next() (name []byte, more bool) {
	switch {
	case p.bad != "":
		return nil, false
	case p.take(','):
		return p.name()
	case p.take('}'):
		return nil, p.end()
	}
	p.unexpected("a comma or the end of the object")
	return nil, false
}

// end fails if something follows the object. It returns false.
func (p *jsonLine) end() bool {
	if p.skip(); len(p.rest) > 0 {
		p.unexpected("nothing behind the object")
	}
	return false
}

func (p *jsonLine) name() (name []byte, more bool) {
	name = p.text()
	if p.bad == "" && !p.take(':') {
		p.unexpected("a colon")
	}
	return name, p.bad == ""
}

func (p *jsonLine) unexpected(allowed string) {
	if len(p.rest) == 0 {
		p.fail("it ends where there must be " + allowed)
		return
	}
	p.fail("it has " + httpfront.Quote(p.rest) + " where there must be " + allowed)
}

// text takes a string and returns what it says, in the place where it was.
func (p *jsonLine) text() []byte {
	if !p.take('"') {
		p.unexpected("a string")
		return nil
	}
	b := p.rest
	n := 0 // how much of it has been decoded, to b[:n]
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			p.rest = b[i+1:]
			return b[:n:n]
		case c < ' ':
			p.fail("a string has the control character " + httpfront.Quote(b[i:i+1]))
			return nil
		case c != '\\':
			b[n] = c
			n++
		default:
			size, r := unescape(b[i:])
			if size == 0 {
				p.fail("a string has the broken escape " + httpfront.Quote(b[i:min(len(b), i+6)]))
				return nil
			}
			n += utf8.EncodeRune(b[n:], r) // which is shorter than its escape
			i += size - 1
		}
	}
	p.fail("a string does not end")
	return nil
}

// unescape returns what an escape at the beginning of b stands for, and its length, or 0
// if it is broken.
func unescape(b []byte) (size int, r rune) {
	if len(b) < 2 {
		return 0, 0
	}
	const escapes, meanings = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := strings.IndexByte(escapes, b[1]); i >= 0 {
		return 2, rune(meanings[i])
	}
	if r = hex4(b[2:]); b[1] != 'u' || r < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return 6, r
	}
	if len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
		return 0, 0
	}
	if r = utf16.DecodeRune(r, hex4(b[8:])); r == utf8.RuneError {
		return 0, 0
	}
	return 12, r
}

// hex4 returns the number of four hexadecimal digits, or -1.
func hex4(b []byte) rune {
	n, err := strconv.ParseUint(string(b[:min(4, len(b))]), 16, 16)
	if err != nil || len(b) < 4 {
		return -1
	}
	return rune(n)
}

// strict allows no other encoding of the same bytes. It still skips line ends.
var strict = base64.StdEncoding.Strict()

// base64 takes a string and returns what it encodes, in the place where it was. The
// result is not nil if nothing is wrong.
func (p *jsonLine) base64(field string) []byte {
	text := p.text()
	if p.bad != "" {
		return nil
	}
	if i := bytes.IndexAny(text, "\r\n"); i >= 0 {
		p.fail("the field " + field + " is not base64: it has a line end at byte " + strconv.Itoa(i))
		return nil
	}
	n, err := strict.Decode(text, text)
	if err != nil {
		p.fail("the field " + field + " is not base64 with padding (RFC 4648): " + err.Error())
		return nil
	}
	return text[:n:n]
}

// ttl takes a number of seconds.
func (p *jsonLine) ttl() uint32 {
	p.skip()
	digits := 0
	for digits < len(p.rest) && '0' <= p.rest[digits] && p.rest[digits] <= '9' {
		digits++
	}
	n, ok := httpfront.ParseNumber(p.rest[:digits])
	if ends := digits == len(p.rest) || p.rest[digits] != '.' && p.rest[digits]|0x20 != 'e'; !ok || !ends || n < 1 || n > maxTTL || p.rest[0] == '0' {
		p.fail("ttl is " + httpfront.Quote(p.scalar()) + ", allowed: a whole number from 1 to " + strconv.Itoa(maxTTL))
	}
	p.rest = p.rest[digits:]
	return uint32(min(n, maxTTL))
}

// scalar returns what is there up to the next comma or the end of the object.
func (p *jsonLine) scalar() []byte {
	if end := bytes.IndexAny(p.rest, ",}"); end >= 0 {
		return p.rest[:end]
	}
	return p.rest
}

// ifMatch takes a validator, as an earlier answer or ETag has it, or *.
func (p *jsonLine) ifMatch(c *store.Condition) {
	text := p.text()
	if p.bad != "" {
		return
	}
	if string(text) == "*" {
		c.Present = true
		return
	}
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	c.Tags = []etag.Tag{}
	if tag, ok := etag.Parse(text); ok {
		c.Tags = append(c.Tags, tag)
	}
}
