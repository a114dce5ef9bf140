package generator

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/strategies"
)

var errProtocol = errors.New("not an HTTP/1.1 answer")

// What is kept at most while it is incomplete: of an answer's head, and of the line
// with a chunk's size.
const (
	maxHead     = 64 << 10
	maxSizeLine = 1 << 10
)

// response follows one answer through the pieces in which it arrives. It keeps
// what the load needs to know and skips the body without copying it; only a head
// that arrives in several pieces is kept until it is whole.
type response struct {
	status int
	shed   string
	// bodiless says that the answer has no body, whatever its head says: it is to HEAD.
	bodiless bool
	// close says that the connection ends with this answer.
	close bool

	state bodyState
	// left is what is still to come of the body, or of the chunk.
	left int64
	// head holds the beginning of a head, of a chunk's size line or of a trailer.
	head []byte
}

type bodyState uint8

const (
	inHead bodyState = iota
	inBody
	inChunkSize
	inChunk
	inChunkEnd
	inTrailer
	untilClose
)

// reset prepares for the next answer on the connection.
func (r *response) reset() {
	r.status, r.shed, r.close = 0, "", false
	r.state, r.left, r.head = inHead, 0, r.head[:0]
}

// feed takes the next piece and reports whether the answer is whole, and what
// follows it. It keeps nothing of data.
func (r *response) feed(data []byte) (done bool, rest []byte, err error) {
	for {
		switch r.state {
		case inHead:
			head, rest, err := r.until(data, headEnd, maxHead)
			if head == nil {
				return false, nil, err
			}
			data = rest
			if err := r.parseHead(head); err != nil {
				return false, nil, err
			}
			switch {
			case r.status == http.StatusSwitchingProtocols: // what follows is no answer
				return true, nil, nil
			case r.status < 200: // 100 Continue: the answer is still to come
				r.state = inHead
			case r.state == inBody && r.left == 0:
				return true, data, nil
			}
		case inBody:
			n := min(int64(len(data)), r.left)
			r.left -= n
			return r.left == 0, data[n:], nil
		case inChunkSize:
			line, rest, err := r.until(data, lineEnd, maxSizeLine)
			if line == nil {
				return false, nil, err
			}
			data = rest
			digits, _, _ := bytes.Cut(line, []byte(";")) // extensions have no meaning here
			digits = bytes.TrimRight(digits, " \t\r\n")
			size, err := strconv.ParseUint(string(digits), 16, 60)
			// What ends chunks is strict: who reads it in another way takes another answer.
			if err != nil || len(digits) > 16 || bytes.IndexByte(line, '\r') != len(line)-2 {
				return false, nil, errProtocol
			}
			r.left, r.state = int64(size), inChunk
			if size == 0 {
				r.state = inTrailer
			}
		case inChunk:
			n := min(int64(len(data)), r.left)
			r.left -= n
			data = data[n:]
			if r.left > 0 {
				return false, nil, nil
			}
			r.state = inChunkEnd
		case inChunkEnd, inTrailer:
			line, rest, err := r.until(data, lineEnd, maxHead)
			if line == nil {
				return false, nil, err
			}
			data = rest
			empty := string(line) == "\r\n"
			switch {
			case r.state == inChunkEnd && !empty || !bytes.HasSuffix(line, []byte("\r\n")):
				return false, nil, errProtocol
			case r.state == inChunkEnd:
				r.state = inChunkSize
			case empty:
				return true, data, nil
			}
		case untilClose:
			return false, nil, nil
		}
	}
}

// closed reports whether the end of the stream completes the answer.
func (r *response) closed() bool { return r.state == untilClose }

// headEnd returns where a head ends, with an empty line; -1 if it does not yet. A line may
// end without a carriage return.
func headEnd(data []byte) int {
	end := -1
	if i := bytes.Index(data, []byte("\n\r\n")); i >= 0 {
		end = i + 3
		data = data[:i+1]
	}
	if i := bytes.Index(data, []byte("\n\n")); i >= 0 {
		end = i + 2
	}
	return end
}

// lineEnd returns where a line ends, or -1.
func lineEnd(data []byte) int {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1
	}
	return -1
}

