package httpfront

import (
	"bytes"
	"math"
	"strings"
)

// The parts of fields and targets follow, as bytes.

// Lower holds a name in lower case, to be looked up without an allocation.
type Lower [32]byte

// Of returns the name in lower case until the next call, nil if it is longer than any that
// is looked for.
func (l *Lower) Of(name []byte) []byte {
	if len(name) > len(l) {
		return nil
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		l[i] = c
	}
	return l[:len(name)]
}

// EqualFold reports whether a is b, whose letters are ASCII's, without regard to case.
func EqualFold(a []byte, b string) bool {
	// With as many bytes, a letter that folds to one of ASCII's leaves a with fewer runes.
	return len(a) == len(b) && strings.EqualFold(string(a), b)
}

// Trim removes spaces and tabs at both ends. The result is nil only if b is.
func Trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// Unhex returns the value of a hexadecimal digit, and more than 15 for anything
// else.
func Unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// ParseNumber parses decimal digits, and nothing else. Numbers that are too
// large for an int become the largest int.
func ParseNumber(digits []byte) (n int, ok bool) {
	if len(digits) == 0 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxInt-9)/10 {
			n = math.MaxInt
			continue
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// Urgency returns the digit that a Priority header (RFC 9218) gives for u, nil if it
// does not fit, or what a header before gave if this one gives none. Of several the
// last counts.
func Urgency(value, before []byte) (digit []byte) {
	digit = before
	for len(value) > 0 {
		var member []byte
		member, value = cutMember(value)
		name, v, _ := bytes.Cut(member, []byte("="))
		if string(Trim(name)) != "u" {
			continue
		}
		v, _, _ = bytes.Cut(v, []byte(";")) // parameters have no meaning
		if digit = Trim(v); len(digit) != 1 || digit[0] < '0' || digit[0] > '7' {
			digit = nil
		}
	}
	return digit
}

// cutMember splits a dictionary (RFC 8941) at its first comma that is not within a
// string.
func cutMember(b []byte) (member, rest []byte) {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '"':
			quoted = !quoted
		case quoted && b[i] == '\\':
			i++
		case !quoted && b[i] == ',':
			return b[:i], b[i+1:]
		}
	}
	return b, nil
}
