package server

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront/fronttest"
	"github.com/spillway-go/spillway/internal/server/contracttest"
)

// expectQuery is what net/url makes of a query, in our terms: whether it is
// fine, and the values of our parameters, nil if they are not there.
func expectQuery(query string) (ok bool, values map[string][]byte) {
	// In a form a semicolon is a byte like others; net/url calls it an error.
	all, err := url.ParseQuery(strings.ReplaceAll(query, ";", "%3B"))
	if err != nil {
		return false, nil
	}
	values = map[string][]byte{}
	for _, name := range []string{"id", "start", "end", "prefix", "after", "after64", "limit", "keys", "order"} {
		switch given := all[name]; len(given) {
		case 0:
		case 1:
			values[name] = []byte(given[0])
		default:
			return false, nil
		}
	}
	return true, values
}

// Queries are read as net/url reads them.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{"", "id=a", "id", "id=", "&&id=a&", "id=%41+%zz", "id=a&id=b", "%69d=%", "start=a&end=b&limit=1", "prefix=a&after64=YQ&keys=only&order=desc", "after=b&after=c", "id=a;b", "=a", "id=a=b"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		p, _, bad := parseQuery([]byte(query), nil)
		ok, want := expectQuery(query)
		require.Equal(t, ok, bad == nil, "%q", query)
		if bad != nil {
			require.Equal(t, 400, bad.Status)
			return
		}
		for i, name := range parameterNames {
			got := p[i]
			value, given := want[name]
			require.Equal(t, given, got != nil, "%q %s", query, name)
			require.Equal(t, string(value), string(got), "%q %s", query, name)
		}
	})
}

// The parameters of ranges follow the contract.
func FuzzRangeParameters(f *testing.F) {
	f.Add("a", "b", "1", true, true)
	f.Add("", "", "0", false, true)
	f.Add("a", "", "99999999999999999999", true, true)
	f.Add("a", "", "100000000000000000000A", false, true)
	f.Fuzz(func(t *testing.T, start, end, limit string, hasEnd, hasLimit bool) {
		const most = 100
		query := url.Values{"start": {start}}
		if hasEnd {
			query.Set("end", end)
		}
		if hasLimit {
			query.Set("limit", limit)
		}
		p, _, bad := parseQuery([]byte(query.Encode()), nil)
		require.Nil(t, bad)
		var q request
		_, bad = q.setRange(&p, most, nil)

		n, err := strconv.ParseUint(limit, 10, 64)
		if errors.Is(err, strconv.ErrRange) && strings.Trim(limit, "0123456789") == "" {
			n, err = math.MaxUint64, nil // too large to count is no limit in practice
		}
		want := 0
		switch {
		case start == "":
			want = 400
		case len(start) > most:
			want = 414
		case hasEnd && end == "":
			want = 400
		case hasEnd && len(end) > most:
			want = 414
		case hasLimit && (err != nil || n == 0):
			want = 400
		}
		if want != 0 {
			require.NotNil(t, bad)
			require.Equal(t, want, bad.Status)
			return
		}
		require.Nil(t, bad)
		require.Equal(t, start, string(q.key))
		if hasEnd {
			require.Equal(t, end, string(q.list.end))
		}
		if hasLimit {
			require.Equal(t, min(n, math.MaxInt), uint64(q.list.limit))
		}
	})
}

// Headers that ask for something are read as the contract says, or refused by
// name.
func FuzzWishes(f *testing.F) {
	f.Add("1", "0", "me", "one")
	f.Add("3600001", "8", strings.Repeat("x", 129), "some")
	f.Add("+1", "03", "", "all")
	f.Fuzz(func(t *testing.T, timeout, priority, client, consistency string) {
		for _, v := range []string{timeout, priority, client, consistency} {
			if strings.ContainsAny(v, "\r\n") || strings.Trim(v, " \t") != v {
				return // such a value cannot stand in a header
			}
		}
		var fields fields
		for name, value := range map[string]string{"Spillway-Timeout-Ms": timeout, "spillway-priority": priority, "SPILLWAY-CLIENT": client, "Spillway-Consistency": consistency} {
			require.Nil(t, fields.set([]byte(name), []byte(value)))
		}
		w, bad := fields.options()

		ms, err1 := strconv.ParseUint(timeout, 10, 64)
		class, err2 := strconv.ParseUint(priority, 10, 64)
		culprit := ""
		switch {
		case err1 != nil || ms < 1 || ms > 3_600_000:
			culprit = "Spillway-Timeout-Ms"
		case err2 != nil || class > 7:
			culprit = "Spillway-Priority"
		case len(client) > 128:
			culprit = "Spillway-Client"
		case consistency != "one" && consistency != "quorum" && consistency != "all":
			culprit = "Spillway-Consistency"
		}
		if culprit != "" {
			require.NotNil(t, bad)
			require.Equal(t, 400, bad.Status)
			require.Contains(t, bad.Detail, culprit)
			return
		}
		require.Nil(t, bad)
		require.Equal(t, time.Duration(ms)*time.Millisecond, w.timeout)
		require.Equal(t, uint8(class), w.priority)
		require.Equal(t, client, string(w.client))
	})
}

const wholeRequest = "GET /v0/entity?id=none-such HTTP/1.1\r\nHost: x\r\n\r\n"

// Whatever comes, every answer is well formed, the connection ends, and others are served.
func FuzzConnection(f *testing.F) {
	var everything strings.Builder
	for _, r := range contracttest.Rows() {
		text := r.Text()
		if len(text) < 2000 {
			f.Add([]byte(text))
			everything.WriteString(text)
		}
	}
	f.Add([]byte(everything.String()))
	f.Add([]byte("PUT /v0/entity?id=a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"))
	for _, tt := range framings() {
		f.Add([]byte(tt.raw + wholeRequest))
	}
	s := serve(f, "fifo", func(o *setup) { o.IdleTimeout = time.Hour })
	other := s.dial()
	other.requireOpen()
	counted := func(t testing.TB, n int) {
		eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.events) == n
		}, "it is counted, so that the next input has the events for itself")
	}
	counted(f, 1)
	f.Fuzz(func(t *testing.T, input []byte) {
		// Each input has the service for itself, so the events tell the methods
		// of its requests, in order.
		s.mu.Lock()
		s.events = nil
		s.mu.Unlock()
		output := fronttest.Throw(t, s.Addr(), input)
		eventually(t, func() bool { return s.Connections() == 1 }, "the connection is gone")

		s.mu.Lock()
		events := s.events
		s.mu.Unlock()
		r := bufio.NewReader(bytes.NewReader(output))
		for _, e := range events {
			a, err := readAnswer(r, e.method)
			for err == nil && a.status == http.StatusContinue {
				a, err = readAnswer(r, e.method)
			}
			require.NoError(t, err, "%q", output)
			require.NoError(t, a.broken, "%q", output)
			require.Equal(t, e.code, a.status)
			checkAnswer(t, e.method, a)
		}
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Contains(t, []string{"", "HTTP/1.1 100 Continue\r\n\r\n"}, string(rest))

		_, err = io.WriteString(other.conn, wholeRequest)
		require.NoError(t, err)
		a, err := readAnswer(other.r, http.MethodGet)
		require.NoError(t, err)
		require.Contains(t, []int{200, 404}, a.status) // the input may have put the key
		counted(t, len(events)+1)
	})
}
