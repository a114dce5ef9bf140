// Package restraint limits what the clients of the adapters send to a service that refuses
// requests: an adaptive throttle, and a budget and pauses for retries.
package restraint

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Restraint is that of the clients of one service. The zero value is ready. Its methods
// are safe for concurrent use.
type Restraint struct {
	mu       sync.Mutex
	throttle throttle
	budget   budget
}

// Outcome is what the end of an attempt says of the service.
type Outcome int

const (
	// Unknown says nothing of it: the client left or did something wrong, or the refusal is
	// about this client alone.
	Unknown Outcome = iota
	// Accepted says that it has served the request, whatever the answer.
	Accepted
	// Refused says that it has not, or did not answer.
	Refused
	// TimedOut says that the request's deadline passed. It counts as Refused if the request
	// had as much time as accepted ones usually take.
	TimedOut
)

const (
	// MaxAttempts is how often one request is sent.
	MaxAttempts = 3
	// longestWait is the longest time that is waited before a request is sent again.
	longestWait = 30 * time.Second
	// firstWait is about what is waited before the first retry if the service did not
	// say; it doubles with each.
	firstWait = 100 * time.Millisecond
)

// Begin counts a new request, and reports whether it may be sent.
func (r *Restraint) Begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.budget.deposit()
	return r.throttle.admit(time.Now(), rand.Float64())
}

// Note counts what became of an attempt, so long after it was sent.
func (r *Restraint) Note(o Outcome, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.throttle.note(time.Now(), o, took)
}

// Again counts a retry after so many attempts, and returns how long to wait before it:
// what the service asked for if it said so, and up to half of it more. It reports false
// if that is too long or not in time, or if enough was sent again.
func (r *Restraint) Again(ctx context.Context, attempts int, asked time.Duration, said bool) (time.Duration, bool) {
	if attempts >= MaxAttempts || said && asked > longestWait {
		return 0, false
	}
	wait := rand.N(firstWait << attempts)
	if said {
		wait = asked + rand.N(asked/2+time.Millisecond)
	}
	if end, limited := ctx.Deadline(); limited && time.Until(end) <= wait {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ok := r.budget.has() && r.throttle.admit(time.Now(), rand.Float64()) && r.budget.withdraw()
	return wait, ok
}

// Sleep waits so long, or until the context ends, whose error it returns then.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
