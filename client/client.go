// Package client is for Go programs that keep data in Spillway.
//
//	kv, err := client.New("http://127.0.0.1:8080", client.Options{})
//	tag, err := kv.Put(ctx, "greeting", []byte("hello"))
//	entity, err := kv.Get(ctx, "greeting")
//
// The service is told how long its answer is waited for: the deadline of the context.
// What it turns away is sent again if that is safe and of use, and when it turns away
// much the client holds itself back: see [admissionhttp.RoundTripper], which any other
// HTTP client can use as well.
//
// # What a failed write has done
//
// After an [Error] with a status below 500, or one that is [ErrShed], a write has had no
// effect, nor after [ErrThrottled]. After any other error it may have had its effect, now
// or a moment later: the answer was lost, or the store could not say. A write without a
// condition can be sent again then, as long as nobody else writes the same key. For one
// with a condition, read what is there.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/admission/admissionhttp"
)

// Options say how a Client works. The zero value will do.
type Options struct {
	// Token is the bearer token of the service's data plane, empty for none.
	Token string
	// Name is whom the requests count for where clients get equal shares, at most 128
	// bytes. Empty stands for the address of this machine.
	Name string
	// Transport sends the requests, one attempt each. Nil stands for a transport of the
	// client's own.
	Transport http.RoundTripper
}

// Client is a client of one service. Its methods are safe for concurrent use.
type Client struct {
	url  string // without the path
	o    Options
	http http.Client
}

// idle is how many connections are kept for the next requests.
const idle = 64

// New returns a client of the service at that URL, such as http://127.0.0.1:8080. It
// does not connect yet.
func New(service string, o Options) (*Client, error) {
	u, err := url.Parse(service)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("client: the service is %q, want a URL such as http://127.0.0.1:8080, without a query", service)
	}
	if len(o.Name) > 128 {
		return nil, fmt.Errorf("client: the name has %d bytes, want at most 128", len(o.Name))
	}
	if o.Transport == nil {
		t := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: idle, DisableCompression: true}
		if standard, ok := http.DefaultTransport.(*http.Transport); ok {
			t = standard.Clone()
			t.MaxIdleConns, t.MaxIdleConnsPerHost, t.DisableCompression = 0, idle, true
		}
		o.Transport = t
	}
	c := &Client{url: strings.TrimSuffix(u.String(), "/"), o: o}
	c.http.Transport = &admissionhttp.RoundTripper{Base: o.Transport, TimeoutHeader: "Spillway-Timeout-Ms"}
	// An answer is the service's own, not that of who it points to.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// Close closes the connections that are not in use. The client may be used again.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Option is what is wanted of one call beside the operation itself.
type Option func(http.Header)

// IfMatch makes a Put or Delete depend on the present value being the one of that ETag;
// otherwise nothing is changed and the error is ErrCondition.
func IfMatch(etag string) Option {
	return func(h http.Header) { h.Set("If-Match", quoted(etag)) }
}

// IfPresent makes a Put or Delete depend on there being a value.
func IfPresent() Option { return func(h http.Header) { h.Set("If-Match", "*") } }

// IfAbsent makes a Put depend on there being no value.
func IfAbsent() Option { return func(h http.Header) { h.Set("If-None-Match", "*") } }

// IfChanged makes a Get depend on the value not being the one of that ETag, which the
// caller has; the error is ErrNotModified otherwise.
func IfChanged(etag string) Option {
	return func(h http.Header) { h.Set("If-None-Match", quoted(etag)) }
}

// Priority says how important a call is: 0 is the most important, 7 the least, 3 what
// calls have without.
func Priority(p int) Option {
	return func(h http.Header) { h.Set("Spillway-Priority", strconv.Itoa(p)) }
}

// Consistency says how many replicas of a distributed store have to answer: "one",
// "quorum" or "all". The embedded store is always consistent.
func Consistency(level string) Option {
	return func(h http.Header) { h.Set("Spillway-Consistency", level) }
}

// Validators are handed to callers without their quotes, and taken with them too.
func quoted(etag string) string { return `"` + unquoted(etag) + `"` }

func unquoted(etag string) string { return strings.Trim(etag, `"`) }

// The paths of the data plane.
const (
	entityPath   = "/v0/entity"
	entitiesPath = "/v0/entities"
)

// entity returns the target of a key.
func entity(key string) string { return entityPath + "?id=" + url.QueryEscape(key) }

// request returns a request of the client.
func (c *Client) request(ctx context.Context, method, target string, body io.Reader, options []Option) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+target, body)
	if err != nil {
		return nil, err
	}
	if c.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	if c.o.Name != "" {
		req.Header.Set("Spillway-Client", c.o.Name)
	}
	for _, option := range options {
		option(req.Header)
	}
	return req, nil
}

// do sends a request, and returns the answer if it has one of these statuses. Its body
// must be closed then.
func (c *Client) do(req *http.Request, wanted ...int) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err // what is left out is the key
		}
		return nil, fmt.Errorf("%s: %w", req.Method, err)
	}
	for _, status := range wanted {
		if resp.StatusCode == status {
			return resp, nil
		}
	}
	defer resp.Body.Close()
	return nil, readError(req.Method, resp)
}

// done is do for answers whose body is empty.
func (c *Client) done(req *http.Request, wanted int) (Meta, error) {
	resp, err := c.do(req, wanted)
	if err != nil {
		return Meta{}, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return readMeta(resp), errors.Join(err, resp.Body.Close())
}
