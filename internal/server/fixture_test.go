package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/server/contracttest"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// memStore is a store in memory whose operations can be made to wait and fail.
type memStore struct {
	step sync.RWMutex // held by those that apply, and for writing by a Transact

	mu   sync.Mutex
	data map[string]string
	ttl  map[string]uint32 // which never passes
	// gates are what operations on a key wait for. An operation that arrives at
	// its gate sends its key to arrived.
	gates   map[string]chan struct{}
	arrived chan string
	fail    map[string]error // by key
	open    atomic.Int64     // iterators
	stalled atomic.Bool
	hung    chan struct{} // while it is not nil, what syncs wait for
	syncing atomic.Int64  // that wait for it, and were handed on so
}

func newMemStore() *memStore {
	return &memStore{data: map[string]string{}, ttl: map[string]uint32{}, gates: map[string]chan struct{}{}, arrived: make(chan string, 100), fail: map[string]error{}}
}

// block makes operations on key wait for the returned function.
func (m *memStore) block(key string) (unblock func()) {
	gate := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gates[key] = gate
	return sync.OnceFunc(func() {
		m.mu.Lock()
		delete(m.gates, key)
		m.mu.Unlock()
		close(gate)
	})
}

// failAt makes operations on key fail.
func (m *memStore) failAt(key string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail[key] = err
}

func (m *memStore) enter(key []byte) error {
	m.mu.Lock()
	gate, err := m.gates[string(key)], m.fail[string(key)]
	m.mu.Unlock()
	if gate != nil {
		m.arrived <- string(key)
		<-gate
	}
	return err
}

