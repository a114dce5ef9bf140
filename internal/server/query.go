package server

import (
	"bytes"
	"math"
)

// parameters are those of a query that Spillway knows. A nil slice means that
// the parameter was not given.
type parameters struct {
	id                 []byte
	start, end, prefix []byte
	after, after64     []byte
	limit, keys, order []byte
}

// parseQuery parses a query of form values. The values refer to the query, or
// to space that it appends to buf and returns for the next use. Unknown
// parameters are checked and ignored.
func parseQuery(query, buf []byte) (p parameters, grown []byte, bad *problem) {
	// Escapes get shorter when they are decoded, so this is enough for all of
	// them, and the slices that refer to buf stay valid.
	if cap(buf) < len(query) {
		buf = make([]byte, 0, len(query))
	}
	buf = buf[:0]
	for len(query) > 0 {
		var pair []byte
		pair, query, _ = bytes.Cut(query, ampersand)
		if len(pair) == 0 {
			continue
		}
		name, value, found := bytes.Cut(pair, equals)
		if !found {
			value = pair[len(pair):] // empty, but given
		}
		name, buf, bad = decode(name, buf)
		if bad != nil {
			return p, buf, bad
		}
		value, buf, bad = decode(value, buf)
		if bad != nil {
			return p, buf, bad
		}
		known := p.named(name)
		if known == nil {
			continue
		}
		if *known != nil {
			return p, buf, badRequest("the parameter " + string(name) + " is given more than once")
		}
		*known = value
	}
	return p, buf, nil
}

// named returns the parameter of that name, nil if it is unknown.
func (p *parameters) named(name []byte) *[]byte {
	switch string(name) {
	case "id":
		return &p.id
	case "start":
		return &p.start
	case "end":
		return &p.end
	case "prefix":
		return &p.prefix
	case "after":
		return &p.after
	case "after64":
		return &p.after64
	case "limit":
		return &p.limit
	case "keys":
		return &p.keys
	case "order":
		return &p.order
	}
	return nil
}

var ampersand, equals = []byte("&"), []byte("=")

// decode undoes the escapes of a form value. Without any, the result is value
// itself, otherwise it lies in buf.
func decode(value, buf []byte) (decoded, grown []byte, bad *problem) {
	i := 0
	for i < len(value) && value[i] != '%' && value[i] != '+' {
		i++
	}
	if i == len(value) {
		return value, buf, nil
	}
	from := len(buf)
	buf = append(buf, value[:i]...)
	for ; i < len(value); i++ {
		switch c := value[i]; c {
		case '+':
			buf = append(buf, ' ')
		case '%':
			if i+2 >= len(value) {
				return nil, buf, badRequest("broken escape " + quote(value[i:]) + " in the query: a percent sign is followed by two hexadecimal digits")
			}
			high, low := unhex(value[i+1]), unhex(value[i+2])
			if high > 15 || low > 15 {
				return nil, buf, badRequest("broken escape " + quote(value[i:i+3]) + " in the query: a percent sign is followed by two hexadecimal digits")
			}
			buf = append(buf, high<<4|low)
			i += 2
		default:
			buf = append(buf, c)
		}
	}
	return buf[from:len(buf):len(buf)], buf, nil
}

// unhex returns the value of a hexadecimal digit, and more than 15 for anything
// else.
func unhex(c byte) byte {
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

// parseNumber parses decimal digits, and nothing else. Numbers that are too
// large for an int become the largest int.
func parseNumber(digits []byte) (n int, ok bool) {
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
