package server

import (
	"bufio"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

const (
	smallBuffer = 4 << 10
	// keptBuffer is the largest answer buffer that stays in an exchange.
	keptBuffer = 32 << 10
	// headSlack is what a request head may have beside two escaped keys.
	headSlack = 8 << 10
)

// exchange is what a connection needs while there is something to do: it takes
// one from the pool with the first byte of a request, and gives it back when no
// byte and no answer is left.
type exchange struct {
	conn   *conn         // whom it serves
	reader *bufio.Reader // for heads that are small, as nearly all are

	head    fasthttp.RequestHeader
	fields  fields
	decoded []byte // keys that had escapes

	task dispatch.Task
	op   executor.Op

	// out holds answers that have not been written yet, from out[sent:] on.
	// While a task is away, the part behind out's length is the operation's.
	out   []byte
	sent  int
	first []byte // out at first, and again when it has become too large
}

func newExchange() *exchange {
	x := &exchange{reader: bufio.NewReaderSize(nil, smallBuffer), first: make([]byte, 0, smallBuffer)}
	x.out = x.first
	x.task.Payload = &x.op
	x.task.Done = x.done
	return x
}

// done is called when the task is completed.
func (x *exchange) done(*dispatch.Task) {
	p := &x.conn.parker // x may be given away from the signal on
	p.signal(taskDone)
}

// acquire takes an exchange for c.
func (c *conn) acquire() {
	x := c.server.exchanges.Get().(*exchange)
	x.conn = c
	x.reader.Reset(c)
	c.x, c.reader = x, x.reader
}

// release gives the exchange back.
func (c *conn) release() {
	x := c.x
	if x == nil {
		return
	}
	if c.reader != x.reader {
		c.reader.Reset(nil)
		c.server.largeReaders.Put(c.reader)
	}
	x.reader.Reset(nil)
	x.conn, c.x, c.reader = nil, nil, nil
	c.server.exchanges.Put(x)
}

// growReader exchanges the reader for one that has room for the largest head,
// and reports whether it was not the large one before.
func (c *conn) growReader() bool {
	small := c.reader
	if small != c.x.reader {
		return false
	}
	size := 2*3*c.server.opts.MaxKeyBytes + headSlack
	if size <= small.Size() {
		return false
	}
	large, ok := c.server.largeReaders.Get().(*bufio.Reader)
	if !ok {
		large = bufio.NewReaderSize(nil, size)
	}
	buffered, _ := small.Peek(small.Buffered())
	c.carried = buffered
	large.Reset(c)
	_, _ = large.Peek(len(buffered)) // takes over what is carried: cannot fail
	c.reader = large
	return true
}
