package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spillway-go/spillway/internal/httpfront"
)

// What upstreams may send, in bytes and in answers before the one that counts.
const (
	maxHead    = 64 << 10
	maxInterim = 32
)

var (
	errNotHTTP    = errors.New("it is no answer of HTTP/1.1")
	errHeadLong   = fmt.Errorf("its head has more than %d bytes", maxHead)
	errFraming    = errors.New("it says in more than one way how long it is")
	errInterim    = fmt.Errorf("more than %d interim answers came before it", maxInterim)
	errUpgrade    = errors.New("it switches to a protocol that nobody asked for")
	errIncomplete = errors.New("the connection ended within the answer")
)

// The lengths of bodies that are no number of bytes.
const (
	inChunks = -1
	untilEnd = -2
)

// reply reads the answers that come over a connection of an upstream, one after another.
type reply struct {
	r    *bufio.Reader
	text []byte // of the head

	head     httpfront.Head // without hop-by-hop fields
	options  options        // of Connection
	length   int            // of the body: bytes, inChunks or untilEnd
	keeps    bool           // the connection goes on after it
	events   bool           // it is an event stream
	protocol []byte         // the protocol that it switches to

	chunks   httpfront.Chunks
	left     int // of the body, or of the present chunk
	ended    bool
	trailers []byte
}

