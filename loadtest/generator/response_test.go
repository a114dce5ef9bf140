package generator

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
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

// What one engine takes for an answer the other does too: framings, line ends, broken ones.
func TestRun_TakesTheSameAnswers(t *testing.T) { onEachEngine(t, testTakesTheSameAnswers) }

func testTakesTheSameAnswers(t *testing.T, engine workload.Engine) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\n"
	good, broken := "200", "broken"
	type row struct{ name, text, want string }
	var rows []row
	for _, a := range answers {
		rows = append(rows, row{a.name, a.text, fmt.Sprint(a.status)})
	}
	for _, r := range append(rows, []row{
		{"lines end without a carriage return", "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", good},
		{"some of them", head + "Content-Length: 2\n\r\nhi", good},
		{"until the end", head + "\r\nall of it", good},
		{"version 1.0, until the end", "HTTP/1.0 200 OK\r\n\r\nall of it", good},
		{"version 1.0 has no chunks, but goes on until the end", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi", good},
		{"two spaces", "HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n", good},
		{"chunks win over a length", head + "Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", good},
		{"one length twice", head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", good},
		{"a line goes on", head + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n", good},
		{"several words of a connection", head + "Connection: x, close\r\nContent-Length: 0\r\n\r\n", good},
		{"more than was asked for", head + "Content-Length: 2\r\n\r\nhigh", good},
		{"a space in a name, which nobody knows then", head + "Content-Length : 2\r\nContent-Length: 0\r\n\r\n", good},
		{"another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n", broken},
		{"version 2", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", broken},
		{"no version", "HTTP/1.x 200 OK\r\nContent-Length: 0\r\n\r\n", broken},
		{"status with a letter", "HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n", broken},
		{"status below 100", "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n", broken},
		{"status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", broken},
		{"two lengths", head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi", broken},
		{"length below 0", head + "Content-Length: -1\r\n\r\n", broken},
		{"length with a sign", head + "Content-Length: +2\r\n\r\nhi", broken},
		{"length too great", head + "Content-Length: 99999999999999999999\r\n\r\n", broken},
		{"another encoding", head + "Transfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi", broken},
		{"two encodings", head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", broken},
		{"no colon", head + "Content-Length 2\r\n\r\nhi", broken},
		{"a trailer without carriage returns", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\n\n", broken},
		{"a control character", head + "X: a\x01\r\nContent-Length: 0\r\n\r\n", broken},
		{"begins with a line that goes on", head + " X: a\r\nContent-Length: 0\r\n\r\n", broken},
		{"no size of a chunk", head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", broken},
		{"a chunk that is longer", head + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", broken},
		{"a size without a carriage return", head + "Transfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n", broken},
		{"a chunk without a carriage return", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\n0\r\n\r\n", broken},
		{"half a body", head + "Content-Length: 5\r\n\r\nhi", broken},
		{"half a chunk", head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhi", broken},
		{"half a head", head + "Content-", broken},
		{"nothing", "", broken},
		{"only what is still to come", "HTTP/1.1 100 Continue\r\n\r\n", broken},
	}...) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			found, err := Run(t.Context(), workload.Options{
				Engine: engine, URL: speak(t, r.text, r.want == broken || strings.Contains(r.name, "until the end")), Count: 3, Connections: 1, Timeout: 5 * time.Second, Mix: workload.Mix{Get: 1},
			})
			require.NoError(t, err)
			if r.want == broken {
				require.EqualValues(t, 3, result.Sum(found.Errors))
				require.Empty(t, found.Status)
			} else {
				require.Empty(t, found.Errors)
				require.Equal(t, map[string]int64{r.want: 3}, found.Status)
			}
		})
	}
}

// speak answers each request with a text, and perhaps closes then.
func speak(t *testing.T, text string, closes bool) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	serving.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = c.Close() }()
				for from := bufio.NewReader(c); ; {
					request, err := http.ReadRequest(from)
					if err != nil {
						return
					}
					_ = request.Body.Close()
					if _, _ = io.WriteString(c, text); closes {
						return
					}
				}
			})
		}
	})
	return "http://" + listener.Addr().String()
}

// A request has one Host line, whatever the case of its name and whoever names it.
func TestRun_SendsOneHost(t *testing.T) { onEachEngine(t, testSendsOneHost) }

func testSendsOneHost(t *testing.T, engine workload.Engine) {
	t.Parallel()
	for name, tt := range map[string]struct {
		of, own []string
		want    string
	}{
		"of the load":        {of: []string{"Host: a.b"}, want: "a.b"},
		"in another case":    {of: []string{"host: a.b"}, want: "a.b"},
		"twice":              {of: []string{"hOsT: x.y", "HOST:a.b"}, want: "a.b"},
		"of the target":      {own: []string{"host: a.b"}, want: "a.b"},
		"of both":            {of: []string{"Host: x.y"}, own: []string{"host: a.b"}, want: "a.b"},
		"of neither":         {},
		"beside another one": {of: []string{"X-Host: x.y"}},
	} {
		for _, target := range []bool{true, false} {
			if !target && tt.own != nil {
				continue
			}
			t.Run(fmt.Sprintf("%s/target=%v", name, target), func(t *testing.T) {
				t.Parallel()
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				heads := make(chan string, 1)
				go func() {
					defer close(heads)
					c, err := listener.Accept()
					if err != nil {
						return
					}
					defer func() { _ = c.Close() }()
					head := ""
					for lines := bufio.NewScanner(c); lines.Scan() && lines.Text() != ""; {
						head += strings.ToLower(lines.Text()) + "\n"
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
					heads <- head
				}()
				o := workload.Options{Engine: engine, URL: "http://" + listener.Addr().String(), Count: 1, Connections: 1, Headers: tt.of, Mix: workload.Mix{Get: 1}}
				if target {
					o.Targets = []workload.Target{{Method: "GET", URL: "/", Headers: tt.own}}
				}
				r, err := Run(t.Context(), o)
				_ = listener.Close()
				require.NoError(t, err)
				require.EqualValues(t, 1, r.Served())
				want := cmp.Or(tt.want, listener.Addr().String())
				head := <-heads
				require.Contains(t, head, "\nhost: "+want+"\n")
				require.Equal(t, 1, strings.Count(head, "\nhost:"), head)
			})
		}
	}
}
