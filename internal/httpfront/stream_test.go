package httpfront

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
)

// streaming is a handler that reads bodies of any length, of which eight bytes come before,
// and answers how many there were, ahead and in all, or the error.
type streaming struct{}

type streamingCall struct{ x *Exchange }

func (streaming) NewCall(x *Exchange) Call        { return &streamingCall{x} }
func (streaming) Refused(int64)                   {}
func (*streamingCall) Begin()                     {}
func (*streamingCall) Field(_, _ []byte) *Problem { return nil }
func (*streamingCall) NoRoom() *Problem           { return &Problem{Status: 503} }
func (*streamingCall) Answered(int, bool, int64)  {}
func (*streamingCall) Lines() string              { return "" }
func (*streamingCall) Head() (Wanted, *Problem)   { return Wanted{Stream: true, Ahead: 8}, nil }

func (c *streamingCall) Serve() {
	x := c.x
	ahead := len(x.Body)
	all, err := ahead, error(nil)
	x.Continue()
	for p := make([]byte, 100); err == nil && x.Streams(); {
		var n int
		n, err = x.ReadBody(p)
		all += n
	}
	said := strconv.Itoa(ahead) + " " + strconv.Itoa(all) + " " + string(x.Trailers())
	switch {
	case errors.Is(err, ErrSlow):
		said = "slow"
	case err != nil && !errors.Is(err, io.EOF):
		said = "broken"
	}
	x.Send(Answer{Status: 200, Type: "text/plain", Buf: append(x.Room(), said...)})
}

// So much of a body comes ahead, in either framing, and the rest as it is read; with Expect
// nothing does before 100 Continue. The next request begins where the body ends.
func TestStream(t *testing.T) {
	t.Parallel()
	f := serve(t, func(o *Options, _ *net.Listener) { o.Handler = streaming{} })
	long := strings.Repeat("v", 100_000)
	for _, tt := range []struct{ head, body, want string }{
		{"Content-Length: 0\r\n", "", "0 0 "},
		{"Content-Length: 5\r\n", "hello", "5 5 "},
		{"Content-Length: 8\r\n", "hello...", "8 8 "},
		{"Content-Length: 9\r\n", "hello....", "8 9 "},
		{"Content-Length: 100000\r\n", long, "8 100000 "},
		{"Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", "5 5 "},
		{"Transfer-Encoding: chunked\r\n", "8\r\nhello...\r\n0\r\nX: y\r\n\r\n", "8 8 X: y\r\n"},
		{"Transfer-Encoding: chunked\r\n", "186a0\r\n" + long + "\r\n0\r\nX: y\r\n\r\n", "8 100000 X: y\r\n"},
		{"Transfer-Encoding: chunked\r\n", "0\r\n\r\n", "0 0 "},
		{"Content-Length: 9\r\nExpect: 100-continue\r\n", "hello....", "0 9 "},
	} {
		for _, sends := range []int{1, 3, 100_000} {
			c := f.dial()
			for range 2 {
				head := "POST / HTTP/1.1\r\nHost: x\r\n" + tt.head + "\r\n"
				if strings.Contains(head, "Expect") {
					c.send(head)
					resp, _ := c.read("POST")
					require.Equal(t, http.StatusContinue, resp.StatusCode)
					head = ""
				}
				go func() {
					text := head + tt.body
					for piece := max(1, len(text)/sends, 1000); len(text) > 0; text = text[min(len(text), piece):] {
						_, _ = io.WriteString(c.conn, text[:min(len(text), piece)])
					}
				}()
				_, body := c.read("POST")
				require.Equal(t, tt.want, body, tt.head)
			}
		}
	}
}

// Who sends a streamed body at less than 1 KiB a second is cut off after 10 s of that, though
// each byte comes in time; a faster one is waited for, however long it takes.
func TestStream_Pace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		piece int
		want  string
	}{{1, "slow"}, {400, "slow"}, {1000, "8 100000 "}} {
		synctest.Test(t, func(t *testing.T) {
			p := fronttest.NewPipes()
			serve(t, func(o *Options, l *net.Listener) {
				*l = p
				o.Handler = streaming{}
			})
			c := p.Dial()
			var sender sync.WaitGroup
			sender.Go(func() {
				_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n12345678")
				for left := 100_000 - 8; err == nil && left > 0; left -= tt.piece {
					time.Sleep(500 * time.Millisecond)
					_, err = c.Write(make([]byte, min(left, tt.piece)))
				}
			})
			begun := time.Now()
			in := &client{t: t, r: bufio.NewReader(c)}
			_, body := in.read("POST")
			require.Equal(t, tt.want, body)
			if tt.want == "slow" {
				require.LessOrEqual(t, time.Since(begun), 11*time.Second)
			}
			require.NoError(t, c.Close())
			sender.Wait()
		})
	}
}

// stopped is a handler that reads the rest of a body that nobody wants any more, and takes how long that lasts.
type stopped struct {
	streaming
	lasted chan time.Duration
}

type stoppedCall struct {
	streamingCall
	lasted chan time.Duration
}

func (h stopped) NewCall(x *Exchange) Call { return &stoppedCall{streamingCall{x}, h.lasted} }

func (c *stoppedCall) Serve() {
	begun := time.Now()
	c.x.StopBody()
	_, err := c.x.ReadBody(make([]byte, 100))
	if c.lasted <- time.Since(begun); err != nil {
		c.x.Send(Answer{Status: 200, Close: true})
	}
}

// Who stops the reading of a body before it has begun to wait has it end at once all the same.
func TestStream_StoppedBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := fronttest.NewPipes()
		lasted := make(chan time.Duration, 1)
		serve(t, func(o *Options, l *net.Listener) { *l, o.Handler = p, stopped{lasted: lasted} })
		c := p.Dial()
		_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n12345678")
		require.NoError(t, err)
		resp, _ := (&client{t: t, r: bufio.NewReader(c)}).read("POST")
		require.Equal(t, 200, resp.StatusCode)
		require.Zero(t, <-lasted)
		require.NoError(t, c.Close())
	})
}
