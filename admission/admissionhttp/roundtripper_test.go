package admissionhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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
	const match = `If-Match: "x"`
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
		d, ok := retryAfter(date)
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
		require.Len(t, told, maxAttempts)
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

// Retries are a tenth of the requests, however many fail, and a few for those who
// seldom ask.
func TestRoundTripper_Budget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent, refuse := 0, false
		r := &RoundTripper{Base: service(func(*http.Request) (*http.Response, error) {
			if sent++; refuse {
				return respond(503, "Spillway-Shed: full"), nil
			}
			return respond(200), nil
		})}
		ask := func() {
			r.throttle = throttle{} // which would hold most of them back
			req, err := http.NewRequest(http.MethodGet, "http://x/", nil)
			require.NoError(t, err)
			_, err = r.RoundTrip(req)
			require.NoError(t, err)
		}
		const n = 1000
		refuse = true
		for range n {
			ask()
		}
		require.InDelta(t, n+n/10+10, sent, 1)
		refuse = false
		for range n {
			ask()
		}
		refuse, sent = true, 0
		ask()
		require.Equal(t, maxAttempts, sent, "it has saved some again")
	})
}

// A service that refuses all of it is sent little, and a service that is well again
// is found out soon.
func TestRoundTripper_Throttle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent, refuse := 0, true
		r := &RoundTripper{Base: service(func(*http.Request) (*http.Response, error) {
			if sent++; refuse {
				return respond(429, "Retry-After: 60"), nil
			}
			return respond(200), nil
		})}
		ask := func(n int) (throttled int) {
			for range n {
				time.Sleep(10 * time.Millisecond)
				req, err := http.NewRequest(http.MethodGet, "http://x/", nil)
				require.NoError(t, err)
				resp, err := r.RoundTrip(req)
				if err != nil {
					require.ErrorIs(t, err, ErrThrottled)
					throttled++
					continue
				}
				_ = resp.Body.Close()
			}
			return throttled
		}
		require.Zero(t, ask(slack), "a few refusals are nothing")
		ask(6000) // a minute
		// It is sent 117 give or take 10, by its draws.
		require.Less(t, sent, 200)
		refuse = false
		ask(6000)
		require.Zero(t, ask(1000), "all is well again")

		// While a service accepts every second request, nothing is held back for long.
		refuse, sent = true, 0
		half := r.Base
		r.Base = service(func(req *http.Request) (*http.Response, error) {
			refuse = !refuse
			return half.RoundTrip(req)
		})
		require.Less(t, ask(10_000), 600)
	})
}

// A request that is cancelled says nothing about the service, one that waits in vain
// does.
func TestRoundTripper_ThrottleAndContexts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &RoundTripper{Base: service(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})}
		ask := func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
			require.NoError(t, err)
			_, err = r.RoundTrip(req)
			return err
		}
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			require.ErrorIs(t, ask(ctx), context.Canceled)
		}
		throttled := 0
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if errors.Is(ask(ctx), ErrThrottled) {
				throttled++
			}
			cancel()
		}
		require.Greater(t, throttled, 800)
	})
}

// A request that is not sent has its body closed, as every RoundTripper must.
func TestRoundTripper_ClosesBodies(t *testing.T) {
	t.Parallel()
	r := &RoundTripper{Base: service(nil)}
	r.throttle.advance(time.Now())
	r.throttle.sum.requests = 1 << 40
	body := &closing{Reader: strings.NewReader("x")}
	req, err := http.NewRequest(http.MethodPost, "http://x/", body)
	require.NoError(t, err)
	_, err = r.RoundTrip(req)
	require.ErrorIs(t, err, ErrThrottled)
	require.True(t, body.closed)
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}