func (m *memStore) Get(dst, key []byte) ([]byte, store.Meta, error) {
	if err := m.enter(key); err != nil {
		return dst, store.Meta{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.data[string(key)]
	if !ok {
		return dst, store.Meta{}, store.ErrNotFound
	}
	return append(dst, v...), store.Meta{TTL: m.ttl[string(key)]}, nil
}

func (m *memStore) View(read func(store.View) error) error {
	m.step.Lock()
	defer m.step.Unlock()
	return read(memView{m})
}

type memView struct{ *memStore }

func (v memView) Get(key []byte) ([]byte, store.Meta, error) { return v.memStore.Get(nil, key) }

func (v memView) Stat(key []byte) (store.Meta, error) {
	value, m, err := v.Get(key)
	if err == nil && m.Tag.IsZero() {
		m.Tag = etag.Of(value)
	}
	return m, err
}

func (m *memStore) Transact(_ []store.Look, decide func(store.View) ([]store.Write, error)) (store.Commit, error) {
	m.step.Lock()
	defer m.step.Unlock()
	writes, err := decide(memView{m})
	if err != nil {
		return nil, err
	}
	return m.apply(writes)
}

func (m *memStore) Apply(writes []store.Write) (store.Commit, error) {
	m.step.RLock()
	defer m.step.RUnlock()
	return m.apply(writes)
}

func (m *memStore) apply(writes []store.Write) (store.Commit, error) {
	for _, w := range writes {
		if err := m.enter(w.Key); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range writes {
		delete(m.ttl, string(w.Key))
		if w.Delete {
			delete(m.data, string(w.Key))
			continue
		}
		m.data[string(w.Key)] = string(w.Value)
		if w.TTL != 0 {
			m.ttl[string(w.Key)] = w.TTL
		}
	}
	if m.hung != nil {
		return hungCommit{m, m.hung}, nil
	}
	return nil, nil
}

// hungCommit waits for a disk that hangs.
type hungCommit struct {
	store *memStore
	until chan struct{}
}

func (c hungCommit) Wait() error {
	c.store.syncing.Add(1)
	defer c.store.syncing.Add(-1)
	<-c.until
	return nil
}

// hang makes syncs hang until the returned function is called.
func (m *memStore) hang() (goOn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hung = make(chan struct{})
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		close(m.hung)
		m.hung = nil
	})
}

func (m *memStore) Range(start, end []byte, descending bool) (store.Iterator, error) {
	if err := m.enter(start); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open.Add(1)
	it := &memIterator{store: m, data: maps.Clone(m.data)}
	for k := range m.data {
		if k >= string(start) && (len(end) == 0 || k < string(end)) {
			it.keys = append(it.keys, k)
		}
	}
	slices.Sort(it.keys)
	if descending {
		slices.Reverse(it.keys)
	}
	return it, nil
}

func (m *memStore) Writable() error { return nil }
func (m *memStore) Stalled() bool   { return m.stalled.Load() }
func (m *memStore) Close() error    { return nil }

func (m *memStore) set(key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data[key] = value
}

func (m *memStore) get(key string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.data[key]
	return v, ok
}

type memIterator struct {
	store *memStore
	data  map[string]string
	keys  []string
	next  int
	err   error
}

func (i *memIterator) Next() bool {
	if i.next < len(i.keys) {
		i.err = i.store.enter([]byte("next:" + i.keys[i.next]))
	}
	i.next++
	return i.err == nil && i.next <= len(i.keys)
}

func (i *memIterator) Entry() (key, value []byte, err error) {
	k := i.keys[i.next-1]
	return []byte(k), []byte(i.data[k]), nil
}
func (i *memIterator) Err() error { return i.err }
func (i *memIterator) Close() error {
	i.store.open.Add(-1)
	return nil
}

// event is what Events were told.
type event struct {
	strategy, method string
	code             int
	shed             bool
}

// setup is what a service is made of in a test.
type setup struct {
	Options
	queue    dispatch.Options
	listener net.Listener // instead of one that listens on Listen
}

// service is a server with real parts but for the store.
type service struct {
	*Server
	t          testing.TB
	store      *memStore
	dispatcher *dispatch.Dispatcher
	stop       func() // closes everything

	mu     sync.Mutex
	events []event
	shed   []strategies.Reason
}

// age is how old each service is, so that nothing that takes the time since then for
// the time since a request passes for one that took a moment.
const age = 1000 * time.Hour

func serve(t testing.TB, strategy string, change ...func(*setup)) *service {
	t.Helper()
	return serveOver(t, newMemStore(), strategy, change...)
}

// serveOver is serve over another store, or that one.
func serveOver(t testing.TB, over store.Store, strategy string, change ...func(*setup)) *service {
	t.Helper()
	mem, ok := over.(*memStore)
	if !ok {
		mem = newMemStore() // which nobody uses
	}
	s := &service{t: t, store: mem}
	exec := executor.Open(executor.Options{Store: over, MaxCommits: 4, Unblocked: func() { s.dispatcher.Unblock() }})
	o := setup{
		Options: Options{
			Listen: "127.0.0.1:0",
			Options: httpfront.Options{
				AcceptLoops: 2, MaxBodyBytes: 1 << 20, MaxConnections: 100,
				ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
				Logger: slog.New(slog.DiscardHandler),
			},
			MaxKeyBytes: contracttest.MaxKeyBytes, MaxValueBytes: contracttest.MaxValueBytes, MaxBatchBytes: contracttest.MaxBatchBytes,
			Events: Events{Answered: s.answered}, Slowest: new(slowest.Recorder),
		},
		queue: dispatch.Options{
			Strategy: strategy, Capacity: 16, Workers: 2, MaxBatch: 8, Run: exec.Run, Blocked: exec.Blocked,
			Epoch: time.Now().Add(-age),
			Events: func(strategies.Spec) dispatch.Events {
				return dispatch.Events{Submitted: func() {}, Started: func(time.Duration) {}, Shed: s.wasShed}
			},
		},
	}
	for _, f := range change {
		f(&o)
	}
	d, err := dispatch.Open(o.queue)
	require.NoError(t, err)
	s.dispatcher = d
	o.Dispatcher = d
	if o.listener != nil {
		s.Server, err = start(o.Options, o.listener)
		require.NoError(t, err)
	} else {
		s.Server, err = Open(o.Options)
		require.NoError(t, err)
	}
	s.stop = sync.OnceFunc(func() {
		s.Close()
		d.Close()
		exec.Close()
		require.Zero(t, s.Connections())
		require.Zero(t, s.store.open.Load(), "every iterator is closed")
		require.Zero(t, s.Bodies(), "the budget of bodies is whole again")
	})
	t.Cleanup(s.stop)
	return s
}

func (s *service) answered(strategy, method string, code int, outcome served.Outcome, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, event{strategy, method, code, outcome == served.Shed})
	if d < 0 || d > age/2 {
		s.t.Errorf("an answer to %s took %v", method, d)
	}
}

