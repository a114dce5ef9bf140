package server

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// constant is a store that costs nothing: every key has the same value.
type constant struct {
	store.Store
	value []byte
}

func (c constant) Get(dst, _ []byte) ([]byte, store.Meta, error) {
	return append(dst, c.value...), store.Meta{}, nil
}
func (c constant) Apply([]store.Write) (store.Commit, error) { return nil, nil }

func serveConstant(b testing.TB, strategy string) *Server {
	b.Helper()
	exec := executor.Open(executor.Options{Store: constant{value: bytes.Repeat([]byte("v"), 100)}, MaxCommits: 4})
	d, err := dispatch.Open(dispatch.Options{Strategy: strategy, Capacity: 256, Workers: 4, MaxBatch: 64, Run: exec.Run})
	require.NoError(b, err)
	s, err := Open(Options{
		Listen: "127.0.0.1:0", Dispatcher: d, MaxKeyBytes: 4096, MaxValueBytes: 1 << 20, MaxBatchBytes: 4 << 20,
		Options: httpfront.Options{
			AcceptLoops: 1, MaxBodyBytes: 1 << 30, MaxConnections: 1000,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
			Logger: slog.New(slog.DiscardHandler),
		},
		Events: Events{Answered: func(string, string, int, served.Outcome, time.Duration) {}}, Slowest: new(slowest.Recorder),
	})
	require.NoError(b, err)
	b.Cleanup(func() {
		s.Close()
		d.Close()
		exec.Close()
	})
	return s
}

// benchRequests are the requests that matter most, with 100 bytes of value.
var benchRequests = map[string]string{
	"get": "GET /v0/entity?id=key000000001 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n",
	"put": "PUT /v0/entity?id=key000000001 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("v", 100),
	"wishes": "GET /v0/entity?id=key%2000000001 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: bench\r\nAccept: */*\r\n" +
		"Spillway-Timeout-Ms: 60000\r\nSpillway-Priority: 1\r\nSpillway-Client: me\r\n\r\n",
}

// exchanger sends one request again and again and takes answers of one length.
type exchanger struct {
	conn    net.Conn
	request []byte
	answer  []byte
}

func newExchanger(t testing.TB, s *Server, request string) *exchanger {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	e := &exchanger{conn: conn, request: []byte(request)}
	_, err = conn.Write(e.request)
	require.NoError(t, err)
	var raw bytes.Buffer
	_, err = readAnswer(bufio.NewReader(io.TeeReader(conn, &raw)), "GET")
	require.NoError(t, err)
	e.answer = raw.Bytes()
	return e
}

func (e *exchanger) do() error {
	if _, err := e.conn.Write(e.request); err != nil {
		return err
	}
	_, err := io.ReadFull(e.conn, e.answer)
	return err
}

// BenchmarkServer measures a request and its answer through sockets, client
// included, with several connections at once.
func BenchmarkServer(b *testing.B) {
	for _, strategy := range strategies.Names() {
		for name, request := range benchRequests {
			b.Run("strategy="+strategy+"/request="+name, func(b *testing.B) {
				s := serveConstant(b, strategy)
				const connections = 16
				exchangers := make([]*exchanger, connections)
				for i := range exchangers {
					exchangers[i] = newExchanger(b, s, request)
				}
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for i, e := range exchangers {
					wg.Go(func() {
						for range b.N/connections + min(1, max(0, b.N%connections-i)) {
							if err := e.do(); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
