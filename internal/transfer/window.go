package transfer

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// windowEntries is how many entries there may be between the oldest that is not
	// done and the newest, for each operation that may be under way: one that takes
	// long holds up the others only then.
	windowEntries = 16
	// windowBytes bounds their keys and values together, but for a single one that
	// has more: large ones at once make a cluster late, and take several times as
	// much memory here.
	windowBytes = 16 << 20
)

// entry is a key with its value, on its way.
type entry struct {
	key, value []byte
	expires    time.Time // zero for never
	size       int
	found      finding // by a comparison

	done bool // guarded by the window
}

// newEntry returns a copy.
func newEntry(key, value []byte, expires time.Time) *entry {
	both := append(append(make([]byte, 0, len(key)+len(value)), key...), value...)
	n := len(key)
	return &entry{key: both[:n:n], value: both[n:], expires: expires, size: len(both)}
}

// ttl returns in how many seconds the value is gone, rounded up, 0 for never, and whether
// it is already.
func (e *entry) ttl(now time.Time) (seconds uint32, gone bool) {
	if e.expires.IsZero() {
		return 0, false
	}
	left := e.expires.Sub(now)
	return uint32(max(0, (left+time.Second-1)/time.Second)), left <= 0
}

// window holds the entries from the oldest that is not done on, in the order of their
// keys, and knows up to where all are done. It is safe for concurrent use.
type window struct {
	most int // entries

	mu    sync.Mutex
	room  sync.Cond // the oldest is done
	open  []*entry  // the first is not done
	bytes int
	at    Position // behind all that are done
}

func newWindow(at Position, most int) *window {
	w := &window{most: most, at: at}
	w.room.L = &w.mu
	return w
}

// begin waits for room, and adds an entry behind all others. Somebody must call wake
// when ctx ends. It is for one goroutine at a time.
func (w *window) begin(ctx context.Context, e *entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ctx.Err() == nil && len(w.open) > 0 && (len(w.open) >= w.most || w.bytes+e.size > windowBytes) {
		w.room.Wait()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.open = append(w.open, e)
	w.bytes += e.size
	return nil
}

// finish notes that an entry is done. Its value is not needed any more.
func (w *window) finish(e *entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.done = true
	n := 0
	for ; n < len(w.open) && w.open[n].done; n++ {
		w.bytes -= w.open[n].size
		w.at.pass(w.open[n])
		w.open[n] = nil
	}
	if n > 0 {
		w.open = w.open[n:]
		w.room.Signal()
	}
}

// wake lets begin see that its context has ended.
func (w *window) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room.Signal()
}

func (w *window) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open) == 0
}

// position returns up to where all are done.
func (w *window) position() Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// Position is how far a pass is.
type Position struct {
	// After is the last key that is done, with all before it, nil if there is none.
	After []byte `json:"after,omitempty"`
	// Keys is how many these are, Bytes how long keys and values are together.
	Keys  int64 `json:"keys"`
	Bytes int64 `json:"bytes"`
	// Newer is how many of them have another value in the target that was written
	// later than the source.
	Newer int64 `json:"newer,omitempty"`
	// Different is how many others have another value, or none.
	Different int64 `json:"different,omitempty"`
	// Differences are the first of these, in the order of their keys, at most
	// MaxDifferences.
	Differences []Difference `json:"differences,omitempty"`
}

// MaxDifferences is how many differences are listed.
const MaxDifferences = 20

// Difference is a key whose value in the target is not that of the source.
type Difference struct {
	Key []byte `json:"key"`
	// Missing says that the target has no value.
	Missing bool `json:"missing,omitempty"`
}

// String says what is different.
func (d Difference) String() string {
	if d.Missing {
		return "the key " + quote(d.Key) + " is missing"
	}
	return "the key " + quote(d.Key) + " has another value, which is not newer"
}

// quote returns a key as people can read it.
func quote(key []byte) string {
	const most = 100
	if len(key) > most {
		return strconv.QuoteToASCII(string(key[:most])) + "…"
	}
	return strconv.QuoteToASCII(string(key))
}

// finding is what a comparison has found.
type finding uint8

const (
	equal finding = iota
	newer
	missing
	different
)

// pass moves the position behind an entry.
func (p *Position) pass(e *entry) {
	p.After = e.key
	p.Keys++
	p.Bytes += int64(e.size)
	switch e.found {
	case newer:
		p.Newer++
	case missing, different:
		p.Different++
		if len(p.Differences) < MaxDifferences {
			// A new list, as others have the one before, and a key without its value.
			p.Differences = append(slices.Clip(p.Differences), Difference{Key: bytes.Clone(e.key), Missing: e.found == missing})
		}
	}
}
