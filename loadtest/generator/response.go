package generator

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strconv"

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

// feed takes the next piece and tells whether the answer is whole, and what
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
			size, err := strconv.ParseUint(string(bytes.TrimRight(digits, " \t\r\n")), 16, 60)
			if err != nil {
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
			empty := len(bytes.TrimRight(line, "\r\n")) == 0
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
// and what follows. If the end is not there yet the piece is nil, and data is kept,
// up to most bytes. The piece holds until the next call.
func (r *response) until(data, end []byte, most int) (piece, rest []byte, err error) {
	if i := bytes.Index(data, end); i >= 0 && len(r.head) == 0 {
		return data[:i+len(end)], data[i+len(end):], nil
	}
	before := len(r.head)
	r.head = append(r.head, data...)
	from := max(0, before-len(end)+1) // the end may lie across two pieces
	if i := bytes.Index(r.head[from:], end); i >= 0 {
		piece = r.head[:from+i+len(end)]
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
		switch {
		case is(name, "Content-Length"):
			n, err := strconv.ParseUint(string(value), 10, 63)
			if err != nil {
				return errProtocol
			}
			length = int64(n)
		case is(name, "Spillway-Shed"):
			r.shed = shedReason(value)
		case is(name, "Transfer-Encoding"):
			chunked = is(value, "chunked")
		case is(name, "Connection"):
			r.close = r.close && !is(value, "keep-alive") || is(value, "close")
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
var shedReasons = strategies.Reasons()

func shedReason(value []byte) string {
	if i := slices.Index(shedReasons, strategies.Reason(value)); i >= 0 {
		return string(shedReasons[i])
	}
	return "other"
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
