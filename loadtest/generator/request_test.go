package generator

import (
	"bufio"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// planTo is a plan of the service's operations to a host.
func planTo(host string, headers ...string) *plan {
	s := server{scheme: "http", host: host}
	return &plan{server: s, to: []destination{newDestination(&s, headers)}}
}

func TestEncoder_WritesWhatTheServiceReads(t *testing.T) {
	t.Parallel()
	headers := []string{"Authorization: Bearer x", "Spillway-Client: a"}
	for _, tt := range []struct {
		name    string
		request workload.Request
		options workload.Options
		left    time.Duration
		want    string // without the value
	}{
		{
			"a put has its length", workload.Request{Op: workload.Put, Key: 42, Size: 10, Priority: -1}, workload.Options{}, 0,
			"PUT /v0/entity?id=key000000000042 HTTP/1.1\r\nHost: h:1\r\nContent-Length: 10\r\n\r\n",
		},
		{
			"and so has an empty one", workload.Request{Op: workload.Put, Priority: -1}, workload.Options{}, 0,
			"PUT /v0/entity?id=key000000000000 HTTP/1.1\r\nHost: h:1\r\nContent-Length: 0\r\n\r\n",
		},
		{
			"others have none", workload.Request{Op: workload.Get, Key: 999_999_999_999, Priority: -1}, workload.Options{}, 0,
			"GET /v0/entity?id=key999999999999 HTTP/1.1\r\nHost: h:1\r\n\r\n",
		},
		{
			"headers are sent with all", workload.Request{Op: workload.Delete, Key: 1, Priority: 7}, workload.Options{Headers: headers}, 0,
			"DELETE /v0/entity?id=key000000000001 HTTP/1.1\r\nHost: h:1\r\nAuthorization: Bearer x\r\nSpillway-Client: a\r\nSpillway-Priority: 7\r\n\r\n",
		},
		{
			"a scan has its limit", workload.Request{Op: workload.Scan, Key: 7, Priority: 0}, workload.Options{ScanLimit: 5}, 0,
			"GET /v0/entities?start=key000000000007&limit=5 HTTP/1.1\r\nHost: h:1\r\nSpillway-Priority: 0\r\n\r\n",
		},
		{
			"what is left of the timeout is told", workload.Request{Op: workload.Get, Priority: -1}, workload.Options{TimeoutHeader: true}, 1234567 * time.Microsecond,
			"GET /v0/entity?id=key000000000000 HTTP/1.1\r\nHost: h:1\r\nSpillway-Timeout-Ms: 1234\r\n\r\n",
		},
		{
			"and is workload.Never less than the service takes", workload.Request{Op: workload.Get, Priority: -1}, workload.Options{TimeoutHeader: true}, -time.Second,
			"GET /v0/entity?id=key000000000000 HTTP/1.1\r\nHost: h:1\r\nSpillway-Timeout-Ms: 1\r\n\r\n",
		},
		{
			"nor more", workload.Request{Op: workload.Get, Priority: -1}, workload.Options{TimeoutHeader: true}, 2 * time.Hour,
			"GET /v0/entity?id=key000000000000 HTTP/1.1\r\nHost: h:1\r\nSpillway-Timeout-Ms: 3600000\r\n\r\n",
		},
	} {
		o := tt.options.WithDefaults()
		sent := newEncoder(&o, planTo("h:1", o.Headers...)).append([]byte("before"), &tt.request, tt.left)
		require.Equal(t, "before"+tt.want, string(sent[:len(sent)-tt.request.Size]), tt.name)

		r := bufio.NewReader(bytes.NewReader(sent[len("before"):]))
		parsed, err := http.ReadRequest(r)
		require.NoError(t, err, tt.name)
		body, err := io.ReadAll(parsed.Body)
		require.NoError(t, err, tt.name)
		require.Len(t, body, tt.request.Size, tt.name)
		_, err = r.ReadByte()
		require.ErrorIs(t, err, io.EOF, tt.name)
	}
}

func TestEncoder_KeysSortByNumber(t *testing.T) {
	t.Parallel()
	var names []string
	for _, key := range []uint64{0, 1, 9, 10, 99, 100, 12345, 99_999_999_999, 100_000_000_000, 999_999_999_999} {
		names = append(names, string(appendKey(nil, key)))
	}
	require.True(t, slices.IsSorted(names), "%v", names)
	for _, name := range names {
		require.Len(t, name, 15)
	}
}

func TestEncoder_ValuesAreRandomAndRepeatable(t *testing.T) {
	t.Parallel()
	value := func(o workload.Options, r workload.Request) []byte {
		o.ValueSize = workload.Sizes{Min: 0, Max: 1000}
		o = o.WithDefaults()
		r.Op = workload.Put
		sent := newEncoder(&o, planTo("h")).append(nil, &r, 0)
		return sent[len(sent)-r.Size:]
	}
	one := value(workload.Options{}, workload.Request{Key: 1, Seq: 2, Size: 100})
	require.Equal(t, one, value(workload.Options{}, workload.Request{Key: 1, Seq: 2, Size: 100}))
	require.NotEqual(t, one, value(workload.Options{}, workload.Request{Key: 2, Seq: 2, Size: 100}))
	require.NotEqual(t, one, value(workload.Options{}, workload.Request{Key: 1, Seq: 3, Size: 100}))
	require.NotEqual(t, one, value(workload.Options{Seed: 1 << 63}, workload.Request{Key: 1, Seq: 2, Size: 100}))

	// As many as a store packs into one block hardly get smaller together.
	var all bytes.Buffer
	o := workload.Options{}.WithDefaults()
	e := newEncoder(&o, planTo("h"))
	for i := range uint64(320) {
		sent := e.append(nil, &workload.Request{Op: workload.Put, Key: i, Seq: i, Size: 100}, 0)
		all.Write(sent[len(sent)-100:])
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	require.NoError(t, err)
	_, err = w.Write(all.Bytes())
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Greater(t, packed.Len(), all.Len()*9/10)
}

func TestEncoder_Client(t *testing.T) {
	t.Parallel()
	o := workload.Options{Mix: workload.Mix{Get: 1}}.WithDefaults()
	e := newEncoder(&o, planTo("host"))
	require.Contains(t, string(e.append(nil, &workload.Request{Op: workload.Get, Priority: -1, Client: "greedy"}, 0)), "\r\nSpillway-Client: greedy\r\n")
	require.NotContains(t, string(e.append(nil, &workload.Request{Op: workload.Get, Priority: -1}, 0)), "Spillway-Client")
}

func TestEncoder_Allocs(t *testing.T) {
	o := workload.Options{ValueSize: workload.Sizes{Min: 1, Max: 10}, TimeoutHeader: true}.WithDefaults()
	e, dst := newEncoder(&o, planTo("127.0.0.1:8080")), make([]byte, 0, 4096)
	for op := range workload.Scan + 1 {
		r := workload.Request{Op: op, Size: 10, Priority: 1}
		require.Zero(t, testing.AllocsPerRun(1000, func() { dst = e.append(dst[:0], &r, time.Second) }), op)
	}
}

func BenchmarkEncoder(b *testing.B) {
	for _, op := range []workload.Op{workload.Put, workload.Get} {
		b.Run(fmt.Sprintf("op=%v", op), func(b *testing.B) {
			o := workload.Options{}.WithDefaults()
			e := newEncoder(&o, planTo("127.0.0.1:8080"))
			r := workload.Request{Op: op, Size: 100, Priority: -1}
			var dst []byte
			for b.Loop() {
				r.Key++
				dst = e.append(dst[:0], &r, 0)
			}
		})
	}
}
