package server

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/secure"
)

// request is what the head of a request says. Its slices refer to the exchange.
type request struct {
	method     string // a name of HTTP's, or "other"
	head       bool   // the method is HEAD
	keepAlive  bool   // the connection goes on after the answer
	http10     bool
	isRange    bool
	isBatch    bool
	ndjson     bool
	preflight  bool   // a browser asks whether a page may send a request
	cors       string // header lines that answers have, for browsers
	expects    bool   // the client waits for 100 before it sends the body
	arrival    int64
	key        []byte
	list       list // of a range, beside the key that it starts with
	bodyLength int  // chunked, or how many bytes
	wishes     wishes

	ifMatch, ifNoneMatch tagList
}

// chunked is the length of a body that does not say how long it is.
const chunked = -1

const (
	pathEntity   = "/v0/entity"
	pathEntities = "/v0/entities"
	typeNDJSON   = "application/x-ndjson"
)

// parseHead fills c.req from the head that lies in the reader, which it takes
// out.
func (c *conn) parseHead() *problem {
	x, q := c.x, &c.req
	*q = request{method: "other", bodyLength: chunked, arrival: c.now()}
	// The parser takes a lone LF for the end of the request line, as it does for
	// that of a field.
	b, _ := c.reader.Peek(c.reader.Buffered())
	if end := bytes.IndexByte(b, '\n'); end < 1 || b[end-1] != '\r' {
		return malformed("the request line does not end in CR LF")
	}
	if err := x.head.Read(c.reader); err != nil {
		return malformed(parserSays(err))
	}
	q.method = methodName(x.head.Method())
	q.head = q.method == fasthttp.MethodHead
	switch string(x.head.Protocol()) {
	case "HTTP/1.1":
	case "HTTP/1.0":
		q.http10 = true
	default:
		return &problem{status: fasthttp.StatusHTTPVersionNotSupported, close: true,
			detail: "the version is " + quote(x.head.Protocol()) + ", allowed: HTTP/1.1 and HTTP/1.0"}
	}
	bad := parseFields(x.head.RawHeaders(), &x.fields)
	var mayCall bool
	q.cors, mayCall = c.server.cors.lines(x.fields.origin)
	if bad != nil {
		return bad
	}
	q.preflight = mayCall && x.fields.preflight && q.method == fasthttp.MethodOptions
	if bad := c.parseFraming(); bad != nil {
		return bad
	}
	return c.parseRequest()
}

// keptLines is how many lines a head may have whose fields the exchange keeps
// the room of. The parser's is twenty times the bytes of the shortest lines.
const keptLines = 64

// shedFields gives up the room of the fields of an unusual head: it would be
// held while the request waits, and then by the exchange. What the request
// refers to stays.
func (x *exchange) shedFields(ends bool) {
	if ends || x.fields.lines > keptLines {
		x.head, x.fields = fasthttp.RequestHeader{}, fields{}
	}
}

// parserSays returns what the parser found, without the context it adds.
func parserSays(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	const most = 160
	if s := err.Error(); len(s) > most {
		return s[:most] + "…"
	}
	return err.Error()
}

// inHost are the bytes that a host and a port may consist of (RFC 3986, 3.2.2).
var inHost = func() (in [256]bool) {
	const marks = "-._~%!$&'()*+,;=:[]"
	for b := range in {
		in[b] = '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z' || strings.IndexByte(marks, byte(b)) >= 0
	}
	return in
}()

// parseFraming finds out where the request ends, and whether the connection
// goes on then.
func (c *conn) parseFraming() *problem {
	f, q := &c.x.fields, &c.req
	for _, b := range f.host {
		if !inHost[b] {
			return malformed("Host is " + quote(f.host) + ", allowed: a name or an address, and a port")
		}
	}
	q.keepAlive = !f.close && (!q.http10 || f.keepAlive)
	if f.transferEncoding == nil {
		// The parser has checked that it is one number, but not that the number
		// is in the way that everybody else reads it.
		q.bodyLength = 0
		if f.contentLength != nil {
			n, ok := parseNumber(f.contentLength)
			if !ok {
				return malformed("Content-Length is " + quote(f.contentLength) + ", allowed: decimal digits")
			}
			q.bodyLength = n
		}
	} else {
		if f.contentLength != nil {
			return malformed("both Content-Length and Transfer-Encoding are given")
		}
		if len(f.transferEncoding) != len("chunked") || !equalFold(f.transferEncoding, "chunked") {
			return malformed("Transfer-Encoding is " + quote(f.transferEncoding) + ", allowed: chunked")
		}
	}
	if f.expect != nil && !q.http10 {
		if len(f.expect) != len("100-continue") || !equalFold(f.expect, "100-continue") {
			return &problem{status: fasthttp.StatusExpectationFailed, detail: "Expect is " + quote(f.expect) + ", allowed: 100-continue"}
		}
		q.expects = q.bodyLength != 0
	}
	return nil
}

