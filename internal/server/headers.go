package server

import (
	"bytes"
	"slices"
	"time"

	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/store"
)

// fields are the header fields that matter, as they were sent. They refer to
// the bytes of the head. A nil slice means that the field was not sent.
type fields struct {
	authorization             []byte
	accept                    []byte // the first
	moreAccept                [][]byte
	timeout, priority, client []byte
	consistency               []byte
	urgency                   []byte // of Priority; nil if none fits
	origin                    []byte // empty if there are several
	requestStart              []byte
	ifMatch, ifNoneMatch      []byte
	contentType               []byte
	ttl                       []byte
	traceparent, tracestate   []byte // the last

	preflight bool // Access-Control-Request-Method was sent
	browser   bool // one of secure.BrowserMarks was sent
}

// set notes a field if it matters.
func (f *fields) set(name, value []byte) *httpfront.Problem {
	var field *[]byte
	switch len(name) { // all but those that matter end here
	case len("Accept"): // or Origin
		if httpfront.EqualFold(name, "Accept") {
			if f.accept != nil {
				f.moreAccept = append(f.moreAccept, value)
			} else {
				f.accept = value
			}
			return nil
		}
		if httpfront.EqualFold(name, "Origin") {
			f.setOrigin(value)
			return nil
		}
	case len("Priority"): // or If-Match
		if httpfront.EqualFold(name, "Priority") {
			f.urgency = httpfront.Urgency(value, f.urgency)
			return nil
		}
		field = httpfront.Match(name, "If-Match", &f.ifMatch)
	case len("Spillway-Ttl"): // or Content-Type
		if field = httpfront.Match(name, "Spillway-Ttl", &f.ttl); field == nil {
			field = httpfront.Match(name, "Content-Type", &f.contentType)
		}
	case len("Authorization"): // or If-None-Match
		if field = httpfront.Match(name, "Authorization", &f.authorization); field == nil {
			field = httpfront.Match(name, "If-None-Match", &f.ifNoneMatch)
		}
	case len("traceparent"):
		if httpfront.EqualFold(name, "traceparent") {
			f.traceparent = value
		}
	case len("tracestate"):
		if httpfront.EqualFold(name, "tracestate") {
			f.tracestate = value
		}
	case len("Sec-Fetch-Site"):
		f.browser = f.browser || httpfront.EqualFold(name, "Sec-Fetch-Site")
	case len("Spillway-Client"): // or Accept-Language, or X-Request-Start
		if field = httpfront.Match(name, "Spillway-Client", &f.client); field == nil && httpfront.EqualFold(name, "X-Request-Start") {
			f.requestStart = value
		}
		f.browser = f.browser || httpfront.EqualFold(name, "Accept-Language")
	case len("Spillway-Priority"):
		field = httpfront.Match(name, "Spillway-Priority", &f.priority)
	case len("Spillway-Timeout-Ms"):
		field = httpfront.Match(name, "Spillway-Timeout-Ms", &f.timeout)
	case len("Access-Control-Request-Method"):
		f.preflight = f.preflight || httpfront.EqualFold(name, "Access-Control-Request-Method")
	case len("Spillway-Consistency"):
		field = httpfront.Match(name, "Spillway-Consistency", &f.consistency)
	}
	if field == nil {
		return nil
	}
	return httpfront.Once(field, name, value)
}

// setOrigin notes where the page of a browser comes from. With two it cannot be told.
func (f *fields) setOrigin(value []byte) {
	if f.origin != nil {
		value = value[:0]
	}
	f.browser, f.origin = true, value
}

var comma, semicolon = []byte(","), []byte(";")

// wantsNDJSON reports whether a client accepts application/x-ndjson by name,
// with a weight other than 0. Ranges of media types, such as */*, do not count:
// they accept the plain form as well.
func (f *fields) wantsNDJSON() bool {
	return listsNDJSON(f.accept) || slices.ContainsFunc(f.moreAccept, listsNDJSON)
}

// isNDJSON reports whether a media type is application/x-ndjson, whatever its parameters.
func isNDJSON(mediaType []byte) bool {
	name, _, _ := bytes.Cut(mediaType, semicolon)
	name = httpfront.Trim(name)
	return len(name) == len(typeNDJSON) && httpfront.EqualFold(name, typeNDJSON)
}

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

// The bounds of the headers that clients may send.
const (
	maxTimeout      = 3_600_000 // ms
	maxPriority     = 7
	defaultPriority = 3
	maxClientBytes  = 128
	maxTTL          = 630_720_000 // s, twenty years
)

// wishes are what a client asks for beside the operation itself.
type wishes struct {
	timeout  time.Duration // 0 if it did not say
	priority uint8
	client   []byte // empty if it did not say
	ttl      uint32 // of a value that is put, in seconds, 0 for never
	// consistency is for a distributed store; the embedded one has one copy of the
	// data, for which all are the same.
	consistency store.Consistency
}

// wishes checks and returns what the fields ask for.
func (f *fields) wishes() (w wishes, bad *httpfront.Problem) {
	w.priority = defaultPriority
	w.client = f.client
	if f.timeout != nil {
		n, ok := httpfront.ParseNumber(f.timeout)
		if !ok || n < 1 || n > maxTimeout {
			return w, badHeader("Spillway-Timeout-Ms", f.timeout, "a whole number from 1 to 3600000")
		}
		w.timeout = time.Duration(n) * time.Millisecond
	}
	if f.priority != nil {
		n, ok := httpfront.ParseNumber(f.priority)
		if !ok || n > maxPriority {
			return w, badHeader("Spillway-Priority", f.priority, "a whole number from 0 to 7")
		}
		w.priority = uint8(n)
	} else if f.urgency != nil {
		w.priority = f.urgency[0] - '0'
	}
	if len(f.client) > maxClientBytes {
		return w, badHeader("Spillway-Client", f.client, "at most 128 bytes")
	}
	if f.ttl != nil {
		n, ok := httpfront.ParseNumber(f.ttl)
		if !ok || n < 1 || n > maxTTL {
			return w, badHeader("Spillway-Ttl", f.ttl, "a whole number from 1 to 630720000")
		}
		w.ttl = uint32(n)
	}
	if f.consistency != nil {
		switch string(f.consistency) {
		case "one":
			w.consistency = store.ConsistencyOne
		case "quorum":
			w.consistency = store.ConsistencyQuorum
		case "all":
			w.consistency = store.ConsistencyAll
		default:
			return w, badHeader("Spillway-Consistency", f.consistency, "one, quorum or all")
		}
	}
	return w, nil
}

func badHeader(name string, value []byte, allowed string) *httpfront.Problem {
	return httpfront.BadRequest("header " + name + " is " + httpfront.Quote(value) + ", allowed: " + allowed)
}
