package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Meta is what is known of a value beside itself.
type Meta struct {
	// ETag is the validator of the value, for IfMatch and IfChanged. It is "" for a
	// value that was listed, and where the store has none.
	ETag string
	// TTL is in what time the value is gone, in whole seconds; 0 if it stays.
	TTL time.Duration
	// Length is how many bytes the value has.
	Length int64
}

// Entity is a value.
type Entity struct {
	Meta
	Value []byte
}

// TTL makes a Put's value go after that time, which is rounded up to whole seconds: more
// than 0, at most 20 years.
func TTL(d time.Duration) Option {
	return func(h http.Header) { h.Set("Spillway-Ttl", strconv.FormatInt(seconds(d), 10)) }
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// Get returns the value of a key, or ErrNotFound.
func (c *Client) Get(ctx context.Context, key string, options ...Option) (*Entity, error) {
	body, meta, err := c.GetStream(ctx, key, options...)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	value := make([]byte, meta.Length)
	if _, err := io.ReadFull(body, value); err != nil {
		return nil, fmt.Errorf("GET: the value ended too early: %w", err)
	}
	return &Entity{meta, value}, nil
}

// GetStream is Get for values that need not be in memory as a whole. The value ends
// with io.EOF when it is complete, and with another error when it is not; it must be
// closed.
func (c *Client) GetStream(ctx context.Context, key string, options ...Option) (io.ReadCloser, Meta, error) {
	req, err := c.request(ctx, http.MethodGet, entity(key), nil, options)
	if err != nil {
		return nil, Meta{}, err
	}
	resp, err := c.do(req, http.StatusOK)
	if err != nil {
		return nil, Meta{}, err
	}
	meta := readMeta(resp)
	if meta.Length < 0 {
		_ = resp.Body.Close()
		return nil, Meta{}, errors.New("GET: the answer has no length")
	}
	return resp.Body, meta, nil
}

// Stat returns what is known of the value of a key without the value, or ErrNotFound.
func (c *Client) Stat(ctx context.Context, key string, options ...Option) (Meta, error) {
	req, err := c.request(ctx, http.MethodHead, entity(key), nil, options)
	if err != nil {
		return Meta{}, err
	}
	return c.done(req, http.StatusOK)
}

func readMeta(resp *http.Response) Meta {
	m := Meta{ETag: unquoted(resp.Header.Get("ETag")), Length: resp.ContentLength}
	if n, err := strconv.ParseUint(resp.Header.Get("Spillway-Ttl"), 10, 31); err == nil {
		m.TTL = time.Duration(n) * time.Second
	}
	return m
}

// Put makes value that of the key, and returns its ETag. It returns when the write is as
// durable as the service promises.
func (c *Client) Put(ctx context.Context, key string, value []byte, options ...Option) (etag string, err error) {
	return c.put(ctx, key, bytes.NewReader(value), int64(len(value)), options)
}

// PutStream is Put for a value that need not be in memory as a whole, of that length, or
// of an unknown one that is less than 0. It is sent once, since it cannot be read again.
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
	meta, err := c.done(req, http.StatusCreated)
	return meta.ETag, err
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
