package client

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Meta describes a value.
type Meta struct {
	// ETag is the validator of the value, for IfMatch and IfChanged. It is "" for a
	// value that was listed, and where the store has none. A proxy may have weakened it
	// to W/"…", which only IfChanged takes.
	ETag string
	// TTL is the time after which the value expires, in whole seconds; 0 if it does not.
	TTL time.Duration
	// Length is how many bytes the value has.
	Length int64
}

// Entity is a value and what describes it.
type Entity struct {
	Meta
	Value []byte
}

// TTL makes the value of a Put expire after that time: more than 0 and at most 20 years,
// rounded up to whole seconds.
func TTL(d time.Duration) Option {
	return func(h http.Header) { h.Set("Spillway-Ttl", strconv.FormatInt(seconds(d), 10)) }
}

func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

const (
	// longestValue is what SPILLWAY_MAX_VALUE_BYTES can be set to.
	longestValue = 1 << 30
	// firstBytes are those of a value that get memory before they have come.
	firstBytes = 1 << 20
	// longestTTL is in seconds.
	longestTTL = 630_720_000
)

// Get returns the value of a key, or ErrNotFound.
func (c *Client) Get(ctx context.Context, key string, options ...Option) (*Entity, error) {
	body, meta, err := c.GetStream(ctx, key, options...)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if meta.Length > longestValue {
		return nil, fmt.Errorf("GET: the value has %d bytes, want at most %d", meta.Length, longestValue)
	}
	var value bytes.Buffer
	value.Grow(int(min(meta.Length, firstBytes)) + bytes.MinRead)
	if n, err := value.ReadFrom(io.LimitReader(body, meta.Length)); err != nil || n < meta.Length {
		return nil, fmt.Errorf("GET: the value ended too early: %w", cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return &Entity{meta, value.Bytes()}, nil
}

// GetStream is Get for values that are too large for memory. The reader ends with io.EOF
// if the value is complete, and with another error if it is not. Close it.
func (c *Client) GetStream(ctx context.Context, key string, options ...Option) (io.ReadCloser, Meta, error) {
	req, err := c.request(ctx, http.MethodGet, entity(key), nil, options)
	if err != nil {
		return nil, Meta{}, err
	}
	resp, err := c.do(req, http.StatusOK)
	if err != nil {
		return nil, Meta{}, err
	}
	meta, err := readMeta(resp)
	if err != nil {
		_ = resp.Body.Close()
		return nil, Meta{}, err
	}
	return resp.Body, meta, nil
}

// Stat returns the Meta of a key's value without the value, or ErrNotFound.
func (c *Client) Stat(ctx context.Context, key string, options ...Option) (Meta, error) {
	req, err := c.request(ctx, http.MethodHead, entity(key), nil, options)
	if err != nil {
		return Meta{}, err
	}
	resp, err := c.do(req, http.StatusOK)
	if err != nil {
		return Meta{}, err
	}
	defer resp.Body.Close()
	return readMeta(resp)
}

func readMeta(resp *http.Response) (Meta, error) {
	m := Meta{ETag: unquoted(resp.Header.Get("ETag")), Length: resp.ContentLength}
	if ttl := resp.Header.Get("Spillway-Ttl"); ttl != "" {
		n, err := strconv.ParseUint(ttl, 10, 31)
		if err != nil || n > longestTTL {
			return Meta{}, fmt.Errorf("%s: the answer's Spillway-Ttl is %q, want seconds, at most %d", resp.Request.Method, ttl, longestTTL)
		}
		m.TTL = time.Duration(n) * time.Second
	}
	if m.Length < 0 {
		return Meta{}, fmt.Errorf("%s: the answer has no length", resp.Request.Method)
	}
	return m, nil
}

// Put sets the value of a key, and returns its ETag. It returns when the write is as
// durable as SPILLWAY_SYNC says.
func (c *Client) Put(ctx context.Context, key string, value []byte, options ...Option) (etag string, err error) {
	return c.put(ctx, key, bytes.NewReader(value), int64(len(value)), options)
}

// PutStream is Put for a value that is too large for memory. A length below 0 means that it
// is unknown. The value cannot be read twice, so the request is not retried.
func (c *Client) PutStream(ctx context.Context, key string, value io.Reader, length int64, options ...Option) (etag string, err error) {
	return c.put(ctx, key, io.NopCloser(value), length, options)
}

func (c *Client) put(ctx context.Context, key string, body io.Reader, length int64, options []Option) (etag string, err error) {
	if length == 0 {
		body = http.NoBody // otherwise a length of 0 is an unknown one
	}
	req, err := c.request(ctx, http.MethodPut, entity(key), body, options)
	if err != nil {
		return "", err
	}
	req.ContentLength = length
	answer, err := c.done(req, http.StatusCreated)
	return unquoted(answer.Get("ETag")), err
}

// Delete deletes the value of a key, if there is one.
func (c *Client) Delete(ctx context.Context, key string, options ...Option) error {
	req, err := c.request(ctx, http.MethodDelete, entity(key), nil, options)
	if err != nil {
		return err
	}
	_, err = c.done(req, http.StatusAccepted)
	return err
}
