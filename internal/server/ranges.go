package server

import (
	"encoding/base64"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
)

// serveRange has the range read turn by turn, and writes what each turn gave
// before it asks for the next. A client that reads slowly holds one buffer and
// no worker.
func (c *call) serveRange() {
	x, op := c.x, &c.op
	head := httpfront.Head{Status: fasthttp.StatusOK, Type: "application/octet-stream", Length: httpfront.Unknown}
	if c.request.ndjson {
		head.Type = typeNDJSON
	}
	// The first entries leave in one piece with the head.
	buf := x.Start(&head)
	*op = c.request.rangeOperation(x.Chunks())
	op.Buf = buf
	c.run()
	defer op.Close()
	if a, failed := c.failure(); failed {
		x.Send(a)
		return
	}
	for op.More {
		var there bool
		if op.Buf, there = x.Write(op.Buf); !there {
			return
		}
		c.server.opts.Dispatcher.Continue(&c.task)
		x.WaitDone()
		// The status has been sent. All that can still be said is that the range
		// is not complete. The events get the status that a client would have got.
		if a, failed := c.failure(); failed {
			x.Break(a.Problem.Status)
			return
		}
	}
	x.End(op.Buf, nil)
}

// rangeOperation returns what is to be run for a list, whose entries are chunks or not.
func (q *request) rangeOperation(chunked bool) executor.Op {
	op := executor.Op{
		Kind: executor.Range, Key: q.key, End: q.list.end, Descending: q.list.descending, KeysOnly: q.list.keysOnly, Limit: q.list.limit,
	}
	f := format{between: "\n", chunked: chunked}
	if q.ndjson {
		f = format{before: `{"key":"`, between: `","value":"`, after: "\"}\n", base64: base64.StdEncoding, chunked: chunked}
		if q.list.keysOnly {
			f.between = ""
		}
		next := format{before: `{"next":"`, after: "\"}\n", base64: base64url, chunked: chunked}
		op.Next = func(dst, last []byte) []byte { return next.append(dst, last, nil) }
	}
	op.Encode = f.append
	return op
}

// format is how entries are written: a key and a value, and what stands around them.
type format struct {
	before, between, after string
	base64                 *base64.Encoding // nil for the bytes themselves
	chunked                bool             // each is a chunk
}

// append appends an entry.
func (f *format) append(dst, key, value []byte) []byte {
	if f.chunked {
		dst = httpfront.AppendChunk(dst, len(f.before)+f.length(key)+len(f.between)+f.length(value)+len(f.after))
	}
	dst = f.encode(append(dst, f.before...), key)
	dst = f.encode(append(dst, f.between...), value)
	if dst = append(dst, f.after...); f.chunked {
		dst = append(dst, "\r\n"...)
	}
	return dst
}

func (f *format) encode(dst, b []byte) []byte {
	if f.base64 == nil {
		return append(dst, b...)
	}
	return f.base64.AppendEncode(dst, b)
}

// length returns how many bytes encode appends.
func (f *format) length(b []byte) int {
	if f.base64 == nil {
		return len(b)
	}
	return f.base64.EncodedLen(len(b))
}
