package server

import (
	"bytes"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/httpfront"
)

// The parameters that Spillway knows.
const (
	paramID = iota
	paramStart
	paramEnd
	paramPrefix
	paramAfter
	paramAfter64
	paramLimit
	paramKeys
	paramOrder
)

var parameterNames = [...]string{"id", "start", "end", "prefix", "after", "after64", "limit", "keys", "order"}

// parameters are their values. A nil slice means that the parameter was not given.
type parameters [len(parameterNames)][]byte

// refuse refuses a parameter whose value is not allowed.
func (p *parameters) refuse(which int, allowed string) *httpfront.Problem {
	return httpfront.BadRequest("the parameter " + parameterNames[which] + " is " + httpfront.Quote(p[which]) + ", allowed: " + allowed)
}

// exclude refuses two parameters that are both given.
func (p *parameters) exclude(one, other int, allowed string) *httpfront.Problem {
	if p[one] == nil || p[other] == nil {
		return nil
	}
	return httpfront.BadRequest("the parameters " + parameterNames[one] + " and " + parameterNames[other] + " are both given, allowed: " + allowed)
}

// checkKey checks a parameter that is needed, and is a key of that length at most.
func (p *parameters) checkKey(which, most int) *httpfront.Problem {
	key := p[which]
	switch {
	case key == nil:
		return httpfront.BadRequest("the parameter " + parameterNames[which] + " is missing")
	case len(key) == 0:
		return httpfront.BadRequest("the parameter " + parameterNames[which] + " is empty, allowed: at least one byte")
	case len(key) > most:
		return &httpfront.Problem{Status: fasthttp.StatusRequestURITooLong,
			Detail: "the parameter " + parameterNames[which] + " has " + strconv.Itoa(len(key)) + " bytes, allowed: at most " + strconv.Itoa(most)}
	}
	return nil
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
		if name, buf, bad = decode(name, buf); bad == nil {
			value, buf, bad = decode(value, buf)
		}
		if bad != nil {
			return p, buf, bad
		}
		for i := range parameterNames {
			if string(name) != parameterNames[i] {
				continue
			}
			if p[i] != nil {
				return p, buf, httpfront.BadRequest("the parameter " + string(name) + " is given more than once")
			}
			p[i] = value
			break
		}
	}
	return p, buf, nil
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
			escape := value[i:min(len(value), i+3)]
			if len(escape) < 3 || max(httpfront.Unhex(escape[1]), httpfront.Unhex(escape[2])) > 15 {
				return nil, buf, httpfront.BadRequest("broken escape " + httpfront.Quote(escape) + " in the query: a percent sign is followed by two hexadecimal digits")
			}
			buf = append(buf, httpfront.Unhex(escape[1])<<4|httpfront.Unhex(escape[2]))
			i += 2
		default:
			buf = append(buf, c)
		}
	}
	return buf[from:len(buf):len(buf)], buf, nil
}
