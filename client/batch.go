package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Op is an operation of a batch: see PutOp, DeleteOp and GetOp.
type Op struct {
	op         string
	key, value []byte
	ttl        *int64
	match      *string
	absent     bool
}

// PutOp sets the value of the key.
func PutOp(key string, value []byte) Op {
	if value == nil {
		value = []byte{}
	}
	return Op{op: "put", key: []byte(key), value: value}
}

// DeleteOp deletes the value of the key, if there is one.
func DeleteOp(key string) Op { return Op{op: "delete", key: []byte(key)} }

// GetOp returns the value of the key. It sees what the operations before it have done.
func GetOp(key string) Op { return Op{op: "get", key: []byte(key)} }

// TTL returns the put o with a value that expires after that time: see the option TTL.
func (o Op) TTL(d time.Duration) Op {
	n := seconds(d)
	o.ttl = &n
	return o
}

// IfMatch returns the put or delete o with a condition: the present value must have that
// ETag; with "*" there must be a value. Otherwise nothing of the batch is done.
func (o Op) IfMatch(etag string) Op {
	etag = unquoted(etag)
	o.match = &etag
	return o
}

// IfAbsent returns the put o with a condition: there must be no value. Otherwise nothing of
// the batch is done.
func (o Op) IfAbsent() Op {
	o.absent = true
	return o
}

// MarshalJSON returns the operation as the service reads it.
func (o Op) MarshalJSON() ([]byte, error) {
	line := struct {
		Op          string  `json:"op"`
		Key         []byte  `json:"key"`
		Value       *[]byte `json:"value,omitempty"`
		TTL         *int64  `json:"ttl,omitempty"`
		IfMatch     *string `json:"if_match,omitempty"`
		IfNoneMatch string  `json:"if_none_match,omitempty"`
	}{Op: o.op, Key: o.key, TTL: o.ttl, IfMatch: o.match}
	if o.value != nil {
		line.Value = &o.value
	}
	if o.absent {
		line.IfNoneMatch = "*"
	}
	return json.Marshal(line)
}

// Result is the result of one operation of a batch.
type Result struct {
	// Status is 201 for a put, 202 for a delete, 200 for a get, and 404 for a get that found
	// no value.
	Status int
	// Value is what a get found.
	Value []byte
	// ETag is the validator of the value that was put or found.
	ETag string
	// TTL is the time after which the value that was found expires, 0 if it does not.
	TTL time.Duration
}

// Batch does at most 1,000 operations in order, as one: others see all of their writes or
// none, also after a crash. If a condition does not hold the error is ErrCondition, and
// Error.Operations says which. A batch is retried only if the service has not begun it, or
// if it has an IdempotencyKey.
func (c *Client) Batch(ctx context.Context, ops []Op, options ...Option) ([]Result, error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	for i, o := range ops {
		if o.op == "" {
			return nil, fmt.Errorf("client: operation %d of the batch is none", i)
		}
		if o.match != nil {
			if err := checkTag(quoted(*o.match), true); err != nil {
				return nil, fmt.Errorf("%w: operation %d of the batch", err, i)
			}
		}
		if err := lines.Encode(o); err != nil {
			return nil, err
		}
	}
	req, err := c.request(ctx, http.MethodPost, entitiesPath, bytes.NewReader(body.Bytes()), options)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", ndjson)
	resp, err := c.do(req, http.StatusOK)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	results := make([]Result, 0, len(ops))
	for answers := newLines(resp.Body, longestLine); ; {
		var line struct {
			Status int
			Value  []byte
			ETag   string
			TTL    int64
		}
		if err := answers.next(&line); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("POST: the batch was done, and its answer ended too early: %w", err)
		}
		if len(results) == len(ops) {
			return nil, fmt.Errorf("POST: the batch was done, and its answer has more results than operations, of which there are %d", len(ops))
		}
		if line.TTL < 0 || line.TTL > longestTTL {
			return nil, fmt.Errorf("POST: the batch was done, and the ttl of result %d is %d, want at most %d", len(results), line.TTL, longestTTL)
		}
		results = append(results, Result{line.Status, line.Value, line.ETag, time.Duration(line.TTL) * time.Second})
	}
	if len(results) != len(ops) {
		return nil, fmt.Errorf("POST: the batch was done, and its answer has %d results for %d operations", len(results), len(ops))
	}
	return results, nil
}
