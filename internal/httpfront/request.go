package httpfront

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
)

// Request is what the head of a request says. Its slices are valid until the request is
// answered.
type Request struct {
	Method    string // a name of HTTP's, or "other"
	RawMethod []byte
	Target    []byte // in origin form
	Authority []byte // of a target that was in absolute form, nil otherwise
	Host      []byte
	HTTP10    bool
	// Arrival is when the request came, on the clock of arrivals. A handler may move it
	// back in Head.
	Arrival int64
	// Body is there when Serve is called, if Head has asked for it.
	Body []byte
}

// Wanted is what a handler does with the body of a request.
type Wanted struct {
	Most int    // how long it may be
	Keep bool   // whether it is kept; otherwise it is read and dropped
	Name string // what to call it when it is too large

	// Stream says that Serve reads the body, of any length, by ReadBody, but for the first
	// Ahead bytes, which are there before. Of a client that waits for 100 Continue none are.
	Stream bool
	Ahead  int
	// Takes says that Serve may Take the connection, and is only for what is streamed.
	Takes bool
}

// inbound is the request being read. All slices refer to the reader or to head.
type inbound struct {
	Request
	small  *bufio.Reader // for heads that are small, as nearly all are
	reader *bufio.Reader // that, or one that holds the largest head
	head   fasthttp.RequestHeader
	begun  int64 // when the time to send the request began, 0 if it has not
	parsed bool  // the head is, and the body has not been received

	framing                    // what the lines of the head say of it
	isHead, keepAlive, expects bool
	length                     int // of the body: chunked, or how many bytes
	wanted                     Wanted
	body
	stream stream
}

// chunked is the length of a body that does not say how long it is.
const chunked = -1

// framing are the fields that say where a request ends, and what comes behind it. A nil
// slice means that the field was not sent.
type framing struct {
	contentLength, transferEncoding, expect []byte
	close, goOn                             bool // options of Connection
	lines                                   int  // how many there are, of any name
}

// receive waits for the request, as far as it is needed to answer. If it would have to
// wait and may not, it returns errNothingYet, and goes on when it is called again.
func (x *Exchange) receive() (bad *Problem, err error) {
	if !x.parsed {
		if !x.skipEmptyLines() {
			return nil, errNothingYet
		}
		x.status, x.begun = 0, 0
		if bad, err = x.readHead(); bad != nil || err != nil {
			return bad, err
		}
		bad = x.parseHead()
		x.shedFields(bad != nil && bad.Close)
		if bad != nil {
			return bad, nil
		}
	}
	bad, err = x.receiveBody()
	x.parsed = errors.Is(err, errNothingYet)
	return bad, err
}

// skipEmptyLines drops what some clients send after a body, and reports whether
// more than that was there.
func (x *Exchange) skipEmptyLines() bool {
	b, _ := x.reader.Peek(x.reader.Buffered())
	n := 0
	for n < len(b) && (b[n] == '\r' || b[n] == '\n') {
		n++
	}
	_, _ = x.reader.Discard(n)
	return n < len(b)
}

// readHead waits until a whole head is in the reader.
func (x *Exchange) readHead() (*Problem, error) {
	x.Request, x.length, x.wanted = Request{Method: "other"}, chunked, Wanted{}
	x.isHead, x.keepAlive = false, false
	x.call.Begin()
	err := x.awaitLines()
	switch {
	case err == nil && x.conn.front.opts.HTTP2 != nil && x.speaksHTTP2():
		if x.conn.fd >= 0 {
			return nil, errNothingYet
		}
		return nil, errPreface
	case errors.Is(err, errBareLF):
		return malformed(err.Error()), nil
	case !errors.Is(err, errLong):
		return nil, err
	}
	limits := &x.conn.front.opts.HeadLimits
	if b, _ := x.reader.Peek(x.reader.Buffered()); bytes.IndexByte(b, '\n') < 0 {
		return &Problem{Status: fasthttp.StatusRequestURITooLong, Close: true, Detail: "the request line is too long, allowed: " + limits[0]}, nil
	}
	return &Problem{Status: fasthttp.StatusRequestHeaderFieldsTooLarge, Close: true, Detail: "the headers are too long, allowed: " + limits[1]}, nil
}

// The ends of lines, of a head that is right, and of one that others may take for one.
const lineEnd = "\r\n"

var (
	emptyLine, emptyLineByLF, emptyLineBehindLF = []byte("\r\n\r\n"), []byte("\n\n"), []byte("\n\r\n")

	errBareLF = errors.New("a line of the header does not end in CR LF")
	errLong   = errors.New("the lines are too long")
)

