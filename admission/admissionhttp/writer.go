package admissionhttp

import (
	"bufio"
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
	connect bool // the request is a CONNECT, and so is an upgrade over HTTP/2
	begun   bool // the headers have gone out
}

var (
	_ io.ReaderFrom   = (*writer)(nil)
	_ io.StringWriter = (*writer)(nil)
	_ http.Hijacker   = (*writer)(nil)
	_ http.Flusher    = flusher{}
)

// hold returns what next writes to. It can flush if w can: there are handlers that ask by
// a type assertion whether they can stream.
func hold(w http.ResponseWriter, r *http.Request, p admission.Permit, h Hold) http.ResponseWriter {
	held := &writer{ResponseWriter: w, permit: p, hold: h, connect: r.Method == http.MethodConnect}
	if _, ok := w.(http.Flusher); ok {
		return flusher{held}
	}
	return held
}

func (w *writer) release() { w.permit.Release() }

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begin is called before anything goes out.
func (w *writer) begin(status int) {
	if w.begun || status < 200 && status != http.StatusSwitchingProtocols { // others follow those
		return
	}
	w.begun = true
	w.permit.Answered(wire.StatusOutcome(status))
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

// ReadFrom is for io.Copy, which has the kernel send files if the writer behind can.
func (w *writer) ReadFrom(r io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	if to, ok := w.ResponseWriter.(io.ReaderFrom); ok {
		return to.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{w.ResponseWriter}, r)
}

// FlushError is for http.ResponseController.
func (w *writer) FlushError() error {
	w.begin(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack hands the connection over, if the writer behind can do that: it is an upgrade.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// flusher is a writer for handlers that look for an http.Flusher.
type flusher struct{ *writer }

// Flush is http.Flusher's.
func (w flusher) Flush() { _ = w.FlushError() }
