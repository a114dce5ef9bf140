package client

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// fake returns a client of a service that answers so.
func fake(t *testing.T, o Options, answer http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	c, err := New(s.URL, o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestNew_BadOptions(t *testing.T) {
	t.Parallel()
	for _, service := range []string{"", "127.0.0.1:8080", "ftp://a", "http://", "http://a?b=c", "http://u@a", "://"} {
		_, err := New(service, Options{})
		require.Error(t, err, service)
	}
	for _, service := range []string{"http://me:s3cret@a", "http://me:s3cret@a:x", "http://me:s3cret@a b"} {
		_, err := New(service, Options{})
		require.Error(t, err, service)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := New("http://a", Options{Name: strings.Repeat("x", 129)})
	require.ErrorContains(t, err, "129 bytes")
}

// Each option is the header that the service reads.
func TestClient_Options(t *testing.T) {
	t.Parallel()
	var got *http.Request
	c := fake(t, Options{Token: "secret", Name: "me"}, func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("ETag", `"tag"`)
		w.WriteHeader(http.StatusCreated)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	etag, err := c.Put(ctx, "a/\x00 +&é", []byte("value"), IfMatch("old"), TTL(1500*time.Millisecond), Priority(0), Consistency("all"))
	require.NoError(t, err)
	require.Equal(t, "tag", etag)
	require.Equal(t, "/v0/entity", got.URL.Path)
	require.Equal(t, "a/\x00 +&é", got.URL.Query().Get("id"))
	for name, want := range map[string]string{
		"Authorization": "Bearer secret", "Spillway-Client": "me", "If-Match": `"old"`, "Spillway-Ttl": "2",
		"Spillway-Priority": "0", "Spillway-Consistency": "all",
	} {
		require.Equal(t, want, got.Header.Get(name), name)
	}
	require.Len(t, got.Header.Get("Spillway-Timeout-Ms"), len("59999"))

	_, err = c.Put(t.Context(), "a", nil, IfAbsent())
	require.NoError(t, err)
	require.Equal(t, "*", got.Header.Get("If-None-Match"))
	require.Equal(t, "0", got.Header.Get("Content-Length"))
	require.Empty(t, got.Header.Get("Spillway-Timeout-Ms"))
	_, err = c.Put(t.Context(), "a", nil, IfPresent())
	require.NoError(t, err)
	require.Equal(t, "*", got.Header.Get("If-Match"))
	_, err = c.PutStream(t.Context(), "a", strings.NewReader("stream"), -1)
	require.NoError(t, err)
	require.Equal(t, []string{"chunked"}, got.TransferEncoding)
	_, err = c.PutStream(t.Context(), "a", strings.NewReader("stream"), 6)
	require.NoError(t, err)
	require.Equal(t, int64(6), got.ContentLength)
}

// An error says what the service has said.
func TestClient_Errors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		header string
		body   string
		is     error
		want   Error
	}{
		{404, "", "", ErrNotFound, Error{Status: 404}},
		{412, `ETag: "x"`, `{"detail":"it has another value"}`, ErrCondition, Error{Status: 412, Detail: "it has another value", ETag: "x"}},
		{304, `ETag: "x"`, "", ErrNotModified, Error{Status: 304, ETag: "x"}},
		{504, "Spillway-Shed: expired", `{"detail":"too late"}`, ErrShed, Error{Status: 504, Detail: "too late", Shed: "expired"}},
		{503, "Spillway-Shed: late", `{"detail":"it would be late"}`, ErrShed, Error{Status: 503, Detail: "it would be late", Shed: "late"}},
		{503, "Retry-After: 60", `{"detail":"the outcome is unknown"}`, nil, Error{Status: 503, Detail: "the outcome is unknown", RetryAfter: time.Minute}},
		{400, "", `no JSON`, nil, Error{Status: 400}},
		{302, "Location: /elsewhere", "", nil, Error{Status: 302}},
		{200, "", "", nil, Error{Status: 200}}, // to a PUT
	} {
		c := fake(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
			if name, value, ok := strings.Cut(tt.header, ": "); ok {
				w.Header().Set(name, value)
			}
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		})
		_, err := c.Put(t.Context(), "secret-key", nil, IfMatch("x"))
		var bad *Error
		require.ErrorAs(t, err, &bad)
		require.Contains(t, err.Error(), "PUT: ")
		for _, sentinel := range []error{ErrNotFound, ErrCondition, ErrNotModified, ErrShed} {
			want := errors.Is(sentinel, tt.is) // that it is the very one
			require.Equal(t, want, errors.Is(err, sentinel), "%v", err)
		}
		tt.want.method = "PUT"
		require.Equal(t, &tt.want, bad)
	}
	c, err := New("http://127.0.0.1:1", Options{})
	require.NoError(t, err)
	_, err = c.Get(t.Context(), "secret-key")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret-key", "logs are not for keys")
}

// What was turned away is sent again; a conditional write whose outcome is not known is not.
func TestClient_SendsAgainWhatIsSafe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		shed bool
		call func(*Client) error
		want int32
	}{
		{"a shed conditional put", true, func(c *Client) error { _, err := c.Put(t.Context(), "a", []byte("v"), IfAbsent()); return err }, 2},
		{"a shed batch", true, func(c *Client) error { _, err := c.Batch(t.Context(), []Op{DeleteOp("a")}); return err }, 2},
		{"a put", false, func(c *Client) error { _, err := c.Put(t.Context(), "a", []byte("v")); return err }, 2},
		{"a get", false, func(c *Client) error { _, err := c.Get(t.Context(), "a"); return err }, 2},
		{"a conditional put", false, func(c *Client) error { _, err := c.Put(t.Context(), "a", []byte("v"), IfAbsent()); return err }, 1},
		{"a conditional delete", false, func(c *Client) error { return c.Delete(t.Context(), "a", IfMatch("x")) }, 1},
		{"a batch", false, func(c *Client) error { _, err := c.Batch(t.Context(), []Op{DeleteOp("a")}); return err }, 1},
		{"a shed stream", true, func(c *Client) error {
			_, err := c.PutStream(t.Context(), "a", strings.NewReader("v"), 1)
			return err
		}, 1},
	} {
		var sent atomic.Int32
		c := fake(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
			sent.Add(1)
			if tt.shed {
				w.Header().Set("Spillway-Shed", "full")
			}
			w.Header().Set("Retry-After", map[bool]string{true: "0", false: "60"}[sent.Load() == 1])
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		require.Error(t, tt.call(c), tt.name)
		require.Equal(t, tt.want, sent.Load(), tt.name)
	}
}

