package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Range says which keys to list. The zero value means all.
type Range struct {
	// Prefix is what the keys begin with. It cannot be combined with Start and End.
	Prefix string
	// Start is the least key, and is in the list; End bounds the list, and is not. "" means
	// no bound. Both mean the same if the list is Descending.
	Start, End string
	// After leaves out this key and those before it, in the order of the list.
	After string
	// Limit is the largest number of entries, 0 for no limit.
	Limit int
	// KeysOnly leaves out the values.
	KeysOnly bool
	// Descending begins with the greatest key.
	Descending bool
}

// Entry is an entry of a list.
type Entry struct {
	Key string
	// Value is nil if KeysOnly was asked for.
	Value []byte
}

// target returns what is asked for.
func (r *Range) target() (string, error) {
	q := url.Values{}
	switch {
	case r.Limit < 0:
		return "", fmt.Errorf("client: the limit is %d, want at least 0", r.Limit)
	case r.Prefix != "" && (r.Start != "" || r.End != ""):
		return "", errors.New("client: Prefix excludes Start and End")
	case r.Prefix != "":
		q.Set("prefix", r.Prefix)
	case r.Start != "":
		q.Set("start", r.Start)
	default:
		q.Set("start", "\x00") // no key is less
	}
	if r.End != "" {
		q.Set("end", r.End)
	}
	if r.After != "" {
		q.Set("after64", base64.RawURLEncoding.EncodeToString([]byte(r.After)))
	}
	if r.Limit > 0 {
		q.Set("limit", strconv.Itoa(r.Limit))
	}
	if r.KeysOnly {
		q.Set("keys", "only")
	}
	if r.Descending {
		q.Set("order", "desc")
	}
	return entitiesPath + "?" + q.Encode(), nil
}

// List returns the entries of a range, in order. They are one consistent snapshot, taken
// when the loop begins. Entries are read while the loop runs, so a long list needs little
// memory. An error ends the list; the entries before it are valid. To go on, in another
// snapshot, list a Range with the last key as After.
//
// Leaving the loop ends the request. The service cuts off a reader that takes nothing for
// SPILLWAY_WRITE_TIMEOUT (10 s).
func (c *Client) List(ctx context.Context, r Range, options ...Option) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if _, err := c.list(ctx, r, options, func(e Entry) bool { return yield(e, nil) }); err != nil {
			yield(Entry{}, err)
		}
	}
}

// Page returns at most r.Limit entries, which must be at least 1, and the key after which
// the next page begins: "" after the last page. Each page is a snapshot of its own.
func (c *Client) Page(ctx context.Context, r Range, options ...Option) (entries []Entry, next string, err error) {
	if r.Limit < 1 {
		return nil, "", fmt.Errorf("client: the limit of a page is %d, want at least 1", r.Limit)
	}
	next, err = c.list(ctx, r, options, func(e Entry) bool {
		entries = append(entries, e)
		return true
	})
	if err != nil {
		return nil, "", err
	}
	return entries, next, nil
}

// list calls each for the entries of a range until that returns false.
func (c *Client) list(ctx context.Context, r Range, options []Option, each func(Entry) bool) (next string, err error) {
	target, err := r.target()
	if err != nil {
		return "", err
	}
	req, err := c.request(ctx, http.MethodGet, target, nil, options)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", ndjson)
	resp, err := c.do(req, http.StatusOK)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	lines := newLines(resp.Body, longestLine)
	for n := 0; ; n++ {
		var line struct {
			Key, Value []byte
			Next       *string
		}
		switch err := lines.next(&line); {
		case errors.Is(err, io.EOF):
			return next, nil
		case err != nil:
			return "", fmt.Errorf("GET: the list ended too early: %w", err)
		case next != "":
			return "", errors.New("GET: the list goes on after its last line")
		case line.Next != nil:
			key, err := base64.RawURLEncoding.DecodeString(*line.Next)
			if err != nil || len(key) == 0 {
				return "", fmt.Errorf("GET: the list ends with the broken key %q", *line.Next)
			}
			next = string(key)
			continue
		case len(line.Key) == 0:
			return "", errors.New("GET: the list has an entry with no key")
		case r.Limit > 0 && n == r.Limit:
			return "", fmt.Errorf("GET: the list has more than %d entries", r.Limit)
		}
		if !each(Entry{Key: string(line.Key), Value: line.Value}) {
			return "", nil
		}
	}
}

const (
	ndjson = "application/x-ndjson"
	// longestLine has room for the longest value in base64, and its key.
	longestLine = 2 * longestValue
)

// lines reads lines of JSON.
type lines struct {
	limit   io.LimitedReader
	json    *json.Decoder
	longest int64
}

func newLines(r io.Reader, longest int64) *lines {
	l := &lines{limit: io.LimitedReader{R: r}, longest: longest}
	l.json = json.NewDecoder(&l.limit)
	return l
}

// next reads a line into v. It returns io.EOF after the last.
func (l *lines) next(v any) error {
	l.limit.N = l.longest
	err := l.json.Decode(v)
	if err != nil && l.limit.N == 0 {
		return fmt.Errorf("a line has more than %d bytes", l.longest)
	}
	return err
}
