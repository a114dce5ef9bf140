package httpfront

import (
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// clock makes the header line Date, once a second.
type clock struct{ line atomic.Pointer[dateLine] }

type dateLine struct {
	second int64
	text   []byte
}

// append appends the line of the present second.
func (c *clock) append(dst []byte) []byte {
	now := time.Now()
	line := c.line.Load()
	if second := now.Unix(); line == nil || line.second != second {
		text := fasthttp.AppendHTTPDate([]byte("Date: "), now.UTC())
		line = &dateLine{second: second, text: append(text, "\r\n"...)}
		c.line.Store(line)
	}
	return append(dst, line.text...)
}
