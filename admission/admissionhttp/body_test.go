package admissionhttp_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/admissionhttp"
	"github.com/spillway-go/spillway/admission/internal/adaptertest"
)

// pipe is a listener of one connection, in memory.
type pipe struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (p pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conn:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipe) Close() error   { close(p.closed); return nil }
func (p pipe) Addr() net.Addr { return &net.TCPAddr{} }

// talk serves one connection, in a bubble, until the test's end. It returns the client's side.
func talk(t *testing.T, h http.Handler, s *http.Server) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	l := pipe{make(chan net.Conn, 1), make(chan struct{})}
	l.conn <- server
	s.Handler, s.ErrorLog = h, log.New(io.Discard, "", 0)
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		client.Close()
		s.Close()
		synctest.Wait()
	})
	return client
}

// A body that comes slowly takes no place. One that comes too slowly is not waited for.
func TestHandler_SlowBody(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		timeout time.Duration // the server's own
		head    string
		length  int
		pieces  int
		every   time.Duration
		status  int
		lasts   time.Duration
		handler bool // it is the handler that reads the body
	}{
		{name: "never", head: "Content-Length: 10", length: 10, status: 408, lasts: 10 * time.Second},
		{name: "chunked, and never", head: "Transfer-Encoding: chunked", length: 10, status: 408, lasts: 10 * time.Second},
		{name: "slow", head: "Content-Length: 4096", length: 4096, pieces: 4, every: 3 * time.Second, status: 200, lasts: 12 * time.Second},
		{name: "too slow", head: "Content-Length: 4096", length: 4096, pieces: 1, every: 3 * time.Second, status: 408, lasts: 11 * time.Second},
		{name: "the server has another opinion", timeout: time.Hour, head: "Content-Length: 10", length: 10, status: 408, lasts: time.Hour},
		{
			name: "too long for the buffer", head: "Content-Length: 65537", length: 65537, pieces: 64, every: time.Second, status: 200,
			lasts: 64 * time.Second, handler: true,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := adaptertest.Open(t, admission.Options{Concurrency: 1})
				client := talk(t, admissionhttp.Handler(c, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					n, err := io.Copy(io.Discard, r.Body)
					require.NoError(t, err)
					require.EqualValues(t, row.length, n)
				})), &http.Server{ReadTimeout: row.timeout})
				began := time.Now()
				go func() {
					_, _ = fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", row.head)
					for i := range row.pieces {
						time.Sleep(row.every)
						size := row.length / row.pieces
						if i == row.pieces-1 && row.status == 200 {
							size = row.length - i*size
						} else if row.status != 200 {
							size = 1 << 10
						}
						_, _ = client.Write(make([]byte, size))
					}
				}()
				time.Sleep(row.lasts - time.Millisecond)
				synctest.Wait()
				want := 0
				if row.handler {
					want = 1
				}
				require.Equal(t, want, c.Stats().InUse)
				answer, err := http.ReadResponse(bufio.NewReader(client), nil)
				require.NoError(t, err)
				require.Equal(t, row.status, answer.StatusCode)
				require.Equal(t, row.lasts, time.Since(began))
				b, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				if row.status == http.StatusRequestTimeout {
					require.JSONEq(t, `{"title":"Request Timeout","status":408,"detail":"the request's body came too slowly"}`, string(b))
					require.Equal(t, "application/problem+json", answer.Header.Get("Content-Type"))
					require.True(t, answer.Close)
					require.Empty(t, answer.Header.Get("Spillway-Shed"))
				}
			})
		})
	}
}

// Who waits for 100 Continue sends its body only once it has a place.
func TestHandler_ExpectsContinue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := adaptertest.Open(t, admission.Options{Concurrency: 1})
		held := adaptertest.Take(t, c)
		client := talk(t, admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		})), new(http.Server))
		_, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
		require.NoError(t, err)
		from := bufio.NewReader(client)
		line := make(chan string, 1)
		go func() {
			s, _ := from.ReadString('\n')
			line <- s
		}()
		time.Sleep(time.Hour)
		require.Equal(t, 1, c.Stats().Waiting)
		require.Empty(t, line)
		held.Release()
		require.Equal(t, "HTTP/1.1 100 Continue\r\n", <-line)
		_, err = from.ReadString('\n')
		require.NoError(t, err)
		_, err = io.WriteString(client, "hello")
		require.NoError(t, err)
		answer, err := http.ReadResponse(from, nil)
		require.NoError(t, err)
		b, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, "hello", string(b))
	})
}

// The handler reads what it would have read without anybody before it.
func TestHandler_Bodies(t *testing.T) {
	t.Parallel()
	whole := bytes.Repeat([]byte("0123456789abcde\n"), 3<<16)
	text := func(n int) []byte { return whole[:n] }
	c := adaptertest.Open(t, admission.Options{Concurrency: 8})
	for _, buffer := range []int{-1, 0, 1, 1000, 1 << 20, math.MaxInt} {
		_, client := serve(t, c, admissionhttp.Options{BufferBody: buffer}.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			_, err = r.Body.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			require.NoError(t, r.Body.Close())
			_, err = r.Body.Read(make([]byte, 1))
			require.Error(t, err)
			_, _ = w.Write(b)
		})))
		for _, size := range []int{0, 1, 999, 1000, 1001, 64 << 10, 64<<10 + 1, 1 << 20, 3 << 20} {
			for _, chunked := range []bool{false, true} {
				for _, proto := range []*http.Client{nil, adaptertest.HTTP2()} {
					client.Client = proto
					var body io.Reader = bytes.NewReader(text(size))
					if chunked {
						body = io.MultiReader(body)
					}
					resp, err := client.Do(t.Context(), "/", body)
					require.NoError(t, err)
					got, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Equal(t, 200, resp.StatusCode, "%s", got)
					require.True(t, bytes.Equal(text(size), got), "%d bytes, %v, buffer of %d", size, chunked, buffer)
				}
			}
		}
	}
}

// What is wrong with a body is the handler's to hear.
func TestHandler_BrokenBody(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	h := admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "%s: %v", b, err)
	}))
	_, client := serve(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 3)
		h.ServeHTTP(w, r)
	}))
	resp, err := client.Do(t.Context(), "/", strings.NewReader("hello"))
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "hel: http: request body too large", string(b))
}

// Over HTTP/2 a client may send more of its body once it has got some of the answer.
func TestHandler_TalksInTurns(t *testing.T) {
	t.Parallel()
	c := adaptertest.Open(t, admission.Options{Concurrency: 1})
	_, client := serve(t, c, admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, r.Body)
	})))
	client.Client = adaptertest.HTTP2()
	from, to := io.Pipe()
	resp, err := client.Do(t.Context(), "/", from)
	require.NoError(t, err, "which has come before the body")
	_, err = io.WriteString(to, "hello")
	require.NoError(t, err)
	require.NoError(t, to.Close())
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "hello", string(b))
}

// What is left of a body that was too long to be read before may take its time.
func TestHandler_RestTakesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := adaptertest.Open(t, admission.Options{Concurrency: 1})
		client := talk(t, admissionhttp.Handler(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprint(w, n, " ", err)
		})), new(http.Server))
		go func() {
			const most = 64 << 10
			_, _ = fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", most+1, make([]byte, most+1))
			time.Sleep(time.Hour)
			_, _ = io.WriteString(client, "4\r\nmore\r\n0\r\n\r\n")
		}()
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		require.NoError(t, err)
		b, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, "65541 <nil>", string(b))
	})
}