// Lists are what the service writes, and nothing else.
func TestClient_List(t *testing.T) {
	t.Parallel()
	var query string
	body := `{"key":"AGE=","value":"dg=="}` + "\n" + `{"key":"Yg==","value":""}` + "\n" + `{"next":"Yv8"}` + "\n"
	c := fake(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		if r.Header.Get("Accept") != "application/x-ndjson" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, body)
	})
	for _, tt := range []struct {
		r    Range
		want string
	}{
		{Range{}, "start=%00"},
		{Range{Prefix: "a/", Limit: 7}, "limit=7&prefix=a%2F"},
		{Range{Start: "a", End: "b", KeysOnly: true, Descending: true}, "end=b&keys=only&order=desc&start=a"},
		{Range{End: "b", After: "a\xff"}, "after64=Yf8&end=b&start=%00"},
	} {
		for e, err := range c.List(t.Context(), tt.r) {
			require.NoError(t, err)
			require.NotEmpty(t, e.Key)
		}
		require.Equal(t, tt.want, query)
	}
	entries, next, err := c.Page(t.Context(), Range{Limit: 2})
	require.NoError(t, err)
	require.Equal(t, []Entry{{"\x00a", []byte("v")}, {"b", []byte{}}}, entries)
	require.Equal(t, "b\xff", next)

	for _, bad := range []Range{{Prefix: "a", Start: "b"}, {Prefix: "a", End: "b"}, {Limit: -1}} {
		n := 0
		for _, err := range c.List(t.Context(), bad) {
			require.Error(t, err)
			n++
		}
		require.Equal(t, 1, n)
	}
	_, _, err = c.Page(t.Context(), Range{})
	require.ErrorContains(t, err, "at least 1")
}

