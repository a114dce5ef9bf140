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
func (q *request) setRange(p *parameters, mostKey int, buf []byte) (grown []byte, bad *httpfront.Problem) {
	l := &q.list
	if buf, bad = q.setBounds(p, mostKey, buf); bad != nil {
		return buf, bad
	}
	if p[paramLimit] != nil {
		n, ok := httpfront.ParseNumber(p[paramLimit])
		if !ok || n < 1 {
			return buf, p.refuse(paramLimit, "a whole number, at least 1")
		}
		l.limit = n
	}
	if l.keysOnly = string(p[paramKeys]) == "only"; !l.keysOnly && p[paramKeys] != nil {
		return buf, p.refuse(paramKeys, "only")
	}
	if l.descending = string(p[paramOrder]) == "desc"; !l.descending && p[paramOrder] != nil && string(p[paramOrder]) != "asc" {
		return buf, p.refuse(paramOrder, "asc and desc")
	}
	return q.setAfter(p, mostKey, buf)
}

// setBounds notes the keys between start and end, or those that begin with prefix.
func (q *request) setBounds(p *parameters, mostKey int, buf []byte) (grown []byte, bad *httpfront.Problem) {
	if p[paramPrefix] == nil {
		if p[paramStart] == nil {
			return buf, httpfront.BadRequest("the parameter start is missing, and so is prefix: one of them is needed")
		}
		if bad = p.checkKey(paramStart, mostKey); bad == nil && p[paramEnd] != nil {
			bad = p.checkKey(paramEnd, mostKey)
		}
		q.key, q.list.end = p[paramStart], p[paramEnd]
		return buf, bad
	}
	if bad = p.exclude(paramStart, paramPrefix, "one of them"); bad == nil {
		bad = p.exclude(paramEnd, paramPrefix, "end with start alone")
	}
	if bad == nil {
		bad = p.checkKey(paramPrefix, mostKey)
	}
	if bad != nil {
		return buf, bad
	}
	q.key = p[paramPrefix]
	// The first key behind all that begin so is the prefix with its last byte raised.
	// One of the highest value cannot be, so the one before it is.
	kept := p[paramPrefix]
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
func (q *request) setAfter(p *parameters, mostKey int, buf []byte) (grown []byte, bad *httpfront.Problem) {
	if bad = p.exclude(paramAfter, paramAfter64, "one of them"); bad != nil {
		return buf, bad
	}
	which := paramAfter
	if p[paramAfter64] != nil {
		which = paramAfter64
		from := len(buf)
		var err error
		buf, err = base64url.AppendDecode(buf, bytes.TrimRight(p[paramAfter64], "="))
		if err != nil || bytes.ContainsAny(p[paramAfter64], "\r\n") { // which the decoder skips
			return buf, p.refuse(paramAfter64, "a key in base64url (RFC 4648), as next has it")
		}
		p[paramAfter64] = buf[from:len(buf):len(buf)]
	}
	last := p[which]
	if last == nil {
		return buf, nil
	}
	if bad = p.checkKey(which, mostKey); bad != nil {
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
