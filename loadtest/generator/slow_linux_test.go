package generator

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// slowTest has slow clients take their steps by hand, against a server whose every
// byte the test reads and writes itself.
type slowTest struct {
	t        *testing.T
	listener *net.TCPListener
	*slowClients
}

func newSlowTest(t *testing.T, n int) *slowTest {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	o := workload.Options{SlowClients: n, Headers: []string{"X-A: b"}}.WithDefaults()
	s := newSlowClients(&o, server{host: listener.Addr().String(), addresses: []netip.AddrPort{listener.Addr().(*net.TCPAddr).AddrPort()}})
	t.Cleanup(func() {
		_ = listener.Close()
		for i := range s.conns {
			s.conns[i].close()
		}
	})
	return &slowTest{t, listener, s}
}

// connect has a client connect and begin a request, whose head it returns.
func (s *slowTest) connect(c *slowConn) (*net.TCPConn, *bufio.Reader, string) {
	s.t.Helper()
	s.step(c)
	require.True(s.t, c.open)
	server, err := s.listener.AcceptTCP()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = server.Close() })
	r := bufio.NewReader(server)
	return server, r, s.head(c, r)
}

// head has a client begin a request, and returns the head of it.
func (s *slowTest) head(c *slowConn, r *bufio.Reader) (head string) {
	s.t.Helper()
	s.step(c)
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := r.ReadString('\n')
		require.NoError(s.t, err)
		head += line
	}
	return head
}

// arrives waits until a client has something to read, or its connection has ended.
func (s *slowTest) arrives(c *slowConn) {
	s.t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}, int(time.Minute.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue // the runtime preempts goroutines by signals
		}
		require.NoError(s.t, err)
		require.Equal(s.t, 1, n, "nothing has arrived in a minute")
		return
	}
}

// answer answers a client, which reads it.
func (s *slowTest) answer(c *slowConn, server net.Conn, text string) {
	s.t.Helper()
	_, err := io.WriteString(server, text)
	require.NoError(s.t, err)
	s.arrives(c)
	s.step(c)
}

