package pebble

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/internal/store"
)

// health is whether the store can write.
type health struct {
	onChange func(error)
	log      *slog.Logger
	// cause is nil while the store is writable. It changes under mu.
	cause atomic.Pointer[error]

	mu struct {
		sync.Mutex
		serving  bool          // the store is open
		failures uint64        // how many there were
		failed   chan struct{} // closed by the next failure
	}
}

func (h *health) init(onChange func(error), log *slog.Logger) {
	h.onChange, h.log = onChange, log
	h.mu.failed = make(chan struct{})
}

// serve begins to report changes. Before, whoever opens the store does.
func (h *health) serve() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.serving = true
}

// reason returns nil, or an error that wraps store.ErrUnwritable.
func (h *health) reason() error {
	if p := h.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// fail reports a failure of the disk. When it returns, reason does not return
// nil any more.
func (h *health) fail(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.failures++
	close(h.mu.failed)
	h.mu.failed = make(chan struct{})
	if h.cause.Load() != nil {
		return
	}
	err := fmt.Errorf("%w: %w", store.ErrUnwritable, cause)
	h.cause.Store(&err)
	if h.mu.serving {
		h.log.Error("the store cannot write, reads go on", "err", cause.Error())
		h.onChange(err)
	}
}

// explain gives another reason why the store cannot write, if it cannot.
func (h *health) explain(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.cause.Load()
	err := fmt.Errorf("%w: %w", store.ErrUnwritable, cause)
	if p == nil || (*p).Error() == err.Error() {
		return
	}
	h.cause.Store(&err)
	h.log.Error("the store still cannot write, reads go on", "err", cause.Error())
	h.onChange(err)
}

// watch returns a channel that is closed by the next failure, and reason.
func (h *health) watch() (<-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.failed, h.reason()
}

// failures counts the failures so far.
func (h *health) failures() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.failures
}

// recovered makes the store writable, unless there was a failure since
// failures was asked.
func (h *health) recovered(since uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.failures != since {
		return false
	}
	if h.cause.Load() == nil {
		return true
	}
	h.cause.Store(nil)
	h.log.Info("the store can write again")
	h.onChange(nil)
	return true
}
