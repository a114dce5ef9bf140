package server

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/spillway-go/spillway/internal/store"
)

// fields are the header fields that matter, as they were sent. They refer to
// the bytes of the head. A nil slice means that the field was not sent.
type fields struct {
	host, contentLength, transferEncoding []byte
	authorization, expect                 []byte
	accept                                []byte // the first
	moreAccept                            [][]byte
	timeout, priority, client             []byte
	consistency                           []byte
	urgency                               []byte // of Priority; nil if none fits
	origin                                []byte // empty if there are several
	requestStart                          []byte
	ifMatch, ifNoneMatch                  []byte
	contentType                           []byte
	ttl                                   []byte

	preflight        bool // Access-Control-Request-Method was sent
	browser          bool // one of secure.BrowserMarks was sent
	close, keepAlive bool // options of Connection
	lines            int  // how many there are, of any name
}

// parseFields goes once over the lines of a header, which end with an empty
// one, each with CR LF. It is stricter than what parsed the head before: two
// readings of one message are how requests are smuggled.
func parseFields(raw []byte, f *fields) (bad *problem) {
	*f = fields{moreAccept: f.moreAccept[:0]}
	if len(raw) == 0 {
		return nil // as the parser has it, a header without fields has no last line either
	}
	for {
		line, colon, rest, wrong := cutLine(raw)
		if wrong != "" {
			return malformed(wrong)
		}
		if len(line) == 0 {
			return bad
		}
		raw = rest
		f.lines++
		if twice := f.set(line[:colon], trim(line[colon+1:])); twice != nil && bad == nil {
			bad = twice
		}
	}
}

var errBareLF = errors.New("a line of the header does not end in CR LF")

const lineEnd = "\r\n"

// cutLine splits lines behind the first, and returns that without its end, and where its
// colon is. The last line is empty. Otherwise it tells what is wrong.
func cutLine(lines []byte) (line []byte, colon int, rest []byte, wrong string) {
	end := bytes.IndexByte(lines, '\n')
	if end < 1 || lines[end-1] != '\r' {
		return nil, 0, nil, errBareLF.Error()
	}
	line, rest = lines[:end-1], lines[end+1:]
	if len(line) == 0 {
		return line, 0, rest, ""
	}
	if line[0] == ' ' || line[0] == '\t' {
		return nil, 0, nil, "the header has a folded line"
	}
	colon = bytes.IndexByte(line, ':')
	if colon < 1 {
		return nil, 0, nil, "the header has a line without a name: " + quote(line)
	}
	if bytes.IndexByte(line[:colon], ' ') >= 0 {
		return nil, 0, nil, "a header name has a space: " + quote(line[:colon])
	}
	return line, colon, rest, ""
}