// A list that the service could not finish is not taken for a whole one.
func TestClient_ListEndsTooEarly(t *testing.T) {
	t.Parallel()
	c := fake(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"key":"YQ==","value":"dg=="}`+"\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	var keys []string
	var failed error
	for e, err := range c.List(t.Context(), Range{}) {
		if failed = err; err == nil {
			keys = append(keys, e.Key)
		}
	}
	require.ErrorContains(t, failed, "ended too early")
	require.Equal(t, []string{"a"}, keys)
	_, _, err := c.Page(t.Context(), Range{Limit: 1})
	require.Error(t, err)
}

// Who leaves a list ends it.
func TestClient_ListLeft(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	c := fake(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, `{"key":"YQ==","value":"`+base64.StdEncoding.EncodeToString(make([]byte, 3000))+`"}`+"\n"); err != nil {
				return
			}
		}
	})
	for _, err := range c.List(t.Context(), Range{}) {
		require.NoError(t, err)
		break
	}
	<-ended
}

// A batch is what the contract says, both ways.
func TestClient_Batch(t *testing.T) {
	t.Parallel()
	var sent string
	answer, status := "", 200
	c := fake(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		sent = string(b)
		if r.Method != http.MethodPost || r.URL.Path != "/v0/entities" || r.Header.Get("Content-Type") != "application/x-ndjson" {
			status = http.StatusBadRequest
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	})
	answer = `{"status":201,"etag":"x"}` + "\n" + `{"status":201,"etag":"y"}` + "\n" + `{"status":202}` + "\n" +
		`{"status":200,"value":"dg==","etag":"x","ttl":9}` + "\n" + `{"status":404}` + "\n"
	results, err := c.Batch(t.Context(), []Op{
		PutOp("a\xff", []byte("v")).TTL(time.Minute).IfMatch("x"), PutOp("b", nil).IfAbsent(), DeleteOp("c").IfMatch("*"), GetOp("d"), GetOp("e"),
	})
	require.NoError(t, err)
	require.Equal(t, `{"op":"put","key":"Yf8=","value":"dg==","ttl":60,"if_match":"x"}
{"op":"put","key":"Yg==","value":"","if_none_match":"*"}
{"op":"delete","key":"Yw==","if_match":"*"}
{"op":"get","key":"ZA=="}
{"op":"get","key":"ZQ=="}
`, sent)
	require.Equal(t, []Result{{Status: 201, ETag: "x"}, {Status: 201, ETag: "y"}, {Status: 202},
		{Status: 200, Value: []byte("v"), ETag: "x", TTL: 9 * time.Second}, {Status: 404}}, results)

	_, err = c.Batch(t.Context(), []Op{GetOp("a")})
	require.ErrorContains(t, err, "more results than operations")
	_, err = c.Batch(t.Context(), make([]Op, 1))
	require.ErrorContains(t, err, "operation 0")
	_, err = c.Batch(t.Context(), []Op{PutOp("a", nil).TTL(0)})
	require.Error(t, err)
	require.Contains(t, sent, `"ttl":0`, "which the service refuses")

	status, answer = 412, `{"title":"Precondition Failed","status":412,"detail":"no","operations":[{"index":1,"status":412,"etag":"z"}]}`
	_, err = c.Batch(t.Context(), []Op{GetOp("a")})
	var bad *Error
	require.ErrorAs(t, err, &bad)
	require.ErrorIs(t, err, ErrCondition)
	require.Equal(t, []Refusal{{Index: 1, Status: 412, ETag: "z"}}, bad.Operations)
}

// A value that ends too early is no value.
func TestClient_GetEndsTooEarly(t *testing.T) {
	t.Parallel()
	c := fake(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "half")
	})
	_, err := c.Get(t.Context(), "a")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// What an answer says of itself is checked before it is believed.
func TestClient_BadAnswers(t *testing.T) {
	t.Parallel()
	get := func(c *Client) error { _, err := c.Get(t.Context(), "a"); return err }
	stat := func(c *Client) error { _, err := c.Stat(t.Context(), "a"); return err }
	list := func(c *Client) error {
		for _, err := range c.List(t.Context(), Range{}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	page := func(c *Client) error { _, _, err := c.Page(t.Context(), Range{Limit: 1}); return err }
	batch := func(c *Client) error { _, err := c.Batch(t.Context(), []Op{GetOp("a")}); return err }
	for _, tt := range []struct {
		name, header, body string
		call               func(*Client) error
		want               string
	}{
		{"a length beyond any memory", "Content-Length: 9000000000000000000", "v", get, "9000000000000000000 bytes"},
		{"a length that is not there", "Content-Length: 1073741824", "v", get, "ended too early"},
		{"a TTL that is no number", "Spillway-Ttl: soon", "v", get, `Spillway-Ttl is "soon"`},
		{"a TTL beyond all bounds", "Spillway-Ttl: 99999999999", "v", get, `Spillway-Ttl is "99999999999"`},
		{"a negative TTL", "Spillway-Ttl: -1", "", stat, `Spillway-Ttl is "-1"`},
		{"an entry without a key", "", `{"value":"dg=="}`, list, "no key"},
		{"an entry with an empty key", "", `{"key":"","value":"dg=="}`, list, "no key"},
		{"an entry whose key is no base64", "", `{"key":"?"}`, list, "base64"},
		{"a value without an end", "", `{"key":"YQ==","value":"` + strings.Repeat("dmFs", 1000), list, "ended too early"},
		{"a last line whose key is no base64", "", `{"next":"?"}`, list, "broken key"},
		{"a last line without a key", "", `{"next":""}`, list, "broken key"},
		{"entries after the last", "", `{"next":"Yv8"}` + "\n" + `{"key":"YQ=="}`, list, "goes on"},
		{"more entries than asked for", "", `{"key":"YQ=="}` + "\n" + `{"key":"Yg=="}`, page, "more than 1"},
		{"more results than operations", "", strings.Repeat(`{"status":404}`+"\n", 2), batch, "more results than operations"},
		{"fewer results than operations", "", "", batch, "0 results"},
		{"a result whose TTL is beyond all bounds", "", `{"status":200,"ttl":9223372037}`, batch, "is 9223372037, want"},
		{"a result whose TTL is negative", "", `{"status":200,"ttl":-1}`, batch, "is -1, want"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := fake(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
				if name, value, ok := strings.Cut(tt.header, ": "); ok {
					w.Header().Set(name, value)
				}
				_, _ = io.WriteString(w, tt.body)
			})
			err := tt.call(c)
			require.ErrorContains(t, err, tt.want)
			require.NotErrorAs(t, err, new(*Error), "it was an answer of success")
		})
	}
}

