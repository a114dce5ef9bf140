package admissionhttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/admission/internal/wire"
)

// writer notices when the headers of an answer go out, which is as far as a concurrency that
// is learned goes by, and gives the places back if that is when.
type writer struct {
	http.ResponseWriter
	permit  admission.Permit
	hold    Hold
	ctx     context.Context // ends with the time of the request
	inner   within          // the context of what is served, here to be one allocation
	connect bool            // the request is a CONNECT, and so is an upgrade over HTTP/2
	begun   bool            // the headers have gone out
}

// within is a context as [admission.Permit.Context] returns it.
type within struct {
	context.Context
	controller *admission.Controller
	permit     admission.Permit
}

// Value is context.Context's.
func (w *within) Value(key any) any {
	if key == any(w.controller) && w.permit != (admission.Permit{}) { // or a handler before has it
		return w.permit
	}
	return w.Context.Value(key)
}

var (
	_ io.ReaderFrom   = (*writer)(nil)
	_ io.StringWriter = (*writer)(nil)
	_ http.Flusher    = flusher{}
	_ http.Hijacker   = hijacker{}
	_ interface {
		http.Flusher
		http.Hijacker
	} = both{}
)

// able returns w as one that can flush, and hand the connection over, if the writer behind can:
// there are handlers that ask by a type assertion.
func (w *writer) able() http.ResponseWriter {
	behind := w.ResponseWriter
	flushes, hijacks := can[http.Flusher](behind) || can[flushErrorer](behind), can[http.Hijacker](behind)
	switch {
	case flushes && hijacks:
		return both{w}
	case flushes:
		return flusher{w}
	case hijacks:
		return hijacker{w}
	default:
		return w
	}
}

type flushErrorer interface{ FlushError() error }

// can reports whether w is a T, or one of those that it unwraps to is.
func can[T any](w http.ResponseWriter) bool {
	for w != nil {
		if _, ok := w.(T); ok {
			return true
		}
		w = unwrap(w)
	}
	return false
}

// unwrap returns the writer behind w as http.ResponseController finds it, or nil.
func unwrap(w http.ResponseWriter) http.ResponseWriter {
	if wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		return wrapper.Unwrap()
	}
	return nil
}

func (w *writer) release() { w.permit.Release() }

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begin is called when the headers go out: before, where the client may hold that up.
func (w *writer) begin(status int) {
	if w.begun || status < 200 && status != http.StatusSwitchingProtocols { // others follow those
		return
	}
	w.begun = true
	w.permit.Tell(wire.Outcome(w.ctx, wire.StatusOutcome(status)))
	switch w.hold {
	case HoldBody:
		return
	case HoldHeaders:
	default:
		upgrade := status == http.StatusSwitchingProtocols || w.connect && status < 300
		if !upgrade && !wire.IsEventStream(w.Header().Get("Content-Type")) {
			return
		}
	}
	w.release()
}

// WriteHeader is http.ResponseWriter's.
func (w *writer) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write is http.ResponseWriter's.
func (w *writer) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// WriteString is Write without a copy, if the writer behind can do that.
func (w *writer) WriteString(s string) (int, error) {
	w.begin(http.StatusOK)
	return io.WriteString(w.ResponseWriter, s)
}

// sniff is how much the writers of net/http look at before they send the headers.
const sniff = 512

// ReadFrom is for io.Copy, which has the kernel send files if the writer behind can. Nothing
// goes out before there is something to send: what cannot be read may be answered otherwise.
func (w *writer) ReadFrom(r io.Reader) (n int64, err error) {
	if !w.begun {
		n, err = io.CopyN(struct{ io.Writer }{w}, r, sniff)
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
	var more int64
	if to, ok := w.ResponseWriter.(io.ReaderFrom); ok {
		more, err = to.ReadFrom(r)
	} else {
		more, err = io.Copy(struct{ io.Writer }{w.ResponseWriter}, r)
	}
	return n + more, err
}

// FlushError is for http.ResponseController. Only a flush that succeeds is an answer.
func (w *writer) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err == nil {
		w.begin(http.StatusOK)
	}
	return err
}

// hijack hands the connection over: it is an upgrade.
func (w *writer) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// These are writers for handlers that look for what the one behind can do besides.
type (
	flusher  struct{ *writer }
	hijacker struct{ *writer }
	both     struct{ *writer }
)

// Flush is http.Flusher's.
func (w flusher) Flush() { _ = w.FlushError() }

// Hijack is http.Hijacker's.
func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// Flush is http.Flusher's.
func (w both) Flush() { _ = w.FlushError() }

// Hijack is http.Hijacker's.
func (w both) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }
