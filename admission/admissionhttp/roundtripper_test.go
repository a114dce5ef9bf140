package admissionhttp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission/internal/restraint"
)

// service answers requests in a test.
type service func(*http.Request) (*http.Response, error)

func (s service) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	return s(r)
}

func respond(status int, headers ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("why"))}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		resp.Header.Set(name, value)
	}
	return resp
}

var (
	errReset = errors.New("connection reset by peer")
	errDial  = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
)

// What is sent again is what cannot do harm.
func TestRoundTripper_WhatIsSentAgain(t *testing.T) {
	t.Parallel()
	const match, key = `If-Match: "x"`, "Idempotency-Key: 8e03978e"
	for _, tt := range []struct {
		name, method string
		header       string
		status       int
		answer       string // a header of it
		err          error
		again        bool
	}{
		// The service has not begun it, so it may be anything.
		{"a shed GET", "GET", "", 503, "Spillway-Shed: full", nil, true},
		{"a shed PUT", "PUT", "", 503, "Spillway-Shed: displaced", nil, true},
		{"a shed conditional PUT", "PUT", match, 503, "Spillway-Shed: full", nil, true},
		{"a shed POST", "POST", "", 503, "Spillway-Shed: codel", nil, true},
		{"a POST that was too many", "POST", "", 429, "", nil, true},
		{"a POST without a connection", "POST", "", 0, "", errDial, true},
		{"a POST that would be answered late", "POST", "", 503, "Spillway-Shed: late", nil, true},
		{"a conditional DELETE without a connection", "DELETE", match, 0, "", errDial, true},
		// Its deadline has passed.
		{"an expired GET", "GET", "", 504, "Spillway-Shed: expired", nil, false},
		// It may have had its effect: to have it twice is harmless, or is not.
		{"a GET", "GET", "", 503, "", nil, true},
		{"a GET that got no answer", "GET", "", 0, "", errReset, true},
		{"a conditional GET", "GET", `If-None-Match: "x"`, 503, "", nil, true},
		{"a HEAD", "HEAD", "", 502, "", nil, true},
		{"a PUT", "PUT", "", 503, "", nil, true},
		{"a PUT that got no answer", "PUT", "", 0, "", errReset, true},
		{"a DELETE", "DELETE", "", 504, "", nil, true},
		{"a conditional PUT", "PUT", match, 503, "", nil, false},
		{"a conditional PUT that got no answer", "PUT", match, 0, "", errReset, false},
		{"a PUT of what is not there", "PUT", "If-None-Match: *", 503, "Retry-After: 1", nil, false},
		{"a conditional DELETE", "DELETE", match, 0, "", errReset, false},
		{"a POST", "POST", "", 503, "Retry-After: 1", nil, false},
		{"a POST that got no answer", "POST", "", 0, "", errReset, false},
		// The service knows it again by its key.
		{"a POST with a key", "POST", key, 503, "", nil, true},
		{"a POST with a key that got no answer", "POST", key, 0, "", errReset, true},
		{"a PATCH with a key", "PATCH", key, 502, "", nil, true},
		{"a POST with an empty key", "POST", "Idempotency-Key: ", 503, "", nil, false},
		{"an expired POST with a key", "POST", key, 504, "Spillway-Shed: expired", nil, false},
		{"a PATCH", "PATCH", "", 503, "", nil, false},
		// An answer is an answer.
		{"a GET of nothing", "GET", "", 404, "", nil, false},
		{"a bad request", "PUT", "", 400, "", nil, false},
		{"a failure", "GET", "", 500, "", nil, false},
		{"a condition that does not hold", "PUT", match, 412, "", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				r := &RoundTripper{Base: service(func(*http.Request) (*http.Response, error) {
					if sent++; sent > 1 {
						return respond(200), nil
					}
					if tt.err != nil {
						return nil, tt.err
					}
					return respond(tt.status, tt.answer), nil
				})}
				req, err := http.NewRequest(tt.method, "http://x/", strings.NewReader("body"))
				require.NoError(t, err)
				if name, value, ok := strings.Cut(tt.header, ": "); ok {
					req.Header.Set(name, value)
				}
				resp, err := r.RoundTrip(req)
				if tt.again {
					require.NoError(t, err)
					require.Equal(t, 200, resp.StatusCode)
					require.Equal(t, 2, sent)
					return
				}
				require.Equal(t, 1, sent)
				require.Equal(t, tt.err, err)
				if err == nil {
					require.Equal(t, tt.status, resp.StatusCode)
					body, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.Equal(t, "why", string(body), "the answer is whole")
				}
			})
		})
	}
}

