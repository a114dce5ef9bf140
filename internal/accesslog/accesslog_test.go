package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/slowest"
	"github.com/spillway-go/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// target takes lines, unless it is full or stalls.
type target struct {
	mu    sync.Mutex // stalls while it is held
	room  int        // bytes
	bytes bytes.Buffer
}

func (t *target) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(p), t.room)
	t.room -= n
	t.bytes.Write(p[:n])
	if n < len(p) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

// lines are those that were written, each of which is JSON.
func (t *target) lines(tt *testing.T) (all []map[string]any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for text := range strings.Lines(t.bytes.String()) {
		var fields map[string]any
		require.NoError(tt, json.Unmarshal([]byte(text), &fields), text)
		all = append(all, fields)
	}
	return all
}

func request(code int, shed string, outcome served.Outcome) *served.Request {
	return &served.Request{
		Outcome: outcome,
		Request: slowest.Request{Strategy: "fifo", Method: "GET", Code: code, Shed: shed, Route: "orders",
			Took: 6 * time.Millisecond, Received: time.Millisecond, Waited: 2 * time.Millisecond, Ran: 3 * time.Millisecond},
		Path: []byte("/v0/ent\"\xff"), Client: "10.0.0.1", Priority: 3, Operation: "get", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
	}
}

func TestLog_Lines(t *testing.T) {
	t.Parallel()
	for all, want := range map[bool][]float64{true: {200, 503, 404, 500}, false: {503, 500}} {
		to := &target{room: 1 << 20}
		l := Open(to, all)
		for _, r := range []*served.Request{request(200, "", served.OK), request(503, "late", served.Shed), request(404, "", served.OK), request(500, "", served.Error)} {
			l.Add(r)
		}
		l.Close(time.Minute)
		lines := to.lines(t)
		var codes []float64
		for _, line := range lines {
			codes = append(codes, line["status"].(float64))
		}
		require.Equal(t, want, codes)
		for _, line := range lines {
			if line["status"] != 503.0 {
				continue
			}
			_, err := time.Parse(time.RFC3339Nano, line["time"].(string))
			require.NoError(t, err)
			delete(line, "time")
			require.Equal(t, map[string]any{
				"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "method": "GET", "path": "/v0/ent\"\ufffd", "route": "orders", "client": "10.0.0.1", "priority": 3.0,
				"status": 503.0, "outcome": "shed", "reason": "late", "strategy": "fifo", "work": "get", "received_ms": 1.0, "wait_ms": 2.0, "work_ms": 3.0, "took_ms": 6.0,
			}, line)
		}
	}
}

// A target that is full takes nothing of a request's time. What was lost is counted and said,
// and every line that is there is whole.
func TestLog_Full(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &target{room: 1000} // ends within a line
		l := Open(to, true)
		for range 10 {
			l.Add(request(200, "", served.OK))
			synctest.Wait()
		}
		lost := l.Dropped()
		require.Positive(t, lost)
		to.mu.Lock()
		to.room = 1 << 20
		to.mu.Unlock()
		l.Add(request(200, "", served.OK))
		synctest.Wait()
		l.Close(time.Minute)
		written, said := 0, 0.0
		whole := strings.Count(to.bytes.String(), "\n")
		for text := range strings.Lines(to.bytes.String()) {
			var fields map[string]any
			if json.Unmarshal([]byte(text), &fields) != nil {
				whole-- // the one that found the end
				continue
			}
			if n, ok := fields["dropped"]; ok {
				said += n.(float64)
				continue
			}
			written++
		}
		require.Equal(t, strings.Count(to.bytes.String(), "\n")-1, whole, "one line alone is broken")
		require.EqualValues(t, lost, said)
		require.EqualValues(t, 11, written+int(lost))
	})
}

// A target that hangs takes nothing of a request's time, and little of the end's.
func TestLog_Hangs(t *testing.T) {
	t.Parallel()
	to := &target{room: 1 << 30}
	l := Open(to, true)
	to.mu.Lock()
	const n = 20_000
	for range n {
		l.Add(request(200, "", served.OK))
	}
	require.Positive(t, l.Dropped())
	l.Close(time.Millisecond)
	to.mu.Unlock()
	l.Close(time.Minute)
	var said float64
	written := 0
	for _, line := range to.lines(t) {
		if d, ok := line["dropped"].(float64); ok {
			said += d
			continue
		}
		written++
	}
	require.EqualValues(t, l.Dropped(), said)
	require.EqualValues(t, n, written+int(l.Dropped()))
}

func BenchmarkLog_Add(b *testing.B) {
	l := Open(&target{room: 1 << 62}, true)
	defer l.Close(time.Minute)
	r := request(200, "", served.OK)
	b.ReportAllocs()
	for b.Loop() {
		l.Add(r)
	}
}
