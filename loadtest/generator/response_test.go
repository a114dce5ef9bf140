package generator

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// answers are whole answers, and what is to be learnt from each.
var answers = []struct {
	name, text string
	status     int
	shed       string
	close      bool
}{
	{"a value", "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 5\r\n\r\nhello", 200, "", false},
	{"no body", "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", 201, "", false},
	{"no reason phrase", "HTTP/1.1 404 \r\ncontent-length:0\r\n\r\n", 404, "", false},
	{"shed", "HTTP/1.1 503 Service Unavailable\r\nSpillway-Shed: full\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}", 503, "full", false},
	{"an unknown reason", "HTTP/1.1 503 x\r\nspillway-shed:  tired \r\nContent-Length: 0\r\n\r\n", 503, "other", false},
	{"closing", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 200, "", true},
	{"HTTP/1.0 closes", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "", true},
	{"HTTP/1.0 kept", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", 200, "", false},
	{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", 200, "", false},
	{"chunks and a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\nA: b\r\n\r\n", 200, "", false},
	{"continue first", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", 201, "", false},
	{"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", false},
}

func TestResponse_FollowsAnAnswerHoweverItIsCut(t *testing.T) {
	t.Parallel()
	for _, answer := range answers {
		for size := 1; size <= len(answer.text); size++ {
			var r response
			r.reset()
			rest := answer.text
			for {
				n := min(size, len(rest))
				done, after, err := r.feed([]byte(rest[:n]))
				require.NoError(t, err, answer.name)
				rest = rest[n:]
				if done {
					require.Empty(t, after, answer.name)
					break
				}
				require.NotEmpty(t, rest, "%s in pieces of %d: not whole at its end", answer.name, size)
			}
			require.Empty(t, rest, "%s in pieces of %d: whole too early", answer.name, size)
			require.Equal(t, answer.status, r.status, answer.name)
			require.Equal(t, answer.shed, r.shed, answer.name)
			require.Equal(t, answer.close, r.close, answer.name)
		}
	}
}

func TestResponse_WithoutLengthEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	var r response
	r.reset()
	done, _, err := r.feed([]byte("HTTP/1.1 200 OK\r\n\r\nand so on"))
	require.NoError(t, err)
	require.False(t, done)
	require.True(t, r.closed())
	require.True(t, r.close)
}

func TestResponse_RefusesWhatIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.1 2x0 OK\r\n\r\n",
		"HTTP/1.1 099 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1", 2000),
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", maxHead+1),
	} {
		var r response
		r.reset()
		var err error
		for rest := text; rest != "" && err == nil; {
			n := min(100, len(rest))
			_, _, err = r.feed([]byte(rest[:n]))
			rest = rest[n:]
		}
		require.ErrorIs(t, err, errProtocol, "%.60q", text)
	}
}

func FuzzResponse(f *testing.F) {
	for _, answer := range answers {
		f.Add([]byte(answer.text), 7)
	}
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		follow := func(size int) (done bool, at int, r response) {
			r.reset()
			for at < len(data) {
				n := min(size, len(data)-at)
				done, rest, err := r.feed(data[at : at+n])
				at += n
				if err != nil {
					return false, -1, r
				}
				if done {
					return true, at - len(rest), r
				}
			}
			return false, at, r
		}
		if size < 1 {
			size = 1
		}
		done, end, whole := follow(len(data))
		doneCut, endCut, cut := follow(size)
		require.Equal(t, done, doneCut)
		if done {
			require.Equal(t, end, endCut)
			require.Equal(t, whole.status, cut.status)
			require.Equal(t, whole.shed, cut.shed)
		}
	})
}
