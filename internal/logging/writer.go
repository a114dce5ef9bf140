// Package logging writes log lines and never blocks the caller: a reader of stderr that
// stalls must not stop the service.
package logging

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// maxQueued is how many bytes of lines may wait to be written.
const maxQueued = 1 << 20

// Writer hands lines on to one goroutine, which writes them. When too much waits,
// lines are dropped and counted.
type Writer struct {
	to io.Writer
	// report writes to to that n lines are missing.
	report func(n uint64) error
	ended  chan struct{} // closed when the goroutine has ended
	torn   bool          // the goroutine's: the last line that was written has no end

	mu      sync.Mutex
	work    sync.Cond // there is something for the goroutine to do
	queued  []byte    // whole lines
	missing uint64    // lines dropped behind those
	dropped uint64    // total
	closed  bool
}

// Open returns a Writer to to. Report is called by its goroutine when lines are
// taken again after some were dropped.
func Open(to io.Writer, report func(n uint64) error) *Writer {
	w := &Writer{to: to, report: report, ended: make(chan struct{})}
	w.work.L = &w.mu
	go w.run()
	return w
}

// Write queues p, which is a line, or drops it. It never blocks and never fails.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.work.Signal()
	// Once a line is missing, those behind it are dropped too, until the goroutine
	// takes what is queued: so the report stands where the gap is.
	if w.closed || w.missing > 0 || len(w.queued)+len(p) > maxQueued {
		w.missing++
		w.dropped++
		return len(p), nil
	}
	w.queued = append(w.queued, p...)
	return len(p), nil
}

// Dropped returns how many lines have not been written, and never will be.
func (w *Writer) Dropped() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// Close waits until what is queued has been written, but no longer than that.
// Lines that come later are dropped.
func (w *Writer) Close(most time.Duration) {
	w.mu.Lock()
	w.closed = true
	w.work.Signal()
	w.mu.Unlock()
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	select {
	case <-w.ended:
	case <-timeout.C:
	}
}

// run writes what is queued until Close.
func (w *Writer) run() {
	defer close(w.ended)
	var (
		writing    []byte
		unreported uint64
	)
	for {
		w.mu.Lock()
		for len(w.queued) == 0 && w.missing == 0 && !w.closed {
			w.work.Wait()
		}
		if len(w.queued) == 0 && w.missing == 0 {
			w.mu.Unlock()
			return
		}
		writing, w.queued = w.queued, writing[:0]
		unreported += w.missing
		w.missing = 0
		w.mu.Unlock()

		failed := w.write(writing)
		if failed > 0 {
			w.mu.Lock()
			w.dropped += failed
			w.mu.Unlock()
		}
		if unreported += failed; unreported > 0 && w.mend() && w.report(unreported) == nil {
			unreported = 0
		}
	}
}

// atOnce is how many bytes a pipe takes as a whole (POSIX's PIPE_BUF).
const atOnce = 4096

// write writes whole lines, as many at once as do not mix with those of other processes in a
// pipe, and returns how many could not be written. What a target that is full has taken of a
// line is ended as a line of its own.
func (w *Writer) write(p []byte) (failed uint64) {
	for len(p) > 0 {
		piece := p[:min(len(p), atOnce)]
		if end := bytes.LastIndexByte(piece, '\n'); end >= 0 {
			piece = p[:end+1]
		} else if end = bytes.IndexByte(p, '\n'); end >= 0 {
			piece = p[:end+1]
		} else {
			piece = p
		}
		p = p[len(piece):]
		if !w.mend() {
			failed += uint64(bytes.Count(piece, newline))
			continue
		}
		n, err := w.to.Write(piece)
		if err != nil {
			failed += uint64(bytes.Count(piece[n:], newline))
			w.torn = n > 0 && piece[n-1] != '\n'
		}
	}
	return failed
}

// mend ends a line that is torn, and reports whether none is.
func (w *Writer) mend() bool {
	if w.torn {
		_, err := w.to.Write(newline)
		w.torn = err != nil
	}
	return !w.torn
}

var newline = []byte{'\n'}
