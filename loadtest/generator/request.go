package generator

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// encoder writes requests as HTTP/1.1.
//
// Keys are "key" and twelve digits, key000000000042, so that they sort by their
// number, and a scan from one key returns the next. Values are cut from one pool
// of random bytes, which do not compress, at a place that depends on the request.
type encoder struct {
	tail          string // of the request line, and the headers that are always sent
	timeoutHeader bool
	scanLimit     string
	pool          []byte
}

func newEncoder(o *workload.Options, host string) *encoder {
	e := &encoder{tail: newTail(o, host), timeoutHeader: o.TimeoutHeader, scanLimit: strconv.Itoa(o.ScanLimit)}
	if o.Mix.Put > 0 {
		var seed [32]byte
		binary.LittleEndian.PutUint64(seed[:], o.Seed)
		e.pool = make([]byte, poolCuts+o.ValueSize.Max)
		_, _ = rand.NewChaCha8(seed).Read(e.pool) // does not fail
	}
	return e
}

// newTail returns the rest of the request line, after the path, and the headers
// that are sent with every request.
func newTail(o *workload.Options, host string) string {
	tail := " HTTP/1.1\r\nHost: " + host + "\r\n"
	for _, header := range o.Headers {
		tail += header + "\r\n"
	}
	return tail
}

// poolCuts is at how many places of the pool a value may begin: many enough that
// the values in one block of a store hardly overlap, which it could compress.
const poolCuts = 1 << 20

// append appends the request to dst; left is what is left of its timeout, which
// is cut to what Spillway-Timeout-Ms may say.
func (e *encoder) append(dst []byte, r *workload.Request, left time.Duration) []byte {
	switch r.Op {
	case workload.Put:
		dst = append(dst, "PUT /v0/entity?id="...)
	case workload.Get:
		dst = append(dst, "GET /v0/entity?id="...)
	case workload.Delete:
		dst = append(dst, "DELETE /v0/entity?id="...)
	case workload.Scan:
		dst = append(dst, "GET /v0/entities?start="...)
	}
	dst = appendKey(dst, r.Key)
	if r.Op == workload.Scan {
		dst = append(dst, "&limit="...)
		dst = append(dst, e.scanLimit...)
	}
	dst = append(dst, e.tail...)
	if r.Priority >= 0 {
		dst = append(dst, "Spillway-Priority: "...)
		dst = append(dst, '0'+byte(r.Priority), '\r', '\n')
	}
	if r.Client != "" {
		dst = append(dst, "Spillway-Client: "...)
		dst = append(dst, r.Client...)
		dst = append(dst, '\r', '\n')
	}
	if e.timeoutHeader {
		dst = append(dst, "Spillway-Timeout-Ms: "...)
		dst = strconv.AppendInt(dst, min(max(left.Milliseconds(), 1), 3_600_000), 10)
		dst = append(dst, "\r\n"...)
	}
	if r.Op != workload.Put {
		return append(dst, "\r\n"...)
	}
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(r.Size), 10)
	dst = append(dst, "\r\n\r\n"...)
	from, _ := bits.Mul64(workload.Scramble(r.Key^workload.Scramble(r.Seq)), poolCuts)
	return append(dst, e.pool[from:][:r.Size]...)
}

func appendKey(dst []byte, key uint64) []byte {
	dst = append(dst, "key"...)
	for limit := uint64(1e11); key < limit && limit > 1; limit /= 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendUint(dst, key, 10)
}