// set notes a field if it matters.
func (f *fields) set(name, value []byte) *problem {
	var field *[]byte
	switch len(name) { // all but those that matter end here
	case len("Host"):
		field = match(name, "Host", &f.host)
	case len("Accept"): // or Expect, or Origin
		if field = match(name, "Expect", &f.expect); field == nil && equalFold(name, "Accept") {
			if f.accept != nil {
				f.moreAccept = append(f.moreAccept, value)
			} else {
				f.accept = value
			}
			return nil
		}
		if equalFold(name, "Origin") {
			f.setOrigin(value)
			return nil
		}
	case len("Priority"): // or If-Match
		if equalFold(name, "Priority") {
			f.urgency = urgency(value, f.urgency)
			return nil
		}
		field = match(name, "If-Match", &f.ifMatch)
	case len("Spillway-Ttl"): // or Content-Type
		if field = match(name, "Spillway-Ttl", &f.ttl); field == nil {
			field = match(name, "Content-Type", &f.contentType)
		}
	case len("Connection"):
		if equalFold(name, "Connection") {
			f.parseConnection(value)
		}
		return nil
	case len("Authorization"): // or If-None-Match
		if field = match(name, "Authorization", &f.authorization); field == nil {
			field = match(name, "If-None-Match", &f.ifNoneMatch)
		}
	case len("Content-Length"): // or Sec-Fetch-Site
		field = match(name, "Content-Length", &f.contentLength)
		f.browser = f.browser || equalFold(name, "Sec-Fetch-Site")
	case len("Spillway-Client"): // or Accept-Language, or X-Request-Start
		if field = match(name, "Spillway-Client", &f.client); field == nil && equalFold(name, "X-Request-Start") {
			f.requestStart = value
		}
		f.browser = f.browser || equalFold(name, "Accept-Language")
	case len("Transfer-Encoding"): // or Spillway-Priority
		if field = match(name, "Transfer-Encoding", &f.transferEncoding); field == nil {
			field = match(name, "Spillway-Priority", &f.priority)
		}
	case len("Spillway-Timeout-Ms"):
		field = match(name, "Spillway-Timeout-Ms", &f.timeout)
	case len("Access-Control-Request-Method"):
		f.preflight = f.preflight || equalFold(name, "Access-Control-Request-Method")
	case len("Spillway-Consistency"):
		field = match(name, "Spillway-Consistency", &f.consistency)
	}
	if field == nil {
		return nil
	}
	if *field != nil {
		bad := badRequest("the header " + string(name) + " is given more than once")
		bad.close = true
		return bad
	}
	*field = value
	return nil
}

// setOrigin notes where the page of a browser comes from. With two it cannot be told.
func (f *fields) setOrigin(value []byte) {
	if f.origin != nil {
		value = value[:0]
	}
	f.browser, f.origin = true, value
}

// match returns field if it has that name.
func match(name []byte, want string, field *[]byte) *[]byte {
	if equalFold(name, want) {
		return field
	}
	return nil
}

// equalFold compares a with b, of the same length, whose letters are ASCII's,
// without regard to case.
func equalFold(a []byte, b string) bool {
	for i := range a {
		if x, y := a[i], b[i]; x != y {
			if x ^= 0x20; x != y || x|0x20 < 'a' || x|0x20 > 'z' {
				return false
			}
		}
	}
	return true
}

func (f *fields) parseConnection(value []byte) {
	for len(value) > 0 {
		var option []byte
		option, value, _ = bytes.Cut(value, comma)
		switch option = trim(option); {
		case len(option) == len("close") && equalFold(option, "close"):
			f.close = true
		case len(option) == len("keep-alive") && equalFold(option, "keep-alive"):
			f.keepAlive = true
		}
	}
}

var comma, semicolon = []byte(","), []byte(";")

// trim removes spaces and tabs at both ends. The result is nil only if b is.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// wantsNDJSON reports whether a client accepts application/x-ndjson by name,
// with a weight other than 0. Ranges of media types, such as */*, do not count:
// they accept the plain form as well.
func (f *fields) wantsNDJSON() bool {
	return listsNDJSON(f.accept) || slices.ContainsFunc(f.moreAccept, listsNDJSON)
}

// isNDJSON reports whether a media type is application/x-ndjson, whatever its parameters.
func isNDJSON(mediaType []byte) bool {
	name, _, _ := bytes.Cut(mediaType, semicolon)
	name = trim(name)
	return len(name) == len(typeNDJSON) && equalFold(name, typeNDJSON)
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
			if key = trim(key); len(key) == 1 && key[0]|0x20 == 'q' {
				wanted = len(bytes.Trim(trim(weight), "0.")) > 0
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
func (f *fields) wishes() (w wishes, bad *problem) {
	w.priority = defaultPriority
	w.client = f.client
	if f.timeout != nil {
		n, ok := parseNumber(f.timeout)
		if !ok || n < 1 || n > maxTimeout {
			return w, badHeader("Spillway-Timeout-Ms", f.timeout, "a whole number from 1 to 3600000")
		}
		w.timeout = time.Duration(n) * time.Millisecond
	}
	if f.priority != nil {
		n, ok := parseNumber(f.priority)
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
		n, ok := parseNumber(f.ttl)
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