// awaitLines waits until lines up to an empty one are in the reader. It returns errLong if
// there is no room for them, and errBareLF as soon as that is seen before an empty line.
func (x *Exchange) awaitLines() error {
	for seen, begun := 0, false; ; {
		b, _ := x.reader.Peek(x.reader.Buffered())
		// Only what is new is searched: a head may come a byte at a time.
		fresh := b[max(0, seen-len(emptyLine)):]
		if bytes.Contains(fresh, emptyLine) {
			return nil
		}
		if bytes.Contains(fresh, emptyLineByLF) || bytes.Contains(fresh, emptyLineBehindLF) {
			return errBareLF
		}
		if seen = len(b); seen == x.reader.Size() && !x.growReader() {
			return errLong
		}
		if !begun && !x.stream.reading {
			// The answers before must not wait for the client.
			x.flush()
			x.startClock()
			begun = true
		}
		if _, err := x.reader.Peek(seen + 1); err != nil {
			return err
		}
	}
}

// growReader exchanges the reader for one that has room for the largest head,
// and reports whether it was not the large one before.
func (x *Exchange) growReader() bool {
	if x.reader != x.small {
		return false
	}
	large := x.conn.front.largeReaders.Get().(*bufio.Reader)
	buffered, _ := x.small.Peek(x.small.Buffered())
	x.conn.carried = buffered
	large.Reset(x.conn)
	_, _ = large.Peek(len(buffered)) // takes over what is carried: cannot fail
	x.reader = large
	return true
}

// startClock starts the time that the client has to send a request: one for the head
// and the body together.
func (x *Exchange) startClock() {
	c := x.conn
	if x.begun == 0 {
		x.begun = c.now()
	}
	if x.Arrival == 0 {
		x.Arrival = x.begun
	}
	c.until = x.begun + int64(c.front.limits.Load().ReadTimeout)
	c.arm()
}

// parseHead takes the head out of the reader, and asks the handler what is to be done.
func (x *Exchange) parseHead() *Problem {
	x.Arrival = x.conn.now()
	// The parser takes a lone LF for the end of the request line, as it does for
	// that of a field.
	b, _ := x.reader.Peek(x.reader.Buffered())
	if end := bytes.IndexByte(b, '\n'); end < 1 || b[end-1] != '\r' {
		return malformed("the request line does not end in CR LF")
	}
	if err := x.head.Read(x.reader); err != nil {
		return malformed(parserSays(err))
	}
	x.RawMethod = x.head.Method()
	x.Method = methodName(x.RawMethod)
	x.isHead = x.Method == fasthttp.MethodHead
	switch string(x.head.Protocol()) {
	case "HTTP/1.1":
	case "HTTP/1.0":
		x.HTTP10 = true
	default:
		return &Problem{Status: fasthttp.StatusHTTPVersionNotSupported, Close: true,
			Detail: "the version is " + Quote(x.head.Protocol()) + ", allowed: HTTP/1.1 and HTTP/1.0"}
	}
	if bad := x.parseFields(x.head.RawHeaders()); bad != nil {
		return bad
	}
	if bad := x.parseFraming(); bad != nil {
		return bad
	}
	x.Authority, x.Target = splitTarget(x.head.RequestURI())
	var bad *Problem
	if x.wanted, bad = x.call.Head(); bad != nil {
		return bad
	}
	if !x.wanted.Stream && x.length > x.wanted.Most {
		return x.tooLarge(strconv.Itoa(x.length) + " bytes")
	}
	return nil
}

// parseFields goes once over the lines of a header, which end with an empty
// one, each with CR LF. It is stricter than what parsed the head before: two
// readings of one message are how requests are smuggled.
func (x *Exchange) parseFields(raw []byte) (bad *Problem) {
	x.framing = framing{}
	for len(raw) > 0 { // as the parser has it, a header without fields has no last line either
		line, colon, rest, wrong := cutLine(raw)
		if wrong != "" {
			return malformed(wrong)
		}
		if len(line) == 0 {
			break
		}
		raw = rest
		x.lines++
		if twice := x.setField(line[:colon], Trim(line[colon+1:])); twice != nil && bad == nil {
			bad = twice
		}
	}
	return bad
}

// cutLine splits lines behind the first, and returns that without its end, and where its
// colon is. The last line is empty. Otherwise it says what is wrong.
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
		return nil, 0, nil, "the header has a line without a name: " + Quote(line)
	}
	if bytes.IndexByte(line[:colon], ' ') >= 0 {
		return nil, 0, nil, "a header name has a space: " + Quote(line[:colon])
	}
	return line, colon, rest, ""
}

// setField notes a field of the framing, and gives others to the handler.
func (x *Exchange) setField(name, value []byte) *Problem {
	var lower Lower
	var once *[]byte
	switch string(lower.Of(name)) {
	case "connection":
		x.parseConnection(value)
	case "content-length":
		once = &x.contentLength
	case "expect":
		once = &x.expect
	case "host":
		once = &x.Host
	case "transfer-encoding":
		once = &x.transferEncoding
	}
	if once == nil {
		return x.call.Field(name, value)
	}
	return Once(once, name, value)
}

