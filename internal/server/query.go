package server

import (
	"bytes"

	"github.com/spillway-go/spillway/internal/httpfront"
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
func parseQuery(query, buf []byte) (p parameters, grown []byte, bad *httpfront.Problem) {
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
			return p, buf, httpfront.BadRequest("the parameter " + string(name) + " is given more than once")
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
func decode(value, buf []byte) (decoded, grown []byte, bad *httpfront.Problem) {
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
				return nil, buf, httpfront.BadRequest("broken escape " + httpfront.Quote(value[i:]) + " in the query: a percent sign is followed by two hexadecimal digits")
			}
			high, low := httpfront.Unhex(value[i+1]), httpfront.Unhex(value[i+2])
			if high > 15 || low > 15 {
				return nil, buf, httpfront.BadRequest("broken escape " + httpfront.Quote(value[i:i+3]) + " in the query: a percent sign is followed by two hexadecimal digits")
			}
			buf = append(buf, high<<4|low)
			i += 2
		default:
			buf = append(buf, c)
		}
	}
	return buf[from:len(buf):len(buf)], buf, nil
}
