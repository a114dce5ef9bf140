package server

import (
	"bytes"
	"encoding/base64"

	"github.com/spillway-go/spillway/internal/httpfront"
)

// list is what is wanted of a range.
type list struct {
	end        []byte // nil for none
	limit      int    // 0 for none
	keysOnly   bool
	descending bool
}

// setRange finds out which keys are wanted: from q.key to q.list.end, which may lie
// in space that it appends to buf and returns.
func (q *request) setRange(p parameters, mostKey int, buf []byte) (grown []byte, bad *httpfront.Problem) {
	l := &q.list
	if buf, bad = q.setBounds(p, mostKey, buf); bad != nil {
		return buf, bad
	}
	if p.limit != nil {
		n, ok := httpfront.ParseNumber(p.limit)
		if !ok || n < 1 {
			return buf, httpfront.BadRequest("the parameter limit is " + httpfront.Quote(p.limit) + ", allowed: a whole number, at least 1")
		}
		l.limit = n
	}
	if p.keys != nil {
		if string(p.keys) != "only" {
			return buf, httpfront.BadRequest("the parameter keys is " + httpfront.Quote(p.keys) + ", allowed: only")
		}
		l.keysOnly = true
	}
	switch string(p.order) {
	case "desc":
		l.descending = true
	case "asc":
	default:
		if p.order != nil {
			return buf, httpfront.BadRequest("the parameter order is " + httpfront.Quote(p.order) + ", allowed: asc and desc")
		}
	}
	return q.setAfter(p, mostKey, buf)
}

// setBounds notes the keys between start and end, or those that begin with prefix.
func (q *request) setBounds(p parameters, mostKey int, buf []byte) (grown []byte, bad *httpfront.Problem) {
	switch {
	case p.prefix == nil:
		if p.start == nil {
			return buf, httpfront.BadRequest("the parameter start is missing, and so is prefix: one of them is needed")
		}
		bad = checkKey("start", p.start, mostKey)
		if bad == nil && p.end != nil {
			bad = checkKey("end", p.end, mostKey)
		}
		q.key, q.list.end = p.start, p.end
		return buf, bad
	case p.start != nil:
		return buf, httpfront.BadRequest("the parameters start and prefix are both given, allowed: one of them")
	case p.end != nil:
		return buf, httpfront.BadRequest("the parameters end and prefix are both given, allowed: end with start alone")
	}
	if bad = checkKey("prefix", p.prefix, mostKey); bad != nil {
		return buf, bad
	}
	q.key = p.prefix
	// The first key behind all that begin so is the prefix with its last byte raised.
	// One of the highest value cannot be, so the one before it is.
	kept := p.prefix
	for len(kept) > 0 && kept[len(kept)-1] == 0xff {
		kept = kept[:len(kept)-1]
	}
	if len(kept) > 0 {
		from := len(buf)
		buf = append(buf, kept...)
		buf[len(buf)-1]++
		q.list.end = buf[from:len(buf):len(buf)]
	}
	return buf, nil
}

// setAfter leaves out the keys up to the one that the client has got last, in the
// order of the list.
func (q *request) setAfter(p parameters, mostKey int, buf []byte) (grown []byte, bad *httpfront.Problem) {
	last, name := p.after, "after"
	switch {
	case p.after64 == nil && p.after == nil:
		return buf, nil
	case p.after64 != nil && p.after != nil:
		return buf, httpfront.BadRequest("the parameters after and after64 are both given, allowed: one of them")
	case p.after64 != nil:
		name = "after64"
		from := len(buf)
		var err error
		buf, err = base64url.AppendDecode(buf, bytes.TrimRight(p.after64, "="))
		if err != nil || bytes.ContainsAny(p.after64, "\r\n") { // which the decoder skips
			return buf, httpfront.BadRequest("the parameter after64 is " + httpfront.Quote(p.after64) + ", allowed: a key in base64url (RFC 4648), as next has it")
		}
		last = buf[from:len(buf):len(buf)]
	}
	if bad = checkKey(name, last, mostKey); bad != nil {
		return buf, bad
	}
	switch {
	case q.list.descending:
		if q.list.end == nil || bytes.Compare(last, q.list.end) < 0 {
			q.list.end = last
		}
	case bytes.Compare(last, q.key) >= 0:
		from := len(buf)
		buf = append(append(buf, last...), 0) // the least key that is greater
		q.key = buf[from:len(buf):len(buf)]
	}
	return buf, nil
}

// base64url is how keys stand in the parameter after64 and in the line next. A key
// has one spelling, with padding or without.
var base64url = base64.RawURLEncoding.Strict()
