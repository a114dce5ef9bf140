// Package adaptertest has the rules that every adapter of package admission keeps, as one table
// that is run against each. What only one of them has is tested beside it.
package adaptertest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

// Adapter is an adapter as the rules see it: servers that do what a rule says.
type Adapter struct {
	// Serve starts a server behind c and returns a client of it. The server is stopped at
	// the test's end, after which c has to be whole.
	Serve func(t *testing.T, c *admission.Controller, o Options, h func(Call)) Client
	// Direct returns what has one request wait without any server, and calls serve or
	// returns why not. Panics of serve come through. An adapter without a context
	// has it wait for a moment.
	Direct func(c *admission.Controller, o Options) func(ctx context.Context, serve func()) strategies.Reason
	// Nil makes a handler for a nil controller: it panics, and says this.
	Nil      func()
	NilPanic string

	// Codes are those of refusals, by the reason.
	Codes map[strategies.Reason]string
	// Otherwise is that of full under Options.Otherwise, and Mistake that of a request for
	// places that makes no sense.
	Otherwise, Mistake string
	// Address is the client of a request that says nothing.
	Address string
	// HealthChecks are the paths of those.
	HealthChecks []string
	// Kinds are the answers that go on which there are, and Holds what there is of those.
	Kinds []Kind
	Holds []Hold
	// Gone says that a request learns that its client has gone, Recovers that the server
	// recovers from a handler's panic, and Timeout that the client may say in a header how
	// long it waits.
	Gone, Recovers, Timeout bool
}

// Options are what the adapters' own have in common.
type Options struct {
	Request func(path string) admission.Request
	Exempt  func(path string) bool
	Hold    Hold
	Twice   bool // one adapter of the controller before another
	// Before are headers that are set before the adapter sees the request, for those that
	// have clients with Header.
	Before       map[string]string
	Otherwise    bool // 429, or Unavailable
	TrustHeaders bool
	// Wait is how long a request waits at most, for adapters without a context.
	Wait time.Duration
}

// Hold says how long places are kept, as the adapters' own do.
type Hold int

// These are in the order of the adapters' own.
const (
	HoldAuto Hold = iota
	HoldBody
	HoldHeaders
)

// Kind is a kind of answer that goes on.
type Kind string

// The kinds of answers that go on.
const (
	Long   Kind = "text/plain"
	Events Kind = "text/event-stream; charset=utf-8"
	Hijack Kind = "hijack"
)

// held returns how many places such an answer keeps.
func held(k Kind, h Hold) int {
	if h == HoldBody || h == HoldAuto && k == Long {
		return 1
	}
	return 0
}

// Call is a request that is served.
type Call struct {
	// Context is that of the request.
	Context context.Context
	// Gone is closed when the client goes. It is nil if the adapter does not notice.
	Gone <-chan struct{}
	// Stream sends a message for each true, until false or until nobody listens. It is the
	// last thing that a handler does, and may return before.
	Stream func(k Kind, next <-chan bool)
	// Release gives the places back early. It is nil if the adapter cannot.
	Release func()
}

// Client sends requests to a server.
type Client interface {
	// Call sends one, with headers as "Name: value", and Post one with a body.
	Call(ctx context.Context, path string, headers ...string) Answer
	Post(ctx context.Context, path, body string) Answer
	// Open sends one that is answered by such a stream. Next waits for the next message;
	// it returns an error when there is none, io.EOF after the last.
	Open(ctx context.Context, k Kind) (next func() error, err error)
}

// Answer is what became of a Call.
type Answer struct {
	Served     bool
	Code       string
	Reason     string // for which it was turned away
	RetryAfter string // seconds
	Err        error  // there is no answer
}

// start sends a request beside what goes on.
func start(ctx context.Context, c Client, path string, headers ...string) <-chan Answer {
	return begin(func() Answer { return c.Call(ctx, path, headers...) })
}

func begin(call func() Answer) <-chan Answer {
	answered := make(chan Answer, 1)
	go func() { answered <- call() }()
	return answered
}

// Open returns a controller, fifo by default.
func Open(t testing.TB, o admission.Options) *admission.Controller {
	t.Helper()
	if o.Strategy == "" && o.Spec.New == nil {
		o.Strategy = "fifo"
	}
	c, err := admission.New(o)
	require.NoError(t, err)
	return c
}

// Take takes a place.
func Take(t testing.TB, c *admission.Controller) admission.Permit {
	t.Helper()
	p, ok := c.TryAcquire(admission.Request{})
	require.True(t, ok)
	return p
}

// Waiting returns when so many requests wait.
func Waiting(t testing.TB, c *admission.Controller, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().Waiting == n }, time.Minute, time.Millisecond)
}

// InUse returns when so many places are in use.
func InUse(t testing.TB, c *admission.Controller, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().InUse == n }, time.Minute, time.Millisecond)
}

// RequireWhole finds a place that was lost, or one too many.
func RequireWhole(t testing.TB, c *admission.Controller) {
	t.Helper()
	require.Eventually(t, func() bool { s := c.Stats(); return s.InUse == 0 && s.Waiting == 0 },
		time.Minute, time.Millisecond, "a place is lost, or a request")
	var all []admission.Permit
	for {
		p, ok := c.TryAcquire(admission.Request{})
		if !ok {
			break
		}
		all = append(all, p)
	}
	if len(all) > 0 { // it is not closed
		require.Len(t, all, c.Stats().Concurrency)
	}
	for _, p := range all {
		p.Release()
	}
}

// requireServed fails with what came instead.
func requireServed(t testing.TB, a Answer) {
	t.Helper()
	require.True(t, a.Served, "%+v", a)
}