// until returns what goes until an end, from the kept beginning and data together,
// and what follows. If the end is not there yet the piece is nil, and data is kept,
// up to most bytes. The piece holds until the next call.
func (r *response) until(data []byte, end func([]byte) int, most int) (piece, rest []byte, err error) {
	if i := end(data); i >= 0 && len(r.head) == 0 {
		return data[:i], data[i:], nil
	}
	before := len(r.head)
	r.head = append(r.head, data...)
	from := max(0, before-3) // the end may lie across two pieces
	if i := end(r.head[from:]); i >= 0 {
		piece = r.head[:from+i]
		r.head = r.head[:0]
		return piece, data[len(piece)-before:], nil
	}
	if len(r.head) > most {
		return nil, nil, errProtocol
	}
	return nil, nil, nil
}

func (r *response) parseHead(head []byte) error {
	line, head := cutLine(head)
	version, status, _ := bytes.Cut(line, []byte(" "))
	status, _, _ = bytes.Cut(bytes.TrimLeft(status, " "), []byte(" "))
	if len(version) != 8 || !bytes.HasPrefix(version, []byte("HTTP/1.")) || !isDigit(version[7]) || len(status) != 3 {
		return errProtocol
	}
	code, err := strconv.ParseUint(string(status), 10, 16)
	if err != nil || code < 100 {
		return errProtocol
	}
	r.status = int(code)
	old := version[7] == '0'
	r.close = old
	length, encodings, chunked, named := int64(-1), 0, false, false
	for len(head) > 0 {
		line, head = cutLine(head)
		if len(line) == 0 {
			continue // the last
		}
		if line[0] == ' ' || line[0] == '\t' { // more of the value before
			if !named || !all(line, &inValues) {
				return errProtocol
			}
			continue
		}
		colon := bytes.IndexByte(line, ':')
		if named = colon > 0; !named || !all(line[:colon], &inNames) || !all(line[colon+1:], &inValues) {
			return errProtocol
		}
		name, value := line[:colon], bytes.TrimSpace(line[colon+1:])
		switch {
		case is(name, "Content-Length"):
			n, err := strconv.ParseUint(string(value), 10, 63)
			if err != nil || length >= 0 && length != int64(n) {
				return errProtocol
			}
			length = int64(n)
		case is(name, "Spillway-Shed"):
			r.shed = shedReason(value)
		case is(name, "Transfer-Encoding") && !old:
			encodings++
			chunked = is(value, "chunked")
		case is(name, "Connection"):
			for word := range bytes.SplitSeq(value, []byte(",")) {
				word = bytes.TrimSpace(word)
				r.close = r.close && !is(word, "keep-alive") || is(word, "close")
			}
		}
	}
	if encodings > 1 || encodings == 1 && !chunked {
		return errProtocol // of an encoding that nobody asked for
	}
	r.close = r.close || r.status == http.StatusSwitchingProtocols
	switch {
	case r.status < 200 || r.status == 204 || r.status == 304 || r.bodiless:
		r.state, r.left = inBody, 0
	case chunked:
		r.state = inChunkSize
	case length >= 0:
		r.state, r.left = inBody, length
	default:
		r.state, r.close = untilClose, true
	}
	return nil
}

// shedReasons are those of the service. What else a server says is not kept: it
// could be anything.
var shedReasons = strategies.Reasons()

func shedReason(value []byte) string {
	if i := slices.Index(shedReasons, strategies.Reason(value)); i >= 0 {
		return string(shedReasons[i])
	}
	return "other"
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// What bytes may stand in names and in values of a head. With a space in it, a name is one that
// nobody knows.
var inNames, inValues = func() (names, values [256]bool) {
	for c := range 256 {
		values[c] = c >= ' ' && c != 0x7f || c == '\t'
		names[c] = c >= ' ' && c < 0x7f && !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, rune(c))
	}
	return names, values
}()

func all(text []byte, in *[256]bool) bool {
	for _, c := range text {
		if !in[c] {
			return false
		}
	}
	return true
}

// is compares words of a head, whose case has no meaning.
func is(word []byte, want string) bool {
	return len(word) == len(want) && bytes.EqualFold(word, []byte(want))
}

func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return b, nil
	}
	return bytes.TrimSuffix(b[:i], []byte("\r")), b[i+1:]
}
