package httpfront

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A body that is announced takes nothing of the budget, and one that has begun to arrive
// at most twice of what is there.
func TestBody_ReservedAsItArrives(t *testing.T) {
	t.Parallel()
	f := serve(t)
	for i := range 2 * budgetOf / mostBody {
		c := f.dial()
		head, _ := put("/", mostBody, i%2 == 0)
		c.send(strings.Replace(head, "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
		resp, _ := c.read("PUT")
		require.Equal(t, 100, resp.StatusCode)
	}
	require.Zero(t, f.Bodies(), "of many heads without a byte of a body")
	for _, inChunks := range []bool{false, true} {
		head, body := put("/", mostBody, inChunks)
		c := f.dial()
		c.send(head)
		for sent := 0; len(body) > 0; {
			n := min(1<<10, len(body))
			c.send(body[:n])
			body, sent = body[n:], sent+n
			require.LessOrEqual(t, f.Bodies(), int64(max(firstRoom, 2*sent)))
		}
		resp, _ := c.read("PUT")
		require.Equal(t, 404, resp.StatusCode)
		eventually(t, func() bool { return f.Bodies() == 0 }, "it is given back")
	}
}

// While a request waits, its body takes at most a quarter more memory than is reserved, and
// that is what it has, or less than twice if it did not say how long it is.
func TestBody_HoldsWhatItHas(t *testing.T) {
	t.Parallel()
	for _, inChunks := range []bool{false, true} {
		f := serve(t)
		c := f.dial()
		for _, size := range []int{1, 100, smallBuffer, smallBuffer + 1, 10, 8 << 10, 10, 40_000, mostBody} {
			head, body := put("/hold", size, inChunks)
			// The body comes late, so that it is not in the reader by chance.
			c.send(strings.Replace(head, "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
			resp, _ := c.read("PUT")
			require.Equal(t, 100, resp.StatusCode)
			c.send(body)
			x := <-f.held // its goroutine is parked, and its fields can be looked at
			require.Equal(t, strings.Repeat("v", size), string(x.Body))
			require.Equal(t, x.reserved, f.Bodies())
			if inChunks {
				require.LessOrEqual(t, x.reserved, int64(max(firstChunkRoom, 2*size)))
			} else {
				require.EqualValues(t, size, x.reserved)
				require.Equal(t, size <= smallBuffer, x.buffer == nil, "small bodies lie in the reader")
			}
			require.LessOrEqual(t, cap(x.buffer), int(x.reserved+x.reserved/4+1))
			x.Done()
			resp, _ = c.read("PUT")
			require.Equal(t, 200, resp.StatusCode)
		}
	}
}

// A head of thousands of fields holds no more than its bytes while its request
// waits. The parser makes twenty times as much of it.
func TestHead_HoldsNoFields(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.dial()
	c.send("GET /hold HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X:\r\n", 1600) + "\r\n")
	x := <-f.held
	require.LessOrEqual(t, x.head.Len(), KeptLines)
	x.Done()
	resp, _ := c.read("GET")
	require.Equal(t, 200, resp.StatusCode)
}