// The whole body is sent each time, and one that cannot be had again is sent once.
func TestRoundTripper_Bodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var bodies []string
		r := &RoundTripper{Base: service(nil)}
		r.Base = roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			b, err := io.ReadAll(req.Body)
			bodies = append(bodies, string(b))
			return respond(503, "Spillway-Shed: full"), err
		})
		req, err := http.NewRequest(http.MethodPut, "http://x/", strings.NewReader("value"))
		require.NoError(t, err)
		resp, err := r.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, []string{"value", "value", "value"}, bodies)

		bodies = nil
		req, err = http.NewRequest(http.MethodPut, "http://x/", io.MultiReader(strings.NewReader("stream")))
		require.NoError(t, err)
		_, err = r.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, []string{"stream"}, bodies)
	})
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The service says how long to wait, and is not asked earlier; and not by all at once.
func TestRoundTripper_RetryAfter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		after     string
		least     time.Duration
		most      time.Duration
		patience  time.Duration
		wantsSent int
	}{
		{"2", 2 * time.Second, 3*time.Second + time.Millisecond, time.Minute, 2},
		{"", 0, 200 * time.Millisecond, time.Minute, 2},
		{"soon", 0, 200 * time.Millisecond, time.Minute, 2},
		{"0", 0, time.Millisecond, time.Minute, 2},
		// It would be too late, or is too long to wait.
		{"2", 0, 0, 2 * time.Second, 1},
		{"31", 0, 0, time.Hour, 1},
		{"99999999999", 0, 0, time.Hour, 1},
		{"99999999999999999999", 0, 0, time.Hour, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var times []time.Time
			r := &RoundTripper{Base: service(func(*http.Request) (*http.Response, error) {
				if times = append(times, time.Now()); len(times) > 1 {
					return respond(200), nil
				}
				return respond(503, "Spillway-Shed: full", "Retry-After: "+tt.after), nil
			})}
			ctx, cancel := context.WithTimeout(t.Context(), tt.patience)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
			require.NoError(t, err)
			_, err = r.RoundTrip(req)
			require.NoError(t, err)
			require.Len(t, times, tt.wantsSent)
			if tt.wantsSent > 1 {
				waited := times[1].Sub(times[0])
				require.GreaterOrEqual(t, waited, tt.least)
				require.LessOrEqual(t, waited, tt.most)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
		d, ok := retryAfter(respond(503, "Retry-After: "+date))
		require.True(t, ok)
		require.InDelta(t, time.Hour, d, float64(2*time.Second))
	})
}

// Who gives up while the next attempt is waited for is told at once.
func TestRoundTripper_GivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &RoundTripper{Base: service(func(*http.Request) (*http.Response, error) {
			return respond(503, "Spillway-Shed: full", "Retry-After: 20"), nil
		})}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
		require.NoError(t, err)
		begun := time.Now()
		_, err = r.RoundTrip(req)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, time.Second, time.Since(begun))
	})
}

// The service is told what is left of the deadline, by each attempt, and the request
// that was given is left as it was.
func TestRoundTripper_Timeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		r := &RoundTripper{TimeoutHeader: "Spillway-Timeout-Ms", Base: service(func(req *http.Request) (*http.Response, error) {
			told = append(told, req.Header.Get("Spillway-Timeout-Ms"))
			time.Sleep(time.Second)
			return respond(503, "Spillway-Shed: full", "Retry-After: 0"), nil
		})}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
		require.NoError(t, err)
		_, err = r.RoundTrip(req)
		require.NoError(t, err)
		require.Len(t, told, restraint.MaxAttempts)
		require.Equal(t, "10000", told[0])
		require.Less(t, told[1], "9001")
		require.Empty(t, req.Header)

		told = nil
		req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
		require.NoError(t, err)
		_, err = r.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, "", told[0], "who has no deadline says none")
	})
}

// ask sends a GET, and returns what became of it.
func ask(ctx context.Context, r http.RoundTripper) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
	if err != nil {
		return err
	}
	resp, err := r.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// A service that refuses all of it is sent little. One that is well again is sent
