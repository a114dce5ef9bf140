package httpfront

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups notices clients that hang up: while their request waits, when nobody reads
// from the connection, and together with their last bytes, which Go's poller does not
// distinguish from bytes alone. It is an epoll set of its own, from which the kernel
// removes a connection that is closed. The set is edge triggered and not interested in
// bytes. So a connection costs one system call in its life, and the goroutine wakes only
// when a client hangs up.
type hangups struct {
	file *os.File // the epoll set; Go's poller reports when it has something
	raw  syscall.RawConn
	done chan struct{}

	mu struct {
		sync.Mutex
		conns map[uint64]*conn
		key   uint64 // the last one given
	}
}

func openHangups() (*hangups, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("httpfront: epoll_create: %w", err)
	}
	// Only a non-blocking descriptor is waited for by Go's poller, rather than
	// by a thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("httpfront: epoll: %w", err)
	}
	h := &hangups{file: os.NewFile(uintptr(fd), "epoll"), done: make(chan struct{})}
	h.mu.conns = map[uint64]*conn{}
	if h.raw, err = h.file.SyscallConn(); err != nil {
		_ = h.file.Close()
		return nil, fmt.Errorf("httpfront: epoll: %w", err)
	}
	go h.listen()
	return h, nil
}

// listen notifies connections of their events until close.
func (h *hangups) listen() {
	defer close(h.done)
	var events [64]unix.EpollEvent
	_ = h.raw.Read(func(fd uintptr) (end bool) {
		for {
			n, err := unix.EpollWait(int(fd), events[:], 0)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return err != nil
			}
			for i := range n {
				h.notify(&events[i])
			}
		}
	})
}

func (h *hangups) notify(e *unix.EpollEvent) {
	key := uint64(uint32(e.Fd))<<32 | uint64(uint32(e.Pad))
	h.mu.Lock()
	c := h.mu.conns[key]
	h.mu.Unlock()
	if c == nil {
		return // it has been closed since
	}
	if e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		c.notify(wholeGone)
	} else {
		c.notify(halfGone)
	}
}

// add watches c, whose client may have gone already, and returns the key to remove it
// by. Keys are never used twice, so that an event of a closed connection is not taken
// for one of its successor. If the kernel refuses, a hang-up stays unnoticed.
func (h *hangups) add(c *conn) (key uint64) {
	h.mu.Lock()
	h.mu.key++
	key = h.mu.key
	h.mu.conns[key] = c
	h.mu.Unlock()
	event := unix.EpollEvent{
		Events: unix.EPOLLRDHUP | unix.EPOLLET,
		Fd:     int32(uint32(key >> 32)),
		Pad:    int32(uint32(key)),
	}
	_ = c.below.Raw().Control(func(fd uintptr) {
		_ = h.raw.Control(func(set uintptr) { _ = unix.EpollCtl(int(set), unix.EPOLL_CTL_ADD, int(fd), &event) })
	})
	return key
}

// remove forgets a connection that is about to be closed.
func (h *hangups) remove(key uint64) {
	h.mu.Lock()
	delete(h.mu.conns, key)
	h.mu.Unlock()
}

// close ends the goroutine. No connection may be left.
func (h *hangups) close() {
	_ = h.file.Close()
	<-h.done
}
