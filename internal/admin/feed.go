package admin

import (
	"errors"
	"net/http"
	"sync"
)

// maxViewers bounds what viewers cost.
const maxViewers = 64

var (
	errTooManyViewers = errors.New("too many consoles are open, close one")
	errFeedClosed     = errors.New("the service is stopping")
)

// feed streams the state of the service to the consoles that are open, as
// server-sent events.
type feed struct {
	done chan struct{} // closed by close
	mu   struct {
		sync.Mutex
		// viewers are the mailboxes, with room for one frame. A frame that has not
		// been taken when the next one comes is replaced: who is slow sees fewer.
		viewers map[chan []byte]struct{}
		closed  bool
	}
}

func newFeed() *feed {
	f := &feed{done: make(chan struct{})}
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
	return mailbox, nil
}

func (f *feed) leave(mailbox chan []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.viewers, mailbox)
}

// watched reports whether there are viewers.
func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.viewers) > 0
}

// publish gives a frame to all viewers.
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

// close ends all streams. Nobody can join any more.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.closed {
		f.mu.closed = true
		close(f.done)
	}
}

// serve streams to one viewer, who gets first what never changes, and how things are.
func (f *feed) serve(w http.ResponseWriter, r *http.Request, first []byte) {
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
	for event := first; ; {
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
