package server

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/internal/secure"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// draining is a queue that drains in two seconds.
type draining struct{ Dispatcher }

func (draining) DrainTime() time.Duration { return 2 * time.Second }

func (draining) Gauge() dispatch.Gauge { return dispatch.Gauge{Strategy: "fifo"} }

// newCall returns a call that no connection has.
func newCall(o Options) *call {
	o.Dispatcher = draining{}
	o.MaxKeyBytes, o.MaxValueBytes, o.MaxBatchBytes, o.MaxBodyBytes = 16, 100, 1000, 500
	s := &Server{opts: o, cors: newCORS(o.CORSOrigins)}
	s.limited.Store(&o)
	return &call{server: s}
}

// A head becomes an operation, or what is wrong with it.
func TestCall_RequestToOperation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method, target string
		fields         string // name: value, separated by |
		status         int    // 0 if it is fine
		kind           executor.Kind
		key, end       string
		most           int
		keep           bool
	}{
		{method: "GET", target: "/v0/entity?id=a%20b", kind: executor.Get, key: "a b", most: 100},
		{method: "HEAD", target: "/v0/entity?id=k", kind: executor.Get, key: "k", most: 100},
		{method: "PUT", target: "/v0/entity?id=k", fields: "Spillway-Ttl: 7", kind: executor.Put, key: "k", most: 100, keep: true},
		{method: "DELETE", target: "/v0/entity?id=k", fields: "If-Match: *", kind: executor.Delete, key: "k", most: 100},
		{method: "GET", target: "/v0/entities?prefix=k", kind: executor.Range, key: "k", end: "l", most: 100},
		{method: "GET", target: "/v0/entities?start=a&end=b&order=desc", kind: executor.Range, key: "a", end: "b", most: 100},
		// A batch that the budget of bodies never has room for is too large.
		{method: "POST", target: "/v0/entities", fields: "Content-Type: application/x-ndjson", kind: executor.Batch, most: 500, keep: true},
		{method: "POST", target: "/v0/entities", status: 415},
		{method: "GET", target: "/v0/entity", status: 400},
		{method: "GET", target: "/v0/entity?id=" + strings.Repeat("k", 17), status: 414},
		{method: "PATCH", target: "/v0/entity?id=k", status: 405},
		{method: "GET", target: "/v1", status: 400},
		{method: "GET", target: "/v0/entity?id=k", fields: "Spillway-Priority: 8", status: 400},
		{method: "GET", target: "/v0/entity?id=k", fields: "Spillway-Priority: 1|spillway-priority: 1", status: 400},
	} {
		c := newCall(Options{})
		c.Begin()
		h := &httpfront.Request{Method: tt.method, RawMethod: []byte(tt.method), Target: []byte(tt.target)}
		var bad *httpfront.Problem
		for line := range strings.SplitSeq(tt.fields, "|") {
			if name, value, ok := strings.Cut(line, ": "); ok && bad == nil {
				bad = c.Field([]byte(name), []byte(value))
			}
		}
		var want httpfront.Wanted
		if bad == nil {
			want, bad = c.parse(h)
		}
		if tt.status != 0 {
			require.NotNil(t, bad, tt.target)
			require.Equal(t, tt.status, bad.Status, bad.Detail)
			continue
		}
		require.Nil(t, bad, tt.target)
		require.Equal(t, tt.most, want.Most, tt.target)
		require.Equal(t, tt.keep, want.Keep, tt.target)
		q := &c.request
		switch tt.kind {
		case executor.Batch:
			require.True(t, q.isBatch)
		case executor.Range:
			require.True(t, q.isRange)
			op := q.rangeOperation(true)
			require.Equal(t, tt.key, string(op.Key))
			require.Equal(t, tt.end, string(op.End))
		default:
			op := q.operation(tt.method, []byte("value"))
			require.Equal(t, tt.kind, op.Kind, tt.target)
			require.Equal(t, tt.key, string(op.Key))
			require.Equal(t, tt.keep, string(op.Value) == "value")
			require.Equal(t, tt.keep, op.TTL == 7)
			require.Equal(t, tt.method == "DELETE", op.If.Present)
		}
	}
}

// A result becomes an answer.
func TestCall_ResultToAnswer(t *testing.T) {
	t.Parallel()
	const room = 4
	value := []byte("roomvalue")
	tag := etag.Of(value[room:])
	line := `ETag: "` + tag.String() + `"` + "\r\n"
	for _, tt := range []struct {
		name   string
		op     executor.Op
		shed   strategies.Reason
		change func(*request)

		status    int
		mediaType string
		lines     string
		detail    string // of a problem
		close     bool
	}{
		{name: "a value", op: executor.Op{Kind: executor.Get, Buf: value}, status: 200, mediaType: "application/octet-stream", lines: line},
		{name: "one that expires", op: executor.Op{Kind: executor.Get, Buf: value, Meta: store.Meta{TTL: 9}}, status: 200, mediaType: "application/octet-stream", lines: line + "Spillway-Ttl: 9\r\n"},
		{name: "one that the client has", op: executor.Op{Kind: executor.Get, Buf: value}, change: func(q *request) { q.ifNoneMatch.any = true }, status: 304, lines: line},
		{name: "another than it wants", op: executor.Op{Kind: executor.Get, Buf: value}, change: func(q *request) { q.ifMatch.tags = []etag.Tag{} }, status: 412, detail: "the key has a value"},
		{name: "none", op: executor.Op{Kind: executor.Get, Buf: value[:room], Err: store.ErrNotFound}, status: 404},
		{name: "a write", op: executor.Op{Kind: executor.Put, Value: value[room:]}, status: 201, lines: line},
		{name: "a removal", op: executor.Op{Kind: executor.Delete}, status: 202},
		{name: "a condition", op: executor.Op{Kind: executor.Delete, Err: store.ErrCondition}, status: 412, detail: "no value"},
		{name: "a failure", op: executor.Op{Kind: executor.Put, Err: errUnwritable}, status: 503, detail: "cannot write"},
		{name: "too many", op: executor.Op{Kind: executor.Put}, shed: strategies.ReasonFull, status: -503},
		{name: "too late", op: executor.Op{Kind: executor.Put}, shed: strategies.ReasonExpired, status: -504},
		{name: "nobody", op: executor.Op{Kind: executor.Put}, shed: strategies.ReasonAbandoned, status: -503, close: true},
	} {
		c := newCall(Options{Token: secure.Token{}})
		c.op, c.task.Shed, c.task.Write = tt.op, tt.shed, tt.op.Kind != executor.Get
		if tt.change != nil {
			tt.change(&c.request)
		}
		a := c.answer(room)
		require.Equal(t, tt.close, a.Close, tt.name)
		switch {
		case tt.status < 0:
			require.Same(t, refusal.Answer(tt.shed, 2*time.Second), a.Problem, tt.name)
			require.True(t, c.shed)
		case tt.detail != "":
			require.Equal(t, tt.status, a.Problem.Status, tt.name)
			require.Contains(t, a.Problem.Detail, tt.detail)
		default:
			require.Nil(t, a.Problem, tt.name)
			require.Equal(t, tt.status, a.Status, tt.name)
			require.Equal(t, tt.mediaType, a.Type, tt.name)
			require.Equal(t, tt.lines, string(a.Lines), tt.name)
		}
	}
}