func TestSlowClients_SendByteByByte(t *testing.T) {
	t.Parallel()
	s := newSlowTest(t, 1)
	c := &s.conns[0]
	c.size = c.full()
	server, r, head := s.connect(c)
	require.Equal(t, "PUT /v0/entity?id=slow0 HTTP/1.1\r\nHost: "+s.listener.Addr().String()+"\r\nX-A: b\r\nContent-Length: 100\r\n\r\n", head)
	require.Zero(t, r.Buffered(), "the head comes alone")
	piece := make([]byte, 2*slowValue)
	for sent := range slowValue {
		require.Equal(t, slowValue-sent, c.left)
		s.step(c)
		n, err := server.Read(piece)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	// It waits for the answer, and then begins again.
	s.step(c)
	require.Zero(t, s.count.Finished)
	s.answer(c, server, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
	require.Contains(t, s.head(c, r), "Content-Length: 100\r\n")
	require.Equal(t, result.SlowClients{
		Connections: 1, Finished: 1, SentBytes: int64(2*len(head) + slowValue), ReadBytes: s.count.ReadBytes,
	}, s.count)
}

func TestSlowClients_ReadSlowly(t *testing.T) {
	t.Parallel()
	s := newSlowTest(t, 2)
	c := &s.conns[1]
	c.size = c.full()
	server, r, head := s.connect(c)
	require.True(t, strings.HasPrefix(head, "GET /v0/entities?start=key000000000000&limit=10000 HTTP/1.1\r\n"), head)
	require.NoError(t, server.SetWriteBuffer(16<<10))
	const size = 1 << 20
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n"+strings.Repeat("x", size)+"\r\n0\r\n\r\n")
		written <- err
	}()
	// The kernel holds little of it, so that the server waits for the client.
	for s.count.ReadBytes < size/2 {
		before := s.count.ReadBytes
		s.arrives(c)
		s.step(c)
		require.LessOrEqual(t, s.count.ReadBytes-before, int64(slowPiece))
	}
	require.Empty(t, written, "half of the answer has been read, and the server is done with it")
	for s.count.Finished == 0 {
		s.arrives(c)
		s.step(c)
	}
	require.NoError(t, <-written)
	require.Contains(t, s.head(c, r), "limit=10000 ")
	require.Zero(t, s.count.Refused+s.count.CutOff)
}

func TestSlowClients_PauseWhenRefusedOrCutOff(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reader bool
		answer string // before the connection is closed, if it is
		closed bool
		stays  bool // on the same connection
		want   result.SlowClients
	}{
		// A peer does not know ranges.
		"a refused reader": {reader: true, answer: "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno", stays: true, want: result.SlowClients{Refused: 1}},
		// The rest of its value cannot be taken back.
		"a refused sender":                {answer: "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", want: result.SlowClients{Refused: 1}},
		"who was too slow":                {answer: "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", closed: true, want: result.SlowClients{Refused: 1}},
		"who is hung up on while sending": {closed: true, want: result.SlowClients{CutOff: 1}},
		"who is hung up on while reading": {reader: true, answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", closed: true, want: result.SlowClients{CutOff: 1}},
		"another protocol":                {reader: true, answer: "220 mail.example ESMTP\r\n\r\n", want: result.SlowClients{CutOff: 1}},
		// No pause: this is how HTTP/1.0 ends.
		"an answer that ends by closing": {reader: true, answer: "HTTP/1.0 200 OK\r\n\r\nx", closed: true, want: result.SlowClients{Finished: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSlowTest(t, 2)
			c := &s.conns[0]
			c.size = c.full()
			if tt.reader {
				c = &s.conns[1]
			}
			server, r, _ := s.connect(c)
			if tt.answer != "" {
				s.answer(c, server, tt.answer)
			}
			if tt.closed {
				require.NoError(t, server.Close())
				for steps := 0; s.count.Finished+s.count.Refused+s.count.CutOff == 0; steps++ {
					require.Less(t, steps, slowValue)
					s.arrives(c)
					s.step(c)
				}
			}
			tt.want.Connections, tt.want.SentBytes, tt.want.ReadBytes = 2, s.count.SentBytes, s.count.ReadBytes
			require.Equal(t, tt.want, s.count)
			require.Equal(t, tt.stays, c.open)
			if tt.want.Finished == 0 {
				for range slowPause {
					s.step(c)
					require.False(t, c.waiting)
					require.Equal(t, tt.stays, c.open)
				}
			}
			if tt.stays {
				s.head(c, r)
			} else {
				s.connect(c)
			}
			require.True(t, c.waiting)
		})
	}
}

func TestSlowClients_ComeAgainWhenThereIsNoServer(t *testing.T) {
	t.Parallel()
	s := newSlowTest(t, 1)
	require.NoError(t, s.listener.Close())
	c := &s.conns[0]
	for s.count.CutOff < 2 {
		s.step(c)
		if c.open {
			s.arrives(c)
		}
	}
	require.Equal(t, result.SlowClients{Connections: 1, CutOff: 2}, s.count)
	require.False(t, c.open)
}

// As many send as read, and they are not all at the same place of their requests.
func TestSlowClients_BeginInTheMidst(t *testing.T) {
	t.Parallel()
	s := newSlowTest(t, 200)
	readers := 0
	for i := range s.conns {
		c := &s.conns[i]
		if c.reads {
			readers++
		}
		require.InDelta(t, float64(i)/200, float64(c.size)/float64(c.full()), 0.011)
	}
	require.Equal(t, 100, readers)
}

// Slow clients are beside the load: it is what it is without them, and their
// requests are counted apart. They hang up when it ends.
func TestRun_SlowClientsAreNotCounted(t *testing.T) {
	t.Parallel()
	const slow = 12
	var mu sync.Mutex
	closed := sync.NewCond(&mu)
	open, met := map[net.Conn]bool{}, map[string]bool{}
	all := make(chan struct{}) // closed once all slow clients have begun
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/v0/entity" {
			<-all
			return
		}
		mu.Lock()
		before := len(met)
		met[r.RemoteAddr] = true
		if before < slow && len(met) == slow {
			close(all)
		}
		mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.Copy(w, io.LimitReader(endless{}, 64<<20))
	}))
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if open[c] = true; state == http.StateClosed {
			delete(open, c)
			closed.Signal()
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	o := workload.Options{URL: server.URL, Count: 300, Mix: workload.Mix{Get: 1}, Connections: 4, Timeout: time.Hour, SlowClients: slow}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Empty(t, r.Partial)
	requireConserved(t, r)
	require.Equal(t, map[string]int64{"get": 300}, r.Operations)
	require.Equal(t, map[string]int64{"200": 300}, r.Status)
	require.Equal(t, slow, r.SlowClients.Connections)
	require.Zero(t, r.SlowClients.Refused+r.SlowClients.CutOff)
	require.Positive(t, r.SlowClients.SentBytes)
	mu.Lock()
	for len(open) > 0 {
		closed.Wait()
	}
	mu.Unlock()

	o.SlowClients = 0
	r, err = Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"get": 300}, r.Operations)
	require.Nil(t, r.SlowClients)
}

// endless reads as x.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// They stop at once, wherever they are.
func TestSlowClients_StopWhenTold(t *testing.T) {
	t.Parallel()
	s := newSlowTest(t, 20)
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		s.run(ended)
	}()
	var servers []net.Conn
	for range 20 {
		server, err := s.listener.Accept()
		require.NoError(t, err)
		servers = append(servers, server)
	}
	close(ended)
	<-stopped
	for i := range s.conns {
		require.False(t, s.conns[i].open)
	}
	for _, server := range servers {
		_, err := io.Copy(io.Discard, server)
		require.ErrorIs(t, err, unix.ECONNRESET)
		require.NoError(t, server.Close())
	}
}
