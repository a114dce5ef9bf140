package server

import (
	"encoding/base64"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/strategies"
)

// performRange has the range read turn by turn, and writes what each turn gave
// before it asks for the next. A client that reads slowly holds one buffer and
// no worker.
func (c *conn) performRange() {
	x, q := c.x, &c.req
	base := len(x.out)
	x.op = executor.Op{
		Kind: executor.Range, Key: q.key, End: q.list.end, Descending: q.list.descending,
		KeysOnly: q.list.keysOnly, Limit: q.list.limit, Encode: q.encoding(), Next: q.nextLine(),
	}
	// The first entries leave in one piece with the head. To HTTP/1.0, the end
	// of the connection is the end of the range.
	q.keepAlive = q.keepAlive && !q.http10
	x.out = c.appendRangeHead(x.out)
	x.op.Buf = x.out
	c.run(base)
	x.out = x.op.Buf
	defer x.op.Close()
	strategy := x.task.Strategy
	defer func() { c.outcome.strategy = strategy }()
	switch err := x.op.Err; {
	case x.task.Shed != strategies.ReasonNone:
		x.out = x.out[:base]
		c.answerShed(x.task.Shed)
		return
	case err != nil:
		x.out = x.out[:base]
		c.answerProblem(storeProblem(err, false))
		return
	}
	c.outcome.status = fasthttp.StatusOK
	for x.op.More {
		c.write(x.out[x.sent:])
		x.out, x.sent = x.out[:0], 0
		if c.broken != nil {
			return
		}
		x.op.Buf = x.out
		c.resume()
		x.out = x.op.Buf
		// The status has been sent. All that can still be told is that the range
		// is not complete: by a connection that ends before the last chunk. The
		// events are told what a client would have been.
		if x.task.Shed != strategies.ReasonNone {
			x.out, c.ending = x.out[:0], true
			c.outcome.status, c.outcome.shed = shedStatus(x.task.Shed), true
			return
		}
		if x.op.Err != nil {
			x.out, c.ending = x.out[:0], true
			c.outcome.status = storeProblem(x.op.Err, false).status
			return
		}
	}
	if !q.http10 {
		x.out = append(x.out, "0\r\n\r\n"...)
	}
}

func (c *conn) appendRangeHead(dst []byte) []byte {
	dst = append(dst, "HTTP/1.1 200 OK\r\n"...)
	if !c.req.http10 {
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	if c.req.ndjson {
		dst = append(dst, "Content-Type: "+typeNDJSON+"\r\n"...)
	} else {
		dst = append(dst, "Content-Type: application/octet-stream\r\n"...)
	}
	return c.endHead(dst)
}

// encoding returns how each entry is written.
func (q *request) encoding() func(dst, key, value []byte) []byte {
	switch {
	case q.ndjson && q.list.keysOnly && q.http10:
		return appendKeyObject
	case q.ndjson && q.list.keysOnly:
		return appendKeyObjectChunk
	case q.ndjson && q.http10:
		return appendObject
	case q.ndjson:
		return appendObjectChunk
	case q.http10:
		return appendEntry
	}
	return appendEntryChunk
}

// nextLine returns how it is written that more entries may follow, nil if it is not.
func (q *request) nextLine() func(dst, last []byte) []byte {
	switch {
	case !q.ndjson:
		return nil
	case q.http10:
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
	dst = beginChunk(dst, len(key)+1+len(value))
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
	dst = beginChunk(dst, len(`{"key":"","value":""}`)+1+encoded(len(key))+encoded(len(value)))
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
	dst = beginChunk(dst, len(`{"key":""}`)+1+base64.StdEncoding.EncodedLen(len(key)))
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
	dst = beginChunk(dst, len(`{"next":""}`)+1+base64url.EncodedLen(len(last)))
	dst = appendNext(dst, last)
	return append(dst, "\r\n"...)
}

func beginChunk(dst []byte, length int) []byte {
	dst = strconv.AppendInt(dst, int64(length), 16)
	return append(dst, "\r\n"...)
}