// A value whose length is not known is not described as one of length -1.
func TestClient_HeadWithoutLength(t *testing.T) {
	t.Parallel()
	c := fake(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
	})
	_, err := c.Stat(t.Context(), "a")
	require.ErrorContains(t, err, "no length")
}

// Validators come with quotes and go with quotes. One that a proxy has weakened is still
// of use to ask for what has changed. It is of none for If-Match, which compares strongly.
func TestClient_ETags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		answer, etag string
		changed      string // what IfChanged sends
		match        string // what IfMatch sends, "" for an error
	}{
		{`"abc"`, "abc", `"abc"`, `"abc"`},
		{`W/"abc"`, `W/"abc"`, `W/"abc"`, ""},
		{`""`, "", `""`, `""`},
		{"", "", `""`, `""`},
		{"abc", "abc", `"abc"`, `"abc"`},
		{`"W/"`, "W/", `"W/"`, `"W/"`},
	} {
		t.Run(tt.answer, func(t *testing.T) {
			t.Parallel()
			var got http.Header
			c := fake(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
				got = r.Header
				if tt.answer != "" {
					w.Header().Set("ETag", tt.answer)
				}
				switch r.Method {
				case http.MethodPut:
					w.WriteHeader(http.StatusCreated)
				case http.MethodDelete:
					w.WriteHeader(http.StatusPreconditionFailed)
				}
			})
			e, err := c.Get(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, tt.etag, e.ETag)
			_, err = c.Get(t.Context(), "a", IfChanged(e.ETag))
			require.NoError(t, err)
			require.Equal(t, tt.changed, got.Get("If-None-Match"))

			var bad *Error
			require.ErrorAs(t, c.Delete(t.Context(), "a"), &bad)
			require.Equal(t, tt.etag, bad.ETag)

			got = nil
			etag, err := c.Put(t.Context(), "a", nil, IfMatch(e.ETag))
			_, batchErr := c.Batch(t.Context(), []Op{DeleteOp("a").IfMatch(e.ETag)})
			if tt.match == "" {
				for _, err := range []error{err, batchErr} {
					require.ErrorContains(t, err, `W/"abc" is a weak validator`)
					require.NotErrorIs(t, err, ErrCondition, "who tries again on that would do so for ever")
				}
				require.Nil(t, got, "it was sent")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.etag, etag)
		})
	}
}

