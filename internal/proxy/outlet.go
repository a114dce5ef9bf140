package proxy

import "sync"

// outlet holds what a slow client has not taken yet of an answer. Its goroutine writes, so
// that the upstream need not wait until the room is full.
type outlet struct {
	most   int
	writes func([]byte) bool // waits for the client, and reports whether it is there
	hurry  func(bool)        // somebody waits for the client, or not
	heldUp func()            // called before that begins
	done   chan struct{}

	mu     sync.Mutex
	moved  sync.Cond
	held   []byte
	busy   int  // bytes being written
	closed bool // nothing more comes
	broken bool // the client does not take any more
}

func openOutlet(most int, writes func([]byte) bool, hurry func(bool), heldUp func()) *outlet {
	o := &outlet{most: most, writes: writes, hurry: hurry, heldUp: heldUp, done: make(chan struct{})}
	o.moved.L = &o.mu
	go o.run()
	return o
}

// run writes until all is written, or the client is gone.
func (o *outlet) run() {
	defer close(o.done)
	var spare []byte
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.broken {
		for len(o.held) == 0 && !o.closed {
			o.moved.Wait()
		}
		if len(o.held) == 0 {
			return
		}
		piece := o.held
		o.held, o.busy = spare[:0], len(piece)
		o.mu.Unlock()
		ok := o.writes(piece)
		o.mu.Lock()
		spare, o.busy = piece, 0
		o.broken = o.broken || !ok
		o.moved.Broadcast()
	}
}

// put takes what comes next, and waits while the room is full. It reports whether the client
// is there.
func (o *outlet) put(pieces ...[]byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.held)+o.busy >= o.most && !o.broken {
		o.heldUp()
		o.hurry(true)
		for len(o.held)+o.busy >= o.most && !o.broken {
			o.moved.Wait()
		}
		o.hurry(false)
	}
	for _, p := range pieces {
		o.held = append(o.held, p...)
	}
	o.moved.Broadcast()
	return !o.broken
}

func (o *outlet) there() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.broken
}

// close puts the last pieces, for which no place is held any more, and waits until all is written, or
// the client is gone.
func (o *outlet) close(last ...[]byte) {
	o.mu.Lock()
	for _, p := range last {
		o.held = append(o.held, p...)
	}
	o.closed = true
	o.moved.Broadcast()
	o.mu.Unlock()
	<-o.done
}