// readHead reads the next head: an interim one if its status is of class 1xx. The method is
// that of the request.
func (a *reply) readHead(head bool) error {
	a.text = a.text[:0]
	for lines := 0; ; lines++ {
		line, err := a.r.ReadSlice('\n')
		a.text = append(a.text, line...)
		switch {
		case len(a.text) > maxHead:
			return errHeadLong
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			if len(a.text) > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if lines == 0 && !bytes.HasPrefix(a.text, []byte("HTTP/1.")) {
			return errNotHTTP // at once, as there may be no other line
		}
		if len(line) == 1 || len(line) == 2 && line[0] == '\r' {
			break
		}
	}
	return a.parse(head)
}

// parse takes the head in a.text.
func (a *reply) parse(toHEAD bool) error {
	status, rest, _ := bytes.Cut(a.text, newline)
	minor, ok := a.parseStatus(bytes.TrimSuffix(status, []byte("\r")))
	if !ok {
		return errNotHTTP
	}
	var length, encoding []byte
	h := &a.head
	h.Lines, h.Dated, a.events, a.options, a.protocol = h.Lines[:0], false, false, a.options[:0], nil
	for len(rest) > 0 {
		var name, value []byte
		if name, value, rest, ok = cutField(rest); !ok {
			return errNotHTTP
		}
		if name == nil {
			break
		}
		switch kindOf(name) {
		case hopConnection:
			a.options = append(append(a.options, value...), ',')
		case framedLength:
			if length != nil && !bytes.Equal(length, value) {
				return errFraming
			}
			length = value
		case framedEncoding:
			if encoding != nil {
				return errFraming
			}
			encoding = value
		case hopUpgrade:
			a.protocol = value
		case hop, shedField:
		case dated:
			h.Dated = true
			h.Lines = appendField(h.Lines, name, value)
		case contentType:
			a.events = isEventStream(value)
			h.Lines = appendField(h.Lines, name, value)
		default:
			h.Lines = appendField(h.Lines, name, value)
		}
	}
	h.Lines = a.options.without(h.Lines)
	h.Lines = append(h.Lines, "Via: 1."...)
	h.Lines = append(append(h.Lines, minor), " "+via+"\r\n"...)
	a.keeps = !a.options.has([]byte("close")) && (minor == '1' || a.options.has([]byte("keep-alive")))
	return a.frame(length, encoding, minor, toHEAD)
}

var newline = []byte("\n")

// parseStatus takes the first line, and returns the minor version.
func (a *reply) parseStatus(line []byte) (minor byte, ok bool) {
	const least = len("HTTP/1.1 200")
	if len(line) < least || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[7] != '0' && line[7] != '1' || line[8] != ' ' {
		return 0, false
	}
	status, ok := httpfront.ParseNumber(line[9:least])
	if !ok || status < 100 || len(line) > least && line[least] != ' ' || !isValue(line) {
		return 0, false
	}
	a.head.Status, a.head.Reason = status, httpfront.Trim(line[least:])
	return line[7], true
}

// frame finds out where the body ends.
func (a *reply) frame(length, encoding []byte, minor byte, toHEAD bool) error {
	status, h := a.head.Status, &a.head
	a.chunks, a.trailers, a.left, a.ended = httpfront.Chunks{}, a.trailers[:0], 0, false
	a.length, h.Length = untilEnd, httpfront.Unknown
	switch {
	case encoding != nil:
		if length != nil || minor == '0' || !is(encoding, "chunked") {
			return errFraming
		}
		a.length = inChunks
	case length != nil:
		n, ok := httpfront.ParseNumber(length)
		if !ok {
			return errFraming
		}
		a.length, h.Length, a.left = n, n, n
	}
	switch {
	case status == http.StatusNoContent || status < 200:
		h.Length, a.length, a.ended = httpfront.None, 0, true
	case status == http.StatusNotModified || toHEAD:
		if h.Length < 0 && status == http.StatusNotModified {
			h.Length = httpfront.None
		}
		a.length, a.ended = 0, true
	case a.length == 0:
		a.ended = true
	case a.length == untilEnd:
		a.keeps = false
	}
	return nil
}

// next returns bytes of the body that have arrived, at least one, or waits for them. They are
// valid until the next call. At the end of the body it returns io.EOF. If it would have to
// wait, it calls wait before.
func (a *reply) next(wait func()) ([]byte, error) {
	for !a.ended {
		if a.length == inChunks && a.left == 0 {
			if err := a.nextChunk(wait); err != nil {
				return nil, incomplete(err)
			}
			continue
		}
		if a.r.Buffered() == 0 {
			wait()
		}
		if _, err := a.r.Peek(1); err != nil {
			if a.length == untilEnd && errors.Is(err, io.EOF) {
				a.ended = true
				break
			}
			return nil, incomplete(err)
		}
		n := a.r.Buffered()
		if a.length != untilEnd {
			n = min(n, a.left)
			if a.left -= n; a.left == 0 && a.length >= 0 {
				a.ended = true
			}
		}
		b, _ := a.r.Peek(n)
		_, _ = a.r.Discard(n) // which leaves the bytes where they are
		return b, nil
	}
	return nil, io.EOF
}

func incomplete(err error) error {
	if errors.Is(err, io.EOF) {
		return errIncomplete
	}
	return err
}

// nextChunk takes the line before a chunk, or the trailers.
func (a *reply) nextChunk(wait func()) (err error) {
	// The end of the chunk before may be there without the line of the next one.
	b, _ := a.r.Peek(a.r.Buffered())
	if bytes.IndexByte(b[min(len(b), len(lineEnd)):], '\n') < 0 {
		wait()
	}
	if a.left, err = a.chunks.Next(a.r); err != nil || a.left > 0 {
		return err
	}
	var lines []byte
	for {
		b, _ := a.r.Peek(a.r.Buffered())
		if bytes.IndexByte(b, '\n') < 0 {
			wait()
		}
		line, err := a.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if lines = append(lines, line...); len(lines) > maxHead {
			return errHeadLong
		}
		if len(line) == 1 || len(line) == 2 && line[0] == '\r' {
			break
		}
	}
	var ok bool
	if a.trailers, ok = filterTrailers(a.trailers[:0], lines); !ok {
		return errNotHTTP
	}
	a.ended = true
	return nil
}

// filterTrailers appends those of the lines that may pass as trailers: what says where a
// message ends, where it goes or whether it was turned away may not.
func filterTrailers(dst, lines []byte) (_ []byte, ok bool) {
	for len(lines) > 0 {
		var name, value []byte
		if name, value, lines, ok = cutField(lines); !ok || name == nil {
			return dst, ok
		}
		if k := kindOf(name); k == plain || k == traceParent || k == traceState {
			dst = appendField(dst, name, value)
		}
	}
	return dst, true
}

// cutField splits lines behind the first, and returns its name and value, no name if it is
// empty. It reports whether it is a field, or empty.
func cutField(lines []byte) (name, value, rest []byte, ok bool) {
	line, rest, _ := bytes.Cut(lines, newline)
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 {
		return nil, nil, rest, true
	}
	colon := bytes.IndexByte(line, ':')
	if colon < 1 || !isToken(line[:colon]) || !isValue(line[colon+1:]) {
		return nil, nil, nil, false
	}
	return line[:colon], httpfront.Trim(line[colon+1:]), rest, true
}

func appendField(dst, name, value []byte) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

// without removes the lines of a head that the options name.
func (o options) without(lines []byte) []byte {
	if len(o) == 0 {
		return lines
	}
	kept := lines[:0]
	for len(lines) > 0 {
		end := bytes.IndexByte(lines, '\n') + 1
		if !o.has(lines[:bytes.IndexByte(lines, ':')]) {
			kept = append(kept, lines[:end]...)
		}
		lines = lines[end:]
	}
	return kept
}

// kind says what becomes of a field.
type kind uint8

const (
	plain kind = iota // it passes
	hop               // it is for this connection alone
	hopConnection
	hopUpgrade
	hopTE
	framedLength
	framedEncoding
	shedField // it is the proxy's own
	forwarded // it says who has forwarded the request
	dated
	contentType
	expected
	host
	traceParent
	traceState
)

var kinds = map[string]kind{
	"connection": hopConnection, "upgrade": hopUpgrade, "te": hopTE, "keep-alive": hop, "proxy-connection": hop,
	"proxy-authenticate": hop, "proxy-authorization": hop, "http2-settings": hop,
	"content-length": framedLength, "transfer-encoding": framedEncoding, "spillway-shed": shedField,
	"forwarded": forwarded, "x-forwarded-for": forwarded, "x-forwarded-host": forwarded, "x-forwarded-proto": forwarded,
	"date": dated, "content-type": contentType, "expect": expected, "host": host,
	"traceparent": traceParent, "tracestate": traceState,
}

// kindOf returns the kind of a field.
func kindOf(name []byte) kind {
	var lower httpfront.Lower
	return kinds[string(lower.Of(name))]
}

// isEventStream reports whether a media type is that of server-sent events.
func isEventStream(contentType []byte) bool {
	media, _, _ := bytes.Cut(contentType, []byte(";"))
	return is(httpfront.Trim(media), "text/event-stream")
}

// The bytes of names, and of values (RFC 9110, 5.5 and 5.6.2).
var inToken, inValue = func() (token, value [256]bool) {
	for c := range 256 {
		value[c] = c >= ' ' && c != 0x7f || c == '\t'
		token[c] = '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' && c < 0x80 || c != 0 && c < 0x80 && strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
	}
	return token, value
}()

func isToken(name []byte) bool {
	for _, c := range name {
		if !inToken[c] {
			return false
		}
	}
	return len(name) > 0
}

func isValue(value []byte) bool {
	for _, c := range value {
		if !inValue[c] {
			return false
		}
	}
	return true
}

// isTarget reports whether a target, or a host, passes as it is: nothing in it may end a line, or
// the target.
func isTarget(target []byte) bool {
	for _, c := range target {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return len(target) > 0
}