// Once notes the value of a field that may be given once. Which of two others read is
// unknown, so then the connection ends.
func Once(field *[]byte, name, value []byte) *Problem {
	if *field != nil {
		bad := BadRequest("the header " + string(name) + " is given more than once")
		bad.Close = true
		return bad
	}
	*field = value
	return nil
}

func (f *framing) parseConnection(value []byte) {
	for len(value) > 0 {
		var option []byte
		option, value, _ = bytes.Cut(value, comma)
		switch option = Trim(option); {
		case EqualFold(option, "close"):
			f.close = true
		case EqualFold(option, "keep-alive"):
			f.goOn = true
		}
	}
}

var comma = []byte(",")

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
func (x *Exchange) parseFraming() *Problem {
	f := &x.framing
	for _, b := range x.Host {
		if !inHost[b] {
			return malformed("Host is " + Quote(x.Host) + ", allowed: a name or an address, and a port")
		}
	}
	x.keepAlive = !f.close && (!x.HTTP10 || f.goOn)
	x.expects = false
	if f.transferEncoding == nil {
		// The parser has checked that it is one number, but not that the number
		// is in the way that everybody else reads it.
		x.length = 0
		if f.contentLength != nil {
			n, ok := ParseNumber(f.contentLength)
			if !ok {
				return malformed("Content-Length is " + Quote(f.contentLength) + ", allowed: decimal digits")
			}
			x.length = n
		}
	} else {
		if x.HTTP10 {
			return malformed("Transfer-Encoding is given in HTTP/1.0")
		}
		if f.contentLength != nil {
			return malformed("both Content-Length and Transfer-Encoding are given")
		}
		if !EqualFold(f.transferEncoding, "chunked") {
			return malformed("Transfer-Encoding is " + Quote(f.transferEncoding) + ", allowed: chunked")
		}
	}
	if f.expect != nil && !x.HTTP10 {
		if !EqualFold(f.expect, "100-continue") {
			return &Problem{Status: fasthttp.StatusExpectationFailed, Detail: "Expect is " + Quote(f.expect) + ", allowed: 100-continue"}
		}
		x.expects = x.length != 0
	}
	return nil
}

// splitTarget splits a target in absolute form. Others have no authority.
func splitTarget(target []byte) (authority, origin []byte) {
	_, rest, absolute := bytes.Cut(target, []byte("://"))
	if !absolute || target[0] == '/' {
		return nil, target
	}
	if end := bytes.IndexAny(rest, "/?"); end >= 0 {
		return rest[:end], rest[end:]
	}
	return rest, nil
}

// speaksHTTP2 reports whether the head is the preface of HTTP/2.
func (x *Exchange) speaksHTTP2() bool {
	b, _ := x.reader.Peek(min(x.reader.Buffered(), len(preface)))
	return bytes.Equal(b, preface)
}

// KeptLines is how many lines a head may have whose fields the exchange keeps
// the room of. The parser's is twenty times the bytes of the shortest lines.
const KeptLines = 64

// shedFields gives up the room of the fields of an unusual head: it would be
// held while the request waits, and then by the exchange. What the request
// refers to stays.
func (x *Exchange) shedFields(ends bool) {
	if ends || x.lines > KeptLines {
		x.head = fasthttp.RequestHeader{}
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

// fail ends the connection after the request could not be received.
func (x *Exchange) fail(err error) {
	c := x.conn
	if c.readErr != nil {
		err = c.readErr // others hide some
	}
	var bad *Problem
	switch {
	case errors.Is(err, ErrSlow):
		bad = &Problem{Status: fasthttp.StatusRequestTimeout, Detail: "the request did not arrive in full within " + c.front.limits.Load().ReadTimeout.String()}
	case errors.Is(err, io.EOF):
		bad = malformed("it ended too early")
	case c.readErr != nil:
		c.broken, c.ending = err, true // nobody is there to answer to
		return
	case errors.Is(err, errTooLarge):
		bad = x.tooLarge("more bytes")
	case errors.Is(err, errLong):
		bad = &Problem{Status: fasthttp.StatusRequestHeaderFieldsTooLarge, Detail: "the trailers are too long"}
	default:
		bad = malformed("the chunked body is broken: " + parserSays(err))
	}
	bad.Close = true
	x.refuse(bad)
}

// tooLarge refuses a body of that size.
func (x *Exchange) tooLarge(size string) *Problem {
	w := &x.wanted
	return &Problem{Status: fasthttp.StatusRequestEntityTooLarge, Close: true,
		Detail: "the " + w.Name + " has " + size + ", allowed: at most " + strconv.Itoa(w.Most) + " bytes"}
}

// refuse answers a request that is not carried out. If some of it has
// not arrived yet, the connection ends.
func (x *Exchange) refuse(bad *Problem) {
	partly := len(x.Body) > 0 && x.held == 0 // has been taken out of the reader
	if bad.Close || partly || x.length < 0 || x.length > x.reader.Buffered() {
		bad.Close, x.conn.lingering = true, true
	} else {
		x.held = x.length
	}
	x.Send(Answer{Problem: bad})
}
