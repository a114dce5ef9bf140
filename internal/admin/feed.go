package admin

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// frameInterval is the time between two frames.
	frameInterval = time.Second
	// maxViewers bounds what viewers cost.
	maxViewers = 64
)

var (
	errTooManyViewers = errors.New("too many consoles are open, close one")
	errFeedClosed     = errors.New("the service is stopping")
)

// feed streams the state of the service to the consoles that are open, as
// server-sent events. Each frame is made once, for all of them. While nobody is
// there nothing runs.
type feed struct {
	// frame returns the present state as an event, or nil if there is none.
	frame func() []byte

	done    chan struct{} // closed by close
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		// viewers are the mailboxes, with room for one frame. A frame that has not
		// been taken when the next one comes is replaced: who is slow sees fewer.
		viewers map[chan []byte]struct{}
		stop    chan struct{} // ends run, when the last viewer has left
		closed  bool
	}
}

func newFeed(frame func() []byte) *feed {
	f := &feed{frame: frame, done: make(chan struct{})}
	f.mu.viewers = make(map[chan []byte]struct{})
	return f
}

// join returns the mailbox of a new viewer, who must leave.
func (f *feed) join() (chan []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.mu.closed:
		return nil, errFeedClosed
	case len(f.mu.viewers) == maxViewers:
		return nil, errTooManyViewers
	}
	mailbox := make(chan []byte, 1)
	f.mu.viewers[mailbox] = struct{}{}
	if len(f.mu.viewers) == 1 {
		stop := make(chan struct{})
		f.mu.stop = stop
		f.running.Go(func() { f.run(stop) })
	}
	return mailbox, nil
}

func (f *feed) leave(mailbox chan []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.viewers, mailbox)
	if len(f.mu.viewers) == 0 {
		close(f.mu.stop)
	}
}

// run makes frames until stop is closed.
func (f *feed) run(stop <-chan struct{}) {
	ticker := time.NewTicker(frameInterval)
	defer ticker.Stop()
	for {
		if frame := f.frame(); frame != nil {
			f.publish(frame)
		}
		select {
		case <-ticker.C:
		case <-stop:
			return
		case <-f.done: // a viewer that is stuck leaves later
			return
		}
	}
}

func (f *feed) publish(frame []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for mailbox := range f.mu.viewers {
		select {
		case <-mailbox:
		default:
		}
		mailbox <- frame // does not block: nobody else sends
	}
}

// close ends all streams and waits for run. Nobody can join any more.
func (f *feed) close() {
	f.mu.Lock()
	if !f.mu.closed {
		f.mu.closed = true
		close(f.done)
	}
	f.mu.Unlock()
	f.running.Wait()
}

// serve streams to one viewer, who gets the greeting first.
func (f *feed) serve(w http.ResponseWriter, r *http.Request, greeting []byte) {
	mailbox, err := f.join()
	if err != nil {
		problem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer f.leave(mailbox)
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(w)
	for event := greeting; ; {
		if _, err := w.Write(event); err != nil || control.Flush() != nil {
			return
		}
		select {
		case event = <-mailbox:
		case <-r.Context().Done():
			return
		case <-f.done:
			return
		}
	}
}
