package httpfront

import "sync/atomic"

// What may happen to a connection that is parked.
const (
	workDone = 1 << iota // the work is done
	timeUp               // the deadline of the work may have passed
	hungUp               // the client has
	parked               // the goroutine sleeps, and the next signal wakes it
)

// parker is where the goroutine of a connection sleeps while others work for it.
// One goroutine waits, any number signal.
//
// The goroutine sets parked only if nothing has happened, and whoever clears it
// sends, so that each sleep gets exactly one send: the channel is a binary
// semaphore, and a signal to a goroutine that is awake costs no channel
// operation. Signals that come too late stay as bits for the next wait; their
// meaning is checked by whoever waits, so they do no harm. workDone alone
// cannot be late, since work is done once and each Done is waited
// for.
type parker struct {
	state atomic.Uint32
	wake  chan struct{}
}

func newParker() parker { return parker{wake: make(chan struct{}, 1)} }

// signal says that something has happened.
func (p *parker) signal(event uint32) {
	for {
		old := p.state.Load()
		if p.state.CompareAndSwap(old, (old|event)&^parked) {
			if old&parked != 0 {
				p.wake <- struct{}{}
			}
			return
		}
	}
}

// poll returns what has happened since the last call, without waiting.
func (p *parker) poll() uint32 {
	if p.state.Load() == 0 {
		return 0
	}
	return p.state.Swap(0)
}

// wait sleeps until something has happened, and returns what.
func (p *parker) wait() uint32 {
	for {
		if events := p.poll(); events != 0 {
			return events
		}
		if p.state.CompareAndSwap(0, parked) {
			<-p.wake
		}
	}
}