// What is no entity tag is not sent as one.
func TestClient_BadETags(t *testing.T) {
	t.Parallel()
	c := fake(t, Options{}, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	for _, etag := range []string{`a"b`, `"a", "b"`, "a\nb", "a b", `W/"a`, `W/"a"b"`} {
		_, err := c.Get(t.Context(), "a", IfChanged(etag))
		require.ErrorContains(t, err, "no entity tag")
		require.ErrorContains(t, c.Delete(t.Context(), "a", IfMatch(etag)), "no entity tag")
		_, err = c.Batch(t.Context(), []Op{DeleteOp("a").IfMatch(etag)})
		require.ErrorContains(t, err, "no entity tag")
	}
}

// A batch of unknown outcome is sent again if it has a key.
func TestClient_IdempotencyKey(t *testing.T) {
	t.Parallel()
	var keys []string
	c := fake(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		w.Header().Set("Retry-After", map[bool]string{true: "0", false: "60"}[len(keys) == 1])
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := c.Batch(t.Context(), []Op{DeleteOp("a")}, IdempotencyKey("8e03978e"))
	require.Error(t, err)
	require.Equal(t, []string{"8e03978e", "8e03978e"}, keys)
}

// A write that may have had its effect before it was turned away was not merely shed.
func TestClient_ShedAfterUnknownOutcome(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	c := fake(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		if sent.Add(1) > 1 {
			w.Header().Set("Spillway-Shed", "full")
		}
		w.Header().Set("Retry-After", map[bool]string{true: "0", false: "60"}[sent.Load() == 1])
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := c.Put(t.Context(), "a", nil)
	require.NotErrorIs(t, err, ErrShed)
	require.Equal(t, int32(2), sent.Load())
}

// A new client may ask for much at once, and one that its callers keep from sending goes on.
func TestClient_HealthyServiceIsNotThrottled(t *testing.T) {
	t.Parallel()
	const n = 100
	arrived := make(chan struct{}, n)
	answer := make(chan struct{})
	c := fake(t, Options{}, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			arrived <- struct{}{}
			<-answer
		}
	})
	for range n {
		_, err := c.PutStream(t.Context(), "a", iotest.ErrReader(io.ErrUnexpectedEOF), 5)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		_, err = c.Get(t.Context(), "a", Consistency("a\nb"))
		require.ErrorContains(t, err, "Consistency")
	}
	failed := make(chan error, n)
	for range n {
		go func() { _, err := c.Get(t.Context(), "a"); failed <- err }()
	}
	for range n {
		<-arrived
	}
	close(answer)
	for range n {
		require.NoError(t, <-failed)
	}
}

// A line that does not end is not read into memory for ever.
func TestLines(t *testing.T) {
	t.Parallel()
	l := newLines(strings.NewReader(`{"a":"1234"}`+"\n"+`{"a":"1234"}`+"\n"+`{"a":"`+strings.Repeat("x", 10_000)), 600)
	var v struct{ A string }
	require.NoError(t, l.next(&v))
	require.NoError(t, l.next(&v))
	require.Equal(t, "1234", v.A)
	require.ErrorContains(t, l.next(&v), "more than 600 bytes")
	require.ErrorIs(t, newLines(strings.NewReader(""), 1).next(&v), io.EOF)
}

// All of a TTL that is as long as can be is counted in seconds, not less than nothing.
func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, -time.Second: -1, 1<<63 - 1: 9223372037,
	} {
		require.Equal(t, want, seconds(d), d)
	}
}

// Who depends on an ETag that there is none of depends on something all the same.
func TestOp_IfMatchOfNoETag(t *testing.T) {
	t.Parallel()
	line, err := DeleteOp("a").IfMatch("").MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, `{"op":"delete","key":"YQ==","if_match":""}`, string(line))
	line, err = DeleteOp("a").IfMatch(`"x"`).MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, `{"op":"delete","key":"YQ==","if_match":"x"}`, string(line), "with its quotes or without")
	line, err = DeleteOp("a").MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, `{"op":"delete","key":"YQ=="}`, string(line))
}
