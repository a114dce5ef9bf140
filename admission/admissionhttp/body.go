package admissionhttp

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	defaultBuffer = 64 << 10
	firstBuffer   = 1 << 10          // which grows as the body comes
	bodyTime      = 10 * time.Second // that a body may take in any case, and
	slowest       = 1 << 10          // bytes a second that it may take longer by
)

// body is one of which the beginning has been read.
type body struct {
	io.ReadCloser
	read []byte
	err  error // that followed, nil if more follows
}

// Read is io.Reader's.
func (b *body) Read(p []byte) (int, error) {
	if len(b.read) > 0 {
		n := copy(p, b.read)
		b.read = b.read[n:]
		return n, nil
	}
	if b.err != nil && len(p) > 0 {
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}

// Close is io.Closer's.
func (b *body) Close() error {
	b.read, b.err = nil, nil
	return b.ReadCloser.Close()
}

// readAhead returns the body of r, which has been read if that may be done, or as much of it
// as may, or reports that it came too slowly.
func (o *Options) readAhead(w http.ResponseWriter, r *http.Request) (ahead io.ReadCloser, slow bool) {
	most := int64(cmp.Or(o.BufferBody, defaultBuffer))
	_, done := r.Body.(*body)
	if done || r.Body == nil || r.Body == http.NoBody || r.ContentLength > most || most < 0 ||
		r.ContentLength < 0 && r.ProtoMajor > 1 || r.Header.Get("Expect") != "" || r.Method == http.MethodConnect {
		return r.Body, false
	}
	deadline := deadlineOf(w, r)
	b := &body{ReadCloser: r.Body, read: make([]byte, 0, min(most, firstBuffer)+1)}
	for b.err == nil && int64(len(b.read)) <= most {
		if len(b.read) == cap(b.read) {
			b.read = append(make([]byte, 0, min(2*int64(cap(b.read)), most)+1), b.read...)
		}
		deadline(bodyTime + time.Duration(len(b.read))*time.Second/slowest)
		var n int
		n, b.err = r.Body.Read(b.read[len(b.read):cap(b.read)])
		b.read = b.read[:len(b.read)+n]
	}
	if timeout, ok := errors.AsType[net.Error](b.err); ok && timeout.Timeout() {
		return nil, true // and the deadline stays, for net/http tries to read the rest
	}
	deadline(0)
	return b, false
}

// deadlineOf returns what has the read of the body of r fail at a time from now on that is
// the first time's plus that long, or never for 0. A server with a ReadTimeout does that
// itself, and another does not if w cannot.
func deadlineOf(w http.ResponseWriter, r *http.Request) func(time.Duration) {
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.ReadTimeout > 0 {
		return func(time.Duration) {}
	}
	control, began := http.NewResponseController(w), time.Now()
	return func(d time.Duration) {
		var at time.Time
		if d > 0 {
			at = began.Add(d)
		}
		_ = control.SetReadDeadline(at)
	}
}
