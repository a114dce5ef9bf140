package httpfront

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/internal/socket"
)

var errNothingYet = socket.ErrNoBytes

// wire is a socket and its alarm. Its fields belong to the goroutine of the connection;
// others interrupt it by the deadlines of the socket.
type wire struct {
	front  *Front
	socket net.Conn
	below  *socket.Conn // that, or what is below its TLS
	// raw gives access to the file descriptor. It is nil if there is none that
	// carries the bytes themselves, as under TLS: then waiting takes a buffer, of
	// one byte, and hang-ups are not noticed.
	raw syscall.RawConn

	// The socket's read deadline is a coarse alarm: armed is where it was set, 0 if it
	// is not known, and until is what is really wanted, on the clock of arrivals. While
	// the goroutine waits, armed is not 0 and not after until.
	until, armed int64

	// How the next Read gets its bytes.
	carried []byte // first from here, if there are any
	one     [1]byte
	fd      int   // then from this descriptor, without waiting, if it is not -1
	drained bool  // the last one from the descriptor left nothing behind
	readErr error // what ended reading for good

	isLong bool  // a long answer is being written; see writers
	broken error // why nothing can be written any more
}

func (w *wire) open(f *Front, nc net.Conn) {
	bounded := socket.NewConn(nc, f.limits.Load().WriteTimeout)
	bounded.Waits = w.waits
	w.front, w.socket, w.below, w.fd = f, bounded, bounded, -1
	if f.opts.TLS != nil {
		w.socket = tls.Server(bounded, f.opts.TLS)
	} else {
		w.raw = bounded.Raw()
	}
}

// interrupt makes the goroutine look up from reading, and from writing if a
// time for that is given. It is called by others.
func (w *wire) interrupt(write time.Time) {
	past := time.Unix(1, 0)
	if !write.IsZero() {
		_ = w.socket.SetWriteDeadline(write)
	}
	_ = w.socket.SetReadDeadline(past)
}

// cut ends the connection, whatever its goroutine is about. It is called by others.
func (w *wire) cut() {
	nc := w.socket
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn() // its own Close would wait for a write
	}
	_ = nc.Close()
}

// isArmed reports whether the alarm rings in time.
func (w *wire) isArmed() bool { return w.armed != 0 && w.armed <= w.until }

// setAlarm has the alarm ring at until, or at soonest if that is earlier.
func (w *wire) setAlarm(now, soonest int64) {
	w.armed = min(w.until, soonest)
	_ = w.socket.SetReadDeadline(time.Now().Add(time.Duration(w.armed - now)))
}

// read gives what there is, without waiting if a descriptor is set. Otherwise it waits
// until the alarm rings and rings returns false.
func (w *wire) read(p []byte, rings func() bool) (int, error) {
	if len(w.carried) > 0 {
		n := copy(p, w.carried)
		if w.carried = w.carried[n:]; len(w.carried) == 0 {
			w.carried = nil
		}
		return n, nil
	}
	if w.fd >= 0 {
		n, err := socket.ReadNow(w.fd, p)
		w.drained = n < len(p)
		if err != nil && !errors.Is(err, errNothingYet) {
			w.readErr = err
		}
		return n, err
	}
	for {
		n, err := w.socket.Read(p)
		switch {
		case n > 0 || err == nil:
			return n, nil
		case !errors.Is(err, os.ErrDeadlineExceeded): // over
		case rings():
			continue
		case w.front.closed.Load():
			err = net.ErrClosed
		default:
			err = ErrSlow
		}
		w.readErr = err
		return 0, err
	}
}

// write writes b, and notes in broken if that fails: then nothing is written
// any more. The client may take its time as long as it takes something within
// each write time-out.
func (w *wire) write(b []byte) {
	if w.broken != nil {
		return
	}
	if f := w.front; f.closed.Load() {
		// The deadline that Close has set may have passed, and past its deadline
		// not even a socket with room takes anything.
		_ = w.socket.SetWriteDeadline(time.Now().Add(min(lastWrites, f.limits.Load().WriteTimeout)))
	}
	w.isLong = len(b) > quantum
	for len(b) > 0 && w.broken == nil {
		piece := b[:min(len(b), quantum)]
		b = b[len(piece):]
		w.waits(false)
		_, w.broken = w.socket.Write(piece)
		w.waits(true)
	}
	w.isLong = false
}

// writeNow writes what can be without waiting, and returns how much that was.
func (w *wire) writeNow(b []byte) (n int) {
	if w.broken != nil {
		return 0
	}
	if w.raw != nil {
		n, w.broken = w.below.WriteNow(b)
		return n
	}
	if !w.below.HasRoom(len(b)) {
		return 0
	}
	w.write(b)
	return len(b)
}

// waits releases the writer of a long answer while its client takes its time.
func (w *wire) waits(begins bool) {
	switch {
	case !w.isLong:
	case begins:
		w.front.writers.release()
	default:
		w.front.writers.acquire()
	}
}

// bytesPending reports whether there are bytes to be read.
func bytesPending(raw syscall.RawConn) bool {
	pending := false
	_ = raw.Control(func(fd uintptr) { pending = socket.Pending(int(fd)) })
	return pending
}
