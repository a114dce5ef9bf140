package generator

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// encoder writes requests as HTTP/1.1.
//
// Keys are "key" and twelve digits, key000000000042, so that they sort by their
// number, and a scan from one key returns the next. Values are cut from one pool
// of random bytes, which do not compress, at a place that depends on the request.
type encoder struct {
	o    *workload.Options
	plan *plan
	pool []byte
}

func newEncoder(o *workload.Options, p *plan) *encoder {
	e := &encoder{o: o, plan: p}
	if o.Mix.Put > 0 && len(o.Targets) == 0 {
		var seed [32]byte
		binary.LittleEndian.PutUint64(seed[:], o.Seed)
		e.pool = make([]byte, poolCuts+o.ValueSize.Max)
		_, _ = rand.NewChaCha8(seed).Read(e.pool) // does not fail
	}
	return e
}

// headerName returns the name of a header in its canonical form.
func headerName(header string) string {
	name, _, _ := strings.Cut(header, ":")
	return http.CanonicalHeaderKey(name)
}

// merged returns the headers of a target: its own, and those of the load that it does
// not have.
func merged(of, own []string) []string {
	if len(own) == 0 {
		return of
	}
	all := slices.DeleteFunc(slices.Clone(of), func(header string) bool {
		return slices.ContainsFunc(own, func(h string) bool { return headerName(h) == headerName(header) })
	})
	return append(all, own...)
}

// poolCuts is at how many places of the pool a value may begin: many enough that
// the values in one block of a store hardly overlap, which it could compress.
const poolCuts = 1 << 20

// append appends the request to dst; left is what is left of its timeout, which
// is cut to what Spillway-Timeout-Ms may say.
func (e *encoder) append(dst []byte, r *workload.Request, left time.Duration) []byte {
	body, method := e.body(r), e.method(r)
	dst = append(dst, method...)
	dst = append(dst, ' ')
	if r.Target > 0 {
		dst = append(dst, e.plan.to[r.Target].uri...)
	} else {
		dst = e.appendURI(dst, r)
	}
	dst = append(dst, e.plan.to[r.Target].tail...)
	if r.Priority >= 0 {
		dst = append(dst, "Spillway-Priority: "...)
		dst = append(dst, '0'+byte(r.Priority), '\r', '\n')
	}
	if r.Client != "" {
		dst = append(dst, "Spillway-Client: "...)
		dst = append(dst, r.Client...)
		dst = append(dst, '\r', '\n')
	}
	if e.o.TimeoutHeader {
		dst = append(dst, "Spillway-Timeout-Ms: "...)
		dst = appendMillis(dst, left)
		dst = append(dst, "\r\n"...)
	}
	switch method {
	case http.MethodPut, http.MethodPost, http.MethodPatch: // these say that they have none
	default:
		if len(body) == 0 {
			return append(dst, "\r\n"...)
		}
	}
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(body)), 10)
	dst = append(dst, "\r\n\r\n"...)
	return append(dst, body...)
}

// appendMillis appends what is left of a timeout, as Spillway-Timeout-Ms may say it.
func appendMillis(dst []byte, left time.Duration) []byte {
	return strconv.AppendInt(dst, min(max(left.Milliseconds(), 1), 3_600_000), 10)
}

func (e *encoder) method(r *workload.Request) string {
	if r.Target > 0 {
		return e.o.Targets[r.Target-1].Method
	}
	return methods[r.Op]
}

// methods are those of the operations of the service.
var methods = [...]string{workload.Put: http.MethodPut, workload.Get: http.MethodGet, workload.Delete: http.MethodDelete, workload.Scan: http.MethodGet}

// appendURI appends the path and the query of an operation of the service.
func (e *encoder) appendURI(dst []byte, r *workload.Request) []byte {
	if r.Op == workload.Scan {
		dst = append(dst, "/v0/entities?start="...)
		dst = appendKey(dst, r.Key)
		dst = append(dst, "&limit="...)
		return strconv.AppendInt(dst, int64(e.o.ScanLimit), 10)
	}
	dst = append(dst, "/v0/entity?id="...)
	return appendKey(dst, r.Key)
}

// body returns what a request carries, which stays as it is.
func (e *encoder) body(r *workload.Request) []byte {
	switch {
	case r.Target > 0:
		return e.o.Targets[r.Target-1].Body
	case r.Op == workload.Put:
		from, _ := bits.Mul64(workload.Scramble(r.Key^workload.Scramble(r.Seq)), poolCuts)
		return e.pool[from:][:r.Size]
	default:
		return nil
	}
}

func appendKey(dst []byte, key uint64) []byte {
	dst = append(dst, "key"...)
	for limit := uint64(1e11); key < limit && limit > 1; limit /= 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendUint(dst, key, 10)
}