// parseRequest finds out what the request asks for.
func (c *conn) parseRequest() *problem {
	o, x, q := &c.server.opts, c.x, &c.req
	if q.preflight { // which browsers send without the token
		return nil
	}
	if !o.Token.Allows(x.fields.authorization) {
		return &problem{status: fasthttp.StatusUnauthorized, header: "WWW-Authenticate: Bearer\r\n",
			detail: "the header Authorization does not carry the bearer token of this service"}
	}
	if x.fields.browser && c.server.guarded && !secure.OwnName(string(x.fields.host), o.AllowedHosts...) {
		return &problem{status: fasthttp.StatusForbidden, detail: "without SPILLWAY_DATA_TOKEN browsers are answered here under an IP address, localhost, " +
			"or a name in SPILLWAY_ALLOWED_HOSTS, not under " + quote(x.fields.host)}
	}
	path, query, _ := bytes.Cut(originForm(x.head.RequestURI()), questionMark)
	switch string(path) {
	case pathEntity:
		switch q.method {
		case fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodPut, fasthttp.MethodDelete:
		default:
			return notAllowed(x.head.Method(), path, "GET, HEAD, PUT, DELETE")
		}
	case pathEntities:
		switch q.method {
		case fasthttp.MethodGet:
			q.isRange = true
		case fasthttp.MethodPost:
			q.isBatch = true
		default:
			return notAllowed(x.head.Method(), path, "GET, POST")
		}
	default:
		return badRequest("the path is " + quote(path) + ", allowed: " + pathEntity + " and " + pathEntities)
	}
	var p parameters
	var bad *problem
	if p, x.decoded, bad = parseQuery(query, x.decoded); bad != nil {
		return bad
	}
	switch {
	case q.isBatch:
		if !isNDJSON(x.fields.contentType) {
			// Anything else a browser would send for any page, without asking first.
			return &problem{status: fasthttp.StatusUnsupportedMediaType,
				detail: "header Content-Type is " + quote(x.fields.contentType) + ", allowed: " + typeNDJSON}
		}
		if f := &x.fields; f.ifMatch != nil || f.ifNoneMatch != nil || f.ttl != nil {
			return badRequest("the headers If-Match, If-None-Match and Spillway-Ttl mean nothing for a batch: its operations have the fields if_match, if_none_match and ttl")
		}
	case q.isRange:
		q.ndjson = x.fields.wantsNDJSON()
		x.decoded, bad = q.setRange(p, o.MaxKeyBytes, x.decoded)
	default:
		q.key = p.id
		bad = checkKey("id", p.id, o.MaxKeyBytes)
		if bad == nil {
			bad = q.setConditions(&x.fields)
		}
	}
	if bad != nil {
		return bad
	}
	if q.wishes, bad = x.fields.wishes(); bad != nil {
		return bad
	}
	if o.TrustRequestStart && x.fields.requestStart != nil {
		q.arrival = movedBack(q.arrival, x.fields.requestStart, time.Now())
	}
	if q.bodyLength > c.mostBody() {
		return c.tooLarge(strconv.Itoa(q.bodyLength) + " bytes")
	}
	return nil
}

// mostBody returns how many bytes the body of the request may have. A batch that is
// larger than the budget of all bodies would never be let in, and so is too large.
func (c *conn) mostBody() int {
	o := &c.server.opts
	if c.req.isBatch {
		return int(min(int64(o.MaxBatchBytes), o.MaxBodyBytes))
	}
	return o.MaxValueBytes
}

var questionMark = []byte("?")

// originForm strips the scheme and the host of a target that has them.
func originForm(target []byte) []byte {
	if target[0] == '/' {
		return target
	}
	_, rest, ok := bytes.Cut(target, []byte("://"))
	if !ok {
		return target
	}
	for i, c := range rest {
		if c == '/' || c == '?' {
			return rest[i:]
		}
	}
	return nil
}

func notAllowed(method, path []byte, allow string) *problem {
	return &problem{status: fasthttp.StatusMethodNotAllowed, header: "Allow: " + allow + "\r\n",
		detail: "the method of " + string(path) + " is " + quote(method) + ", allowed: " + allow}
}

// tooLarge refuses a body of that size.
func (c *conn) tooLarge(size string) *problem {
	what := "value"
	if c.req.isBatch {
		what = "batch"
	}
	return &problem{status: fasthttp.StatusRequestEntityTooLarge, close: true,
		detail: "the " + what + " has " + size + ", allowed: at most " + strconv.Itoa(c.mostBody()) + " bytes"}
}

func checkKey(name string, key []byte, most int) *problem {
	switch {
	case key == nil:
		return badRequest("the parameter " + name + " is missing")
	case len(key) == 0:
		return badRequest("the parameter " + name + " is empty, allowed: at least one byte")
	case len(key) > most:
		return &problem{status: fasthttp.StatusRequestURITooLong,
			detail: "the parameter " + name + " has " + strconv.Itoa(len(key)) + " bytes, allowed: at most " + strconv.Itoa(most)}
	}
	return nil
}

// methods are those that have a name here.
var methods = [...]string{
	fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodPut, fasthttp.MethodDelete, fasthttp.MethodPost,
	fasthttp.MethodPatch, fasthttp.MethodOptions,
}

// methodName returns the method as a string that need not be allocated.
func methodName(m []byte) string {
	for _, name := range methods {
		if name == string(m) {
			return name
		}
	}
	return "other"
}