// everything once ten seconds have passed.
func TestRoundTripper_Throttle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent, refuse := 0, true
		r := &RoundTripper{Base: service(func(*http.Request) (*http.Response, error) {
			if sent++; refuse {
				return respond(503, "Retry-After: 60"), nil
			}
			return respond(200), nil
		})}
		askAll := func(n int) (throttled int) {
			for range n {
				time.Sleep(10 * time.Millisecond)
				if err := ask(t.Context(), r); err != nil {
					require.ErrorIs(t, err, ErrThrottled)
					throttled++
				}
			}
			return throttled
		}
		require.Zero(t, askAll(10), "a few refusals are nothing")
		askAll(6000) // a minute
		// It is sent 117 give or take 10, by its draws.
		require.Less(t, sent, 200)
		refuse = false
		askAll(1000)
		require.Zero(t, askAll(1000), "all is well again")

		// While a service accepts every second request, nothing is held back for long.
		half := r.Base
		r.Base = service(func(req *http.Request) (*http.Response, error) {
			refuse = !refuse
			return half.RoundTrip(req)
		})
		require.Less(t, askAll(10_000), 600)
	})
}

// What says nothing of the service throttles nobody. A service that answers nobody any
// more is sent little, however its callers' deadlines are.
func TestRoundTripper_WhatThrottles(t *testing.T) {
	t.Parallel()
	answer := func(status int, headers ...string) service {
		return func(*http.Request) (*http.Response, error) { return respond(status, headers...), nil }
	}
	hang := service(func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	})
	slow := service(func(req *http.Request) (*http.Response, error) {
		select {
		case <-time.After(300 * time.Millisecond):
			return respond(200), nil
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	})
	for _, tt := range []struct {
		name      string
		service   service
		deadline  time.Duration
		leaves    time.Duration
		body      io.Reader
		throttled bool
	}{
		{name: "full", service: answer(503, "Spillway-Shed: full"), throttled: true},
		{name: "late", service: answer(503, "Spillway-Shed: late"), throttled: true},
		{name: "fair, as strategy fair refuses all that it does", service: answer(503, "Spillway-Shed: fair"), throttled: true},
		{name: "an upstream that fails", service: answer(502), throttled: true},
		{name: "a proxy that waits in vain", service: answer(504), throttled: true},
		{name: "no answer", service: func(*http.Request) (*http.Response, error) { return nil, errReset }, throttled: true},
		{name: "a deadline", service: hang, deadline: time.Second, throttled: true},
		// These are about the client.
		{name: "too many of one client", service: answer(429, "Retry-After: 60")},
		{name: "a bad request", service: answer(400)},
		{name: "a caller that leaves", service: hang, leaves: time.Millisecond},
		{name: "no time", service: hang, deadline: -1},
		{name: "less time than it takes", service: slow, deadline: 100 * time.Millisecond},
		{name: "less time than it takes, as the service says", service: answer(504, "Spillway-Shed: expired")},
		{name: "a body that fails", body: iotest.ErrReader(errReset)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &RoundTripper{Base: slow}
				for range 10 {
					require.NoError(t, ask(t.Context(), r))
				}
				r.Base = tt.service
				var throttled atomic.Int64
				var all sync.WaitGroup
				for range 400 {
					time.Sleep(10 * time.Millisecond)
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tt.deadline, time.Minute))
						defer cancel()
						if tt.leaves > 0 {
							time.AfterFunc(tt.leaves, cancel)
						}
						req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://x/", tt.body)
						if err != nil {
							t.Error(err)
							return
						}
						resp, err := r.RoundTrip(req)
						if errors.Is(err, ErrThrottled) {
							throttled.Add(1)
						}
						if resp != nil {
							_ = resp.Body.Close()
						}
					})
				}
				all.Wait()
				if tt.throttled {
					require.Greater(t, throttled.Load(), int64(40))
				} else {
					require.Zero(t, throttled.Load())
				}
			})
		})
	}
}

// What is under way is not refused: a new client may ask for much at once.
func TestRoundTripper_HealthyService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &RoundTripper{Base: service(func(*http.Request) (*http.Response, error) {
			time.Sleep(300 * time.Millisecond)
			return respond(200), nil
		})}
		failed := make([]error, 200)
		var all sync.WaitGroup
		for i := range failed {
			all.Go(func() { failed[i] = ask(t.Context(), r) })
		}
		all.Wait()
		require.NoError(t, errors.Join(failed...))
	})
}

