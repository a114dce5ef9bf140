package server

import (
	"bytes"
	"time"

	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/store"
)

// fields are the header fields that matter, as they were sent. They refer to
// the bytes of the head. A nil slice means that the field was not sent.
type fields struct {
	asked                   httpfront.QoS
	authorization           []byte
	consistency             []byte
	origin                  []byte // empty if there are several
	requestStart            []byte
	ifMatch, ifNoneMatch    []byte
	contentType             []byte
	ttl                     []byte
	traceparent, tracestate []byte // the last

	ndjson    bool // an Accept lists it
	preflight bool // Access-Control-Request-Method was sent
	browser   bool // one of secure.BrowserMarks was sent
}

// set notes a field if it matters.
func (f *fields) set(name, value []byte) *httpfront.Problem {
	var lower httpfront.Lower
	var once *[]byte
	key := lower.Of(name)
	switch string(key) {
	case "accept":
		f.ndjson = f.ndjson || listsNDJSON(value)
	case "accept-language", "sec-fetch-site":
		f.browser = true
	case "access-control-request-method":
		f.preflight = true
	case "origin":
		if f.origin != nil { // where the page comes from is ambiguous
			value = value[:0]
		}
		f.browser, f.origin = true, value
	case "x-request-start":
		f.requestStart = value
	case "traceparent":
		f.traceparent = value
	case "tracestate":
		f.tracestate = value
	case "authorization":
		once = &f.authorization
	case "content-type":
		once = &f.contentType
	case "if-match":
		once = &f.ifMatch
	case "if-none-match":
		once = &f.ifNoneMatch
	case "spillway-consistency":
		once = &f.consistency
	case "spillway-ttl":
		once = &f.ttl
	default:
		return f.asked.Note(key, name, value)
	}
	if once == nil {
		return nil
	}
	return httpfront.Once(once, name, value)
}

var comma, semicolon = []byte(","), []byte(";")

// isNDJSON reports whether a media type is application/x-ndjson, whatever its parameters.
func isNDJSON(mediaType []byte) bool {
	name, _, _ := bytes.Cut(mediaType, semicolon)
	return httpfront.EqualFold(httpfront.Trim(name), typeNDJSON)
}

// listsNDJSON reports whether a client accepts application/x-ndjson by name,
// with a weight other than 0. Ranges of media types, such as */*, do not count:
// they accept the plain form as well.
func listsNDJSON(list []byte) bool {
	for len(list) > 0 {
		var item []byte
		item, list, _ = bytes.Cut(list, comma)
		if !isNDJSON(item) {
			continue
		}
		wanted := true
		_, params, _ := bytes.Cut(item, semicolon)
		for len(params) > 0 {
			var param []byte
			param, params, _ = bytes.Cut(params, semicolon)
			key, weight, _ := bytes.Cut(param, equals)
			if key = httpfront.Trim(key); len(key) == 1 && key[0]|0x20 == 'q' {
				wanted = len(bytes.Trim(httpfront.Trim(weight), "0.")) > 0
			}
		}
		if wanted {
			return true
		}
	}
	return false
}

const (
	defaultPriority = 3
	maxTTL          = 630_720_000 // s, twenty years
)

// options are what a client asks for beside the operation itself.
type options struct {
	timeout  time.Duration // 0 if it did not say
	priority uint8
	client   []byte // empty if it did not say
	ttl      uint32 // of a value that is put, in seconds, 0 for never
	// consistency is for a distributed store; the embedded one has one copy of the
	// data, for which all are the same.
	consistency store.Consistency
}

// options checks and returns what the fields ask for.
func (f *fields) options() (w options, bad *httpfront.Problem) {
	client, class, timeout, bad := f.asked.Read(defaultPriority)
	if bad != nil {
		return w, bad
	}
	ttl, bad := httpfront.Whole("Spillway-Ttl", f.ttl, 1, maxTTL, 0)
	if bad != nil {
		return w, bad
	}
	w = options{timeout: timeout, priority: uint8(class), client: client, ttl: uint32(ttl)}
	if f.consistency != nil {
		var known bool
		if w.consistency, known = consistencies[string(f.consistency)]; !known {
			return w, httpfront.BadHeader("Spillway-Consistency", f.consistency, "one, quorum or all")
		}
	}
	return w, nil
}

var consistencies = map[string]store.Consistency{"one": store.ConsistencyOne, "quorum": store.ConsistencyQuorum, "all": store.ConsistencyAll}
