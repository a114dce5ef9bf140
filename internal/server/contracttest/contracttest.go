// Package contracttest is the table of what the data plane answers to single requests,
// for whichever store is behind it.
package contracttest

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The limits of a service that is held to the table.
const (
	MaxKeyBytes   = 100
	MaxValueBytes = 64 << 10
	MaxBatchBytes = 256 << 10
)

// Row is a request, what must be answered, and what becomes of the connection.
type Row struct {
	Name    string
	Request string // with "\n" for CR LF in the head
	Raw     string // sent as it is instead
	Status  int
	Body    string
	Header  string // "Name: value" that the answer must have
	Detail  string // what the problem's detail must say
	Closes  bool
	// Local says that it takes a store that does what the distributed one does not:
	// ranges, batches, and keeping a value for decades.
	Local bool
}

// Text is what is sent.
func (r *Row) Text() string {
	if r.Raw != "" {
		return r.Raw
	}
	head, body, _ := strings.Cut(r.Request, "\n\n")
	return strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
}

// Method is the request's, "" for one that is sent as it is.
func (r *Row) Method() string {
	method, _, _ := strings.Cut(r.Request, " ")
	return method
}

// names reports whether the request is for that path.
func (r *Row) names(path string) bool {
	return strings.Contains(r.Request, " "+path+"?") || strings.Contains(r.Request, " "+path+" ")
}

// refused is what is answered instead by a store that cannot do what the row takes.
func (r *Row) refused() Row {
	if r.Status != http.StatusOK && r.Status != http.StatusPreconditionFailed && r.Detail != tooLarge {
		return *r // which comes before
	}
	return Row{Name: r.Name, Request: r.Request, Status: http.StatusNotImplemented, Header: "Content-Type: application/problem+json", Detail: "store", Closes: r.Closes}
}

// tooLarge is what is said of a batch that was done, but for its answer.
const tooLarge = "and nothing was written"

// Run holds a service with an empty store to the table, on one connection as long as
// it lasts. If the store is the distributed one, what that cannot do is 501, and if its
// nodes are late, which nobody asks them to be, all begins anew: the table has writes
// that may not be sent twice.
func Run(t testing.TB, address string, distributed bool) {
	t.Helper()
	for attempt := 1; !try(t, address, distributed); attempt++ {
		require.Less(t, attempt, 10, "the store is late each time")
		deleteAll(t, address)
	}
}

// deleteAll deletes what the table puts.
func deleteAll(t testing.TB, address string) {
	t.Helper()
	for _, r := range Rows() {
		if r.Status != http.StatusCreated {
			continue
		}
		target := strings.Fields(r.Request)[1]
		for attempt, status := 1, 0; status != http.StatusAccepted; attempt++ {
			require.Less(t, attempt, 10, "DELETE %s: status %d", target, status)
			conn, err := net.Dial("tcp", address)
			require.NoError(t, err)
			_, err = io.WriteString(conn, "DELETE "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			status = resp.StatusCode
			_ = resp.Body.Close()
			require.NoError(t, conn.Close())
		}
	}
}

// try returns false if the distributed store was late.
func try(t testing.TB, address string, distributed bool) bool {
	t.Helper()
	var conn net.Conn
	var answers *bufio.Reader
	for _, r := range Rows() {
		if distributed && r.Local {
			if r.names("/v0/entity") {
				continue
			}
			r = r.refused()
		}
		if conn == nil {
			var err error
			conn, err = net.Dial("tcp", address)
			require.NoError(t, err)
			answers = bufio.NewReader(conn)
		}
		_, err := io.WriteString(conn, r.Text())
		require.NoError(t, err, r.Name)
		resp, err := http.ReadResponse(answers, &http.Request{Method: r.Method()})
		require.NoError(t, err, r.Name)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err, r.Name)
		_ = resp.Body.Close()
		if distributed && resp.StatusCode == http.StatusServiceUnavailable && r.Status != resp.StatusCode && resp.Header.Get("Spillway-Shed") == "" {
			require.NoError(t, conn.Close())
			return false
		}
		Check(t, r.Method(), resp, string(body))
		r.check(t, resp, string(body))
		if r.Closes {
			_ = conn.(*net.TCPConn).CloseWrite()
			rest, err := io.ReadAll(answers)
			require.Empty(t, string(rest), r.Name)
			if err != nil {
				require.ErrorContains(t, err, "reset", r.Name)
			}
			_ = conn.Close()
			conn = nil
		}
	}
	if conn != nil {
		require.NoError(t, conn.Close())
	}
	return true
}

func (r *Row) check(t testing.TB, resp *http.Response, body string) {
	t.Helper()
	require.Equal(t, r.Status, resp.StatusCode, "%s: %s", r.Name, body)
	if r.Body != "" || r.Status == http.StatusOK {
		require.Equal(t, r.Body, body, r.Name)
	}
	if r.Header != "" {
		name, value, _ := strings.Cut(r.Header, ": ")
		if got := resp.Header.Get(name); name != "Spillway-Ttl" {
			require.Equal(t, value, got, r.Name)
		} else { // some time has passed
			most, _ := strconv.Atoi(value)
			left, err := strconv.Atoi(got)
			require.NoError(t, err, r.Name)
			require.True(t, 0 < left && left <= most, "%s: %d seconds left of %d", r.Name, left, most)
		}
	}
	require.Contains(t, body, strings.ReplaceAll(r.Detail, `"`, `\"`), r.Name)
	require.Equal(t, r.Closes, resp.Close, r.Name)
}

// Check checks what all answers have in common.
func Check(t testing.TB, method string, resp *http.Response, body string) {
	t.Helper()
	if resp.StatusCode < 400 || resp.StatusCode == http.StatusNotFound {
		require.NotEmpty(t, resp.Header.Get("Date"))
		return
	}
	require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	if method == http.MethodHead {
		require.Positive(t, resp.ContentLength)
		require.Empty(t, body)
		return
	}
	var p struct {
		Title, Detail string
		Status        int
	}
	require.NoError(t, json.Unmarshal([]byte(body), &p), body)
	require.Equal(t, http.StatusText(resp.StatusCode), p.Title)
	require.Equal(t, resp.StatusCode, p.Status)
	require.NotEmpty(t, p.Detail)
}
