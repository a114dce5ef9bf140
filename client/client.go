// Package client is the Go client of Spillway's key-value store.
//
//	kv, err := client.New("http://127.0.0.1:8080", client.Options{})
//	tag, err := kv.Put(ctx, "greeting", []byte("hello"))
//	entity, err := kv.Get(ctx, "greeting")
//
// The client tells the service the deadline of the context. It retries what the service
// turns away, if that is safe and of use, and throttles itself when the service turns much
// away: see [admissionhttp.RoundTripper], which any other HTTP client can use as well. A
// service that turns nothing away is sent everything.
//
// # What a failed write has done
//
// A write has had no effect after [ErrShed], [ErrThrottled], an [Error] with a status below
// 500 other than 429, or an error of its arguments, which begins with "client: ". After any
// other error it may have taken effect, or do so a moment later: the answer was lost, or
// the store could not tell. Then a write without a condition can be repeated if nobody else
// writes the same key; an [IdempotencyKey] has a batch repeated. For a write with a
// condition, read the key.
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

// Options say how a Client works. The zero value of each field is its default.
type Options struct {
	// Token is the bearer token of the service's data plane, empty for none.
	Token string
	// Name identifies the client to strategies that give clients equal shares, at most 128
	// bytes. If it is empty, the service takes the address of this machine.
	Name string
	// Transport sends single attempts. Nil means a new http.Transport.
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
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		shown := service[strings.LastIndexByte(service, '@')+1:] // before it there may be a password
		return nil, fmt.Errorf("client: the service is %q, want a URL such as http://127.0.0.1:8080, without a user or a query", shown)
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

// Close closes idle connections. The client can still be used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Option adds a condition, a priority or the like to one call.
type Option func(http.Header)

// IdempotencyKey names a Batch, so that it may be sent again when it is not known whether it
// was done. Spillway itself does not tell the second from the first, though what stands
// before it may: use it for a batch without conditions that may be done twice.
func IdempotencyKey(key string) Option {
	return func(h http.Header) { h.Set("Idempotency-Key", key) }
}

// IfMatch makes a Put or Delete conditional: the present value must have that ETag.
// Otherwise nothing is changed and the error is ErrCondition. A weak ETag, W/"…", matches
// nothing (RFC 9110, 13.1.1): it is another error, and nothing is sent.
func IfMatch(etag string) Option {
	return func(h http.Header) { h.Set("If-Match", quoted(etag)) }
}

// IfPresent makes a Put or Delete conditional: there must be a value.
func IfPresent() Option { return func(h http.Header) { h.Set("If-Match", "*") } }

// IfAbsent makes a Put conditional: there must be no value.
func IfAbsent() Option { return func(h http.Header) { h.Set("If-None-Match", "*") } }

// IfChanged makes a Get conditional: if the present value has that ETag, which the caller
// has already, the error is ErrNotModified.
func IfChanged(etag string) Option {
	return func(h http.Header) { h.Set("If-None-Match", quoted(etag)) }
}

// Priority says how important a call is: 0 is the most important, 7 the least. The default
// is 3.
func Priority(p int) Option {
	return func(h http.Header) { h.Set("Spillway-Priority", strconv.Itoa(p)) }
}

// Consistency says how many replicas of a distributed store have to answer: "one",
// "quorum" or "all". The embedded store is always consistent.
func Consistency(level string) Option {
	return func(h http.Header) { h.Set("Spillway-Consistency", level) }
}

// Validators are handed to callers without their quotes, and taken with them too. Weak
// ones stay as they are: W/"…".
func quoted(etag string) string {
	if isWeak(etag) {
		return etag
	}
	return `"` + unquoted(etag) + `"`
}

func unquoted(etag string) string {
	if len(etag) >= 2 && etag[0] == '"' && etag[len(etag)-1] == '"' {
		return etag[1 : len(etag)-1]
	}
	return etag
}

func isWeak(etag string) bool { return strings.HasPrefix(etag, `W/"`) }

// checkTag checks an entity tag with its quotes.
func checkTag(etag string, strong bool) error {
	opaque := unquoted(strings.TrimPrefix(etag, "W/"))
	switch {
	case etag == "*" || etag == "":
		return nil
	case isWeak(etag) && `W/"`+opaque+`"` != etag, strings.ContainsFunc(opaque, func(c rune) bool { return c <= ' ' || c == '"' || c == 0x7f }):
		return fmt.Errorf("client: %s is no entity tag", etag)
	case strong && isWeak(etag):
		return fmt.Errorf("client: %s is a weak validator, which If-Match never matches", etag)
	}
	return nil
}

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
	return req, errors.Join(checkTag(req.Header.Get("If-Match"), true), checkTag(req.Header.Get("If-None-Match"), false))
}

// do sends a request, and returns the answer if it has that status. Its body must be
// closed then.
func (c *Client) do(req *http.Request, wanted int) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err // what is left out is the key
		}
		return nil, fmt.Errorf("%s: %w", req.Method, err)
	}
	if resp.StatusCode == wanted {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, readError(req.Method, resp)
}

// done is do for answers whose body is empty. It returns the answer's headers.
func (c *Client) done(req *http.Request, wanted int) (http.Header, error) {
	resp, err := c.do(req, wanted)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, mostDetail))
	return resp.Header, errors.Join(err, resp.Body.Close())
}
