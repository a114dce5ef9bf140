package generator

import (
	"bytes"
	"errors"
	"net/http"
)

var errProtocol = errors.New("not an HTTP/1.1 answer")

// maxHead bounds what is kept of an answer's head while it is incomplete.
const maxHead = 64 << 10

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

// feed takes the next piece and tells whether the answer is whole, and what
// follows it. It keeps nothing of data.
func (r *response) feed(data []byte) (done bool, rest []byte, err error) {
	for {
		switch r.state {
		case inHead:
			head, rest, whole := r.until(data, headEnd)
			if !whole {
				if len(r.head) > maxHead {
					return false, nil, errProtocol
				}
				return false, nil, nil
			}
			data = rest
			err := r.parseHead(head)
			r.head = r.head[:0]
			if err != nil {
				return false, nil, err
			}
			if r.status == http.StatusSwitchingProtocols { // what follows is no answer
				return true, nil, nil
			}
			if r.status < 200 { // 100 Continue: the answer is still to come
				r.state = inHead
				continue
			}
			if r.state == inBody && r.left == 0 {
				return true, data, nil
			}
		case inBody:
			n := min(int64(len(data)), r.left)
			r.left -= n
			return r.left == 0, data[n:], nil
		case inChunkSize:
			line, rest, whole := r.until(data, lineEnd)
			if !whole {
				if len(r.head) > 1<<10 {
					return false, nil, errProtocol
				}
				return false, nil, nil
			}
			data = rest
			size, ok := parseHex(line)
			r.head = r.head[:0]
			if !ok {
				return false, nil, errProtocol
			}
			r.left, r.state = size, inChunk
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
			line, rest, whole := r.until(data, lineEnd)
			if !whole {
				if len(r.head) > maxHead {
					return false, nil, errProtocol
				}
				return false, nil, nil
			}
			data = rest
			empty := len(bytes.TrimRight(line, "\r\n")) == 0
			r.head = r.head[:0]
			switch {
			case r.state == inChunkEnd && !empty:
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

// closed tells whether the end of the stream completes the answer.
func (r *response) closed() bool { return r.state == untilClose }

var (
	headEnd = []byte("\r\n\r\n")
	lineEnd = []byte("\n")
)

// until returns what ends with end, from the kept beginning and data together,
// and what follows; if the end is not there yet it keeps data.
func (r *response) until(data, end []byte) (piece, rest []byte, whole bool) {
	if len(r.head) == 0 {
		if i := bytes.Index(data, end); i >= 0 {
			return data[:i+len(end)], data[i+len(end):], true
		}
		r.head = append(r.head, data...)
		return nil, nil, false
	}
	before := len(r.head)
	r.head = append(r.head, data...)
	from := max(0, before-len(end)+1) // the end may lie across two pieces
	if i := bytes.Index(r.head[from:], end); i >= 0 {
		length := from + i + len(end)
		return r.head[:length], data[length-before:], true
	}
	return nil, nil, false
}

func (r *response) parseHead(head []byte) error {
	line, head := cutLine(head)
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' {
		return errProtocol
	}
	r.status = 0
	for _, digit := range line[9:12] {
		if digit < '0' || digit > '9' {
			return errProtocol
		}
		r.status = r.status*10 + int(digit-'0')
	}
	if r.status < 100 {
		return errProtocol
	}
	r.close = line[7] == '0'
	length, chunked := int64(-1), false
	for len(head) > 0 {
		line, head = cutLine(head)
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			continue // the empty line
		}
		name, value := line[:colon], bytes.TrimSpace(line[colon+1:])
		switch len(name) {
		case len("Content-Length"):
			if bytes.EqualFold(name, []byte("Content-Length")) {
				var ok bool
				if length, ok = parseDecimal(value); !ok {
					return errProtocol
				}
			}
		case len("Spillway-Shed"):
			if bytes.EqualFold(name, []byte("Spillway-Shed")) {
				r.shed = shedReason(value)
			}
		case len("Transfer-Encoding"):
			if bytes.EqualFold(name, []byte("Transfer-Encoding")) {
				chunked = bytes.EqualFold(value, []byte("chunked"))
			}
		case len("Connection"):
			if bytes.EqualFold(name, []byte("Connection")) {
				r.close = r.close && !bytes.EqualFold(value, []byte("keep-alive")) || bytes.EqualFold(value, []byte("close"))
			}
		}
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
var shedReasons = []string{"full", "displaced", "codel", "limit", "fair", "abandoned", "draining", "expired"}

func shedReason(value []byte) string {
	for _, reason := range shedReasons {
		if string(value) == reason {
			return reason
		}
	}
	return "other"
}

func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return b, nil
	}
	return bytes.TrimSuffix(b[:i], []byte("\r")), b[i+1:]
}

// parseDecimal reads a length of at most 18 digits.
func parseDecimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	var n int64
	for _, digit := range b {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		n = n*10 + int64(digit-'0')
	}
	return n, true
}

// parseHex reads a chunk's size line, whose extensions it ignores.
func parseHex(line []byte) (int64, bool) {
	var n int64
	digits := 0
	for _, c := range line {
		var digit byte
		switch {
		case c >= '0' && c <= '9':
			digit = c - '0'
		case c >= 'a' && c <= 'f':
			digit = c - 'a' + 10
		case c >= 'A' && c <= 'F':
			digit = c - 'A' + 10
		case c == ';' || c == '\r' || c == '\n' || c == ' ' || c == '\t':
			return n, digits > 0
		default:
			return 0, false
		}
		if digits++; digits > 15 {
			return 0, false
		}
		n = n<<4 | int64(digit)
	}
	return n, digits > 0
}