func (s *service) wasShed(r strategies.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shed = append(s.shed, r)
}

// eventually waits for a condition that another goroutine is about to make true.
func eventually(t testing.TB, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, time.Millisecond, what)
}

// requireShed waits until the tasks have been shed.
func (s *service) requireShed(reasons ...strategies.Reason) {
	s.t.Helper()
	eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Equal(s.shed, reasons)
	}, "shed")
}

func (s *service) requireEvents(want ...event) {
	s.t.Helper()
	require.Equal(s.t, want, s.eventsOf(len(want)))
}

// eventsOf waits until so many requests have been answered, and returns all.
func (s *service) eventsOf(n int) (got []event) {
	s.t.Helper()
	eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		got = slices.Clone(s.events)
		return len(got) >= n
	}, "events")
	return got
}

// waiting waits until so many tasks wait in the queue.
func (s *service) waiting(n int) {
	s.t.Helper()
	eventually(s.t, func() bool { return s.dispatcher.Gauge().Depth == n }, "depth")
}

// client is one connection to a service.
type client struct {
	t    testing.TB
	conn *net.TCPConn
	r    *bufio.Reader
}

func (s *service) dial() *client {
	s.t.Helper()
	conn, r := fronttest.Dial(s.t, s.Addr())
	return &client{t: s.t, conn: conn, r: r}
}

// send sends text in which every line feed of the head stands for CR LF. The
// head ends with an empty line.
func (c *client) send(text string) {
	c.t.Helper()
	head, body, _ := strings.Cut(text, "\n\n")
	c.sendRaw(strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body)
}

func (c *client) sendRaw(text string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, text)
	require.NoError(c.t, err)
}

// answer is an answer that was well formed.
type answer struct {
	status int
	header http.Header
	body   string
	close  bool
	length int64
	broken error // why the body ended too early
}

// read reads an answer to a request with that method, and checks what all
// answers have in common.
func (c *client) read(method string) answer {
	c.t.Helper()
	a, err := readAnswer(c.r, method)
	require.NoError(c.t, err)
	checkAnswer(c.t, method, a)
	return a
}

func readAnswer(r *bufio.Reader, method string) (answer, error) {
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	body, broken := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body), close: resp.Close, length: resp.ContentLength, broken: broken}, nil
}

func checkAnswer(t testing.TB, method string, a answer) {
	t.Helper()
	contracttest.Check(t, method, &http.Response{StatusCode: a.status, Header: a.header, ContentLength: a.length}, a.body)
}

// do sends a request and reads its answer.
func (c *client) do(text string) answer {
	c.t.Helper()
	c.send(text)
	method, _, _ := strings.Cut(text, " ")
	return c.read(method)
}

// requireClosed waits for the end of the connection.
func (c *client) requireClosed() {
	c.t.Helper()
	fronttest.RequireEnded(c.t, c.r)
}

// requireOpen checks that the connection serves another request.
func (c *client) requireOpen() {
	c.t.Helper()
	a := c.do("GET /v0/entity?id=none-such HTTP/1.1\nHost: x\n\n")
	require.Equal(c.t, 404, a.status)
}

func eachStrategy(t *testing.T, test func(t *testing.T, strategy string)) {
	t.Helper()
	eachOf(t, strategies.Names(), test)
}

// someStrategies is eachStrategy where what is tested hardly depends on it: the short form has one with a queue,
// and one without.
func someStrategies(t *testing.T, test func(t *testing.T, strategy string)) {
	t.Helper()
	names := strategies.Names()
	if testing.Short() {
		names = []string{"auto", "sync"}
	}
	eachOf(t, names, test)
}

func eachOf(t *testing.T, names []string, test func(t *testing.T, strategy string)) {
	t.Helper()
	t.Parallel()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name)
		})
	}
}

// eachQueue leaves out the strategies under which nothing waits.
func eachQueue(t *testing.T, test func(t *testing.T, strategy string)) {
	t.Helper()
	eachStrategy(t, func(t *testing.T, name string) {
		t.Helper()
		if spec, err := strategies.Lookup(name); err == nil && !spec.Inline {
			test(t, name)
		}
	})
}

var (
	errTest       = errors.New("the disk is on fire")
	errUnwritable = fmt.Errorf("%w: %w", store.ErrUnwritable, errTest)
	errUnknown    = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, errTest)
)
