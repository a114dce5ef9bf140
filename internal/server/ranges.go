package server

import (
	"encoding/base64"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/strategies"
)

// serveRange has the range read turn by turn, and writes what each turn gave
// before it asks for the next. A client that reads slowly holds one buffer and
// no worker.
func (c *call) serveRange() {
	x, op, chunked := c.x, &c.op, c.x.Chunked()
	*op = c.request.rangeOperation(chunked)
	mediaType := "application/octet-stream"
	if c.request.ndjson {
		mediaType = typeNDJSON
	}
	// The first entries leave in one piece with the head.
	op.Buf = x.Stream(fasthttp.StatusOK, mediaType)
	c.run()
	defer op.Close()
	switch {
	case c.task.Shed != strategies.ReasonNone:
		x.Send(c.answerShed(op.Buf))
		return
	case op.Err != nil:
		x.Send(httpfront.Answer{Buf: op.Buf, Problem: storeProblem(op.Err, false)})
		return
	}
	for op.More {
		var there bool
		if op.Buf, there = x.Write(op.Buf); !there {
			return
		}
		c.server.opts.Dispatcher.Continue(&c.task)
		x.WaitDone()
		// The status has been sent. All that can still be told is that the range
		// is not complete. The events are told what a client would have been.
		if r := c.task.Shed; r != strategies.ReasonNone {
			c.shed = true
			x.Break(refusal.Status(r))
			return
		}
		if op.Err != nil {
			x.Break(storeProblem(op.Err, false).Status)
			return
		}
	}
	x.End(op.Buf)
}

// rangeOperation returns what is to be run for a list, whose entries are chunks or not.
func (q *request) rangeOperation(chunked bool) executor.Op {
	return executor.Op{
		Kind: executor.Range, Key: q.key, End: q.list.end, Descending: q.list.descending,
		KeysOnly: q.list.keysOnly, Limit: q.list.limit, Encode: q.encoding(chunked), Next: q.nextLine(chunked),
	}
}

// encoding returns how each entry is written.
func (q *request) encoding(chunked bool) func(dst, key, value []byte) []byte {
	switch {
	case q.ndjson && q.list.keysOnly && !chunked:
		return appendKeyObject
	case q.ndjson && q.list.keysOnly:
		return appendKeyObjectChunk
	case q.ndjson && !chunked:
		return appendObject
	case q.ndjson:
		return appendObjectChunk
	case !chunked:
		return appendEntry
	}
	return appendEntryChunk
}

// nextLine returns how it is written that more entries may follow, nil if it is not.
func (q *request) nextLine(chunked bool) func(dst, last []byte) []byte {
	switch {
	case !q.ndjson:
		return nil
	case !chunked:
		return appendNext
	}
	return appendNextChunk
}

// appendEntry appends key, line feed, value.
func appendEntry(dst, key, value []byte) []byte {
	dst = append(dst, key...)
	dst = append(dst, '\n')
	return append(dst, value...)
}

func appendEntryChunk(dst, key, value []byte) []byte {
	dst = httpfront.AppendChunk(dst, len(key)+1+len(value))
	dst = appendEntry(dst, key, value)
	return append(dst, "\r\n"...)
}

// appendObject appends a line with a JSON object.
func appendObject(dst, key, value []byte) []byte {
	dst = append(dst, `{"key":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, key)
	dst = append(dst, `","value":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, value)
	return append(dst, "\"}\n"...)
}

func appendObjectChunk(dst, key, value []byte) []byte {
	encoded := base64.StdEncoding.EncodedLen
	dst = httpfront.AppendChunk(dst, len(`{"key":"","value":""}`)+1+encoded(len(key))+encoded(len(value)))
	dst = appendObject(dst, key, value)
	return append(dst, "\r\n"...)
}

// appendKeyObject appends the line of an entry whose value is not wanted.
func appendKeyObject(dst, key, _ []byte) []byte {
	dst = append(dst, `{"key":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, key)
	return append(dst, "\"}\n"...)
}

func appendKeyObjectChunk(dst, key, _ []byte) []byte {
	dst = httpfront.AppendChunk(dst, len(`{"key":""}`)+1+base64.StdEncoding.EncodedLen(len(key)))
	dst = appendKeyObject(dst, key, nil)
	return append(dst, "\r\n"...)
}

// appendNext appends the last line of a list that may go on.
func appendNext(dst, last []byte) []byte {
	dst = append(dst, `{"next":"`...)
	dst = base64url.AppendEncode(dst, last)
	return append(dst, "\"}\n"...)
}

func appendNextChunk(dst, last []byte) []byte {
	dst = httpfront.AppendChunk(dst, len(`{"next":""}`)+1+base64url.EncodedLen(len(last)))
	dst = appendNext(dst, last)
	return append(dst, "\r\n"...)
}