// What cannot be sent is its caller's fault: it is tried once, and throttles nobody.
func TestRoundTripper_Malformed(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*http.Request){
		"a header of two lines": func(r *http.Request) { r.Header.Set("X-Name", "two\nlines") },
		"a name with a space":   func(r *http.Request) { r.Header["X Name"] = []string{"x"} },
		"a name of nothing":     func(r *http.Request) { r.Header[""] = []string{"x"} },
		"no headers":            func(r *http.Request) { r.Header = nil },
		"a method of two words": func(r *http.Request) { r.Method = "GET ME" },
		"no URL":                func(r *http.Request) { r.URL = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := 0
			r := &RoundTripper{TimeoutHeader: "Timeout", Base: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				tried++
				return http.DefaultTransport.RoundTrip(req)
			})}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			const n = 100
			for range n {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
				require.NoError(t, err)
				spoil(req)
				_, err = r.RoundTrip(req)
				require.Error(t, err)
			}
			require.Equal(t, n, tried)
		})
	}
}

// The body of a refusal may never end. It is given up, and the request is sent again.
func TestRoundTripper_RefusalWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		r := &RoundTripper{Base: service(func(*http.Request) (*http.Response, error) {
			if sent++; sent > 1 {
				return respond(200), nil
			}
			refusal := respond(503, "Spillway-Shed: full", "Retry-After: 0")
			refusal.Body, _ = io.Pipe() // into which nobody writes
			return refusal, nil
		})}
		begun := time.Now()
		require.NoError(t, ask(t.Context(), r))
		require.Less(t, time.Since(begun), time.Second)
	})
}

// A body that its caller cannot read, or whose length is another than was said, throttles
// nobody.
func TestRoundTripper_BrokenBody(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer s.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r := &RoundTripper{Base: transport}
	for _, body := range []func() io.Reader{
		func() io.Reader { return iotest.ErrReader(errReset) },
		func() io.Reader { return io.MultiReader(strings.NewReader("short")) },
		func() io.Reader { return io.MultiReader(strings.NewReader("much too long")) },
	} {
		for range 30 {
			req, err := http.NewRequest(http.MethodPut, s.URL, body())
			require.NoError(t, err)
			req.ContentLength = 8
			_, err = r.RoundTrip(req)
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrThrottled)
		}
	}
}

// Spillway-Shed says that the request has had no effect, which is not so if an attempt
// before may have had it.
func TestRoundTripper_UncertainOutcome(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, method string
		first        *http.Response
		shed         string
	}{
		{"a PUT", http.MethodPut, respond(503), ""},
		{"a PUT that got no answer", http.MethodPut, nil, ""},
		{"a shed PUT", http.MethodPut, respond(503, "Spillway-Shed: full"), "late"},
		{"a GET", http.MethodGet, respond(503), "late"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				r := &RoundTripper{Base: service(func(*http.Request) (*http.Response, error) {
					switch sent++; {
					case sent > 1:
						return respond(503, "Spillway-Shed: late"), nil
					case tt.first == nil:
						return nil, errReset
					}
					return tt.first, nil
				})}
				req, err := http.NewRequest(tt.method, "http://x/", nil)
				require.NoError(t, err)
				resp, err := r.RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, 3, sent)
				require.Equal(t, tt.shed, resp.Header.Get("Spillway-Shed"))
			})
		})
	}
}

// A request that is not sent has its body closed, as every RoundTripper must.
func TestRoundTripper_ClosesBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &RoundTripper{Base: service(func(*http.Request) (*http.Response, error) { return respond(503, "Retry-After: 60"), nil })}
		for range 10_000 {
			_ = ask(t.Context(), r)
		}
		for {
			body := &closing{Reader: strings.NewReader("x")}
			req, err := http.NewRequest(http.MethodPost, "http://x/", body)
			require.NoError(t, err)
			resp, err := r.RoundTrip(req)
			require.True(t, body.closed)
			if errors.Is(err, ErrThrottled) {
				return
			}
			require.NoError(t, resp.Body.Close())
		}
	})
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// closed is a body that fails when it is read after it was closed.
type closed struct{ io.Reader }

func (closed) Read([]byte) (int, error) { return 0, errReset }
func (closed) Close() error             { return nil }

// A transport that has no connection any more closes the body. That it reads no more of it then
// is no fault of the caller.
func TestRoundTripper_BodyIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &RoundTripper{Base: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			_ = req.Body.Close()
			_, err := req.Body.Read(make([]byte, 1))
			return nil, err
		})}
		throttled := 0
		for range 200 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", closed{})
			require.NoError(t, err)
			if _, err = r.RoundTrip(req); errors.Is(err, ErrThrottled) {
				throttled++
			}
		}
		require.Greater(t, throttled, 100)
	})
}
