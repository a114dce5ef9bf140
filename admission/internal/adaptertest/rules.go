package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

// Run runs every rule against the adapter, each as a parallel subtest.
func Run(t *testing.T, a Adapter) {
	t.Helper()
	for _, rule := range []struct {
		name  string
		check func(*testing.T, Adapter)
	}{
		{"a request waits its turn, or is refused if the queue is full", refuses},
		{"a request that would be answered too late is refused", refusesTheLate},
		{"a refusal carries nothing that was set for a good answer", refusesPlainly},
		{"a handler that panics gives its places back", panics},
		{"a client goes while it waits", goesWhileItWaits},
		{"a client goes while its request with a body waits", goesWhileItsPostWaits},
		{"a client goes while it is served", goesWhileItIsServed},
		{"what clients do says nothing of the resource", learnsNothingOfClients},
		{"an answer after its deadline is no good", answersLate},
		{"a context ends as the place comes", endsAsItsPlaceComes},
		{"an answer that goes on", goesOn},
		{"a client goes while its answer goes on", goesWhileItsAnswerGoesOn},
		{"a request that costs more than there is", costsMore},
		{"a request that costs less than nothing is a mistake of the service", costsLess},
		{"the same controller twice asks for a place once", twice},
		{"health checks are not measured", exemptsHealthChecks},
		{"what a function picks is not measured, and nothing else", exempt},
		{"headers count for nothing unless they are trusted", headers},
		{"concurrency is lowered while all places are taken", lowered},
		{"drain serves what waits and turns away what comes", drains},
		{"close turns away what waits and what comes", closes},
		{"no controller", nothingGiven},
		{"many clients do whatever clients do", soak},
	} {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			rule.check(t, a)
		})
	}
}

func nothing(Call) {}

func refuses(t *testing.T, a Adapter) {
	for _, otherwise := range []bool{false, true} {
		c := Open(t, admission.Options{Concurrency: 1, Capacity: 1})
		client := a.Serve(t, c, Options{Otherwise: otherwise}, nothing)
		held := Take(t, c)
		waits := start(t.Context(), client, "/")
		Waiting(t, c, 1)
		refused := client.Call(t.Context(), "/")
		held.Release()
		requireServed(t, <-waits)
		code := a.Codes[strategies.ReasonFull]
		if otherwise {
			code = a.Otherwise
		}
		require.Equal(t, Answer{Code: code, Reason: "full", RetryAfter: "1"}, refused)
	}
}

// late is first-in first-out with no room, and says so in other words.
type late struct{ strategies.Discipline }

func (late) Push(*strategies.Task, int64) strategies.Verdict {
	return strategies.Verdict{Outcome: strategies.TurnedAway, Reason: "late"}
}

// It is answered as if the queue were full: its own time is not over.
func refusesTheLate(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{Concurrency: 1, Spec: strategies.Spec{
		Name: "late", Reasons: []strategies.Reason{"late"},
		New: func(o strategies.Config) strategies.Discipline {
			fifo, _ := strategies.Lookup("fifo")
			return late{fifo.New(o)}
		},
	}})
	client := a.Serve(t, c, Options{TrustHeaders: true}, nothing)
	held := Take(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	refused := client.Call(ctx, "/", "Spillway-Timeout-Ms: 60000")
	held.Release()
	require.Equal(t, Answer{Code: a.Codes["late"], Reason: "late", RetryAfter: "1"}, refused)
}

// Somebody before the adapter expects a good answer. A cache would keep the refusal, and its
// Content-Length would cut it.
func refusesPlainly(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{Concurrency: 1})
	good := map[string]string{
		"Cache-Control": "public, max-age=3600", "Etag": `"1"`, "Content-Encoding": "identity", "Content-Length": "3", "Content-Type": "text/css",
		"Last-Modified": "Mon, 02 Jan 2006 15:04:05 GMT", "Expires": "Fri, 02 Jan 2099 15:04:05 GMT", "Content-Disposition": "attachment",
		"Accept-Ranges": "bytes", "Cdn-Cache-Control": "public", "Link": "</x>; rel=preload",
	}
	always := map[string]string{
		"Vary": "Origin", "Access-Control-Allow-Origin": "*", "Strict-Transport-Security": "max-age=1", "X-Request-Id": "7",
		"Content-Security-Policy": "default-src 'none'", "Set-Cookie": "session=1",
	}
	before := maps.Clone(good)
	maps.Copy(before, always)
	client := a.Serve(t, c, Options{Before: before}, nothing)
	speaker, ok := client.(interface {
		Header(context.Context) (http.Header, error)
	})
	if !ok {
		return // there are no such headers
	}
	c.Close()
	header, err := speaker.Header(t.Context())
	require.NoError(t, err)
	require.Equal(t, "draining", header.Get("Spillway-Shed"))
	require.Equal(t, "application/problem+json", header.Get("Content-Type"))
	for name, value := range always {
		require.Equal(t, []string{value}, header.Values(name))
	}
	for name, value := range good {
		require.NotContains(t, header.Values(name), value)
		if name != "Content-Type" && name != "Content-Length" { // which it has of its own
			require.Empty(t, header.Values(name), name)
		}
	}
}

func panics(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{Concurrency: 1})
	for _, hold := range a.Holds {
		let := a.Direct(c, Options{Hold: hold})
		for range 3 {
			require.PanicsWithValue(t, "oops", func() { let(t.Context(), func() { panic("oops") }) })
		}
		RequireWhole(t, c)
	}
	if !a.Recovers {
		return
	}
	client := a.Serve(t, c, Options{}, func(Call) { panic("oops") })
	for range 3 {
		require.False(t, client.Call(t.Context(), "/").Served)
		_, err := opened(t.Context(), client, Long)
		require.Error(t, err)
	}
}

// opened is Client.Open, and the first message, as a stream over gRPC does not fail before.
func opened(ctx context.Context, c Client, k Kind) (next func() error, err error) {
	if next, err = c.Open(ctx, k); err == nil {
		err = next()
	}
	return next, err
}

func goesWhileItWaits(t *testing.T, a Adapter) {
	goesWhile(t, a, func(ctx context.Context, c Client) <-chan Answer { return start(ctx, c, "/") })
}

func goesWhileItsPostWaits(t *testing.T, a Adapter) {
	for _, body := range []string{"x", strings.Repeat("x", 64<<10)} {
		goesWhile(t, a, func(ctx context.Context, c Client) <-chan Answer {
			return begin(func() Answer { return c.Post(ctx, "/", body) })
		})
	}
}

// Where nobody tells of a client that has gone, its request waits on and is served.
func goesWhile(t *testing.T, a Adapter, ask func(context.Context, Client) <-chan Answer) {
	t.Helper()
	c := Open(t, admission.Options{Concurrency: 1})
	var begun atomic.Int64
	client := a.Serve(t, c, Options{}, func(Call) { begun.Add(1) })
	held := Take(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	gone := ask(ctx, client)
	Waiting(t, c, 1)
	cancel()
	require.Error(t, (<-gone).Err)
	if a.Gone {
		Waiting(t, c, 0)
		held.Release()
		require.Zero(t, begun.Load())
		return
	}
	held.Release()
	require.Eventually(t, func() bool { return begun.Load() == 1 }, time.Minute, time.Millisecond)
}

func goesWhileItIsServed(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{Concurrency: 1})
	end := make(chan struct{})
	client := a.Serve(t, c, Options{}, func(call Call) {
		if a.Gone {
			<-call.Gone
		}
		<-end
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := start(ctx, client, "/")
	InUse(t, c, 1)
	cancel()
	require.Error(t, (<-gone).Err)
	require.Equal(t, 1, c.Stats().InUse, "it may still be at work")
	close(end)
	InUse(t, c, 0)
}

// Who leaves tells nothing. Who has no time left has waited too long, if it had a usual service
// time when it began.
func learnsNothingOfClients(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{})
	let := a.Direct(c, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	require.Equal(t, strategies.ReasonNone, let(ctx, cancel))
	require.Panics(t, func() { let(t.Context(), func() { panic("oops") }) }, "it may be of what its client has sent")
	require.Zero(t, c.Stats().Learned.Dropped)
	if !a.Gone {
		return
	}
	runsOut := func(usual time.Duration) {
		for served := false; !served; { // on a machine that is too slow it is over before
			ctx, cancel := context.WithTimeout(t.Context(), usual)
			let(ctx, func() {
				served = true
				<-ctx.Done()
			})
			cancel()
		}
	}
	runsOut(20 * time.Millisecond)
	require.EqualValues(t, 1, c.Stats().Learned.Dropped)
	for range 2 {
		require.Equal(t, strategies.ReasonNone, let(t.Context(), func() { <-time.After(40 * time.Millisecond) }))
	}
	runsOut(10 * time.Millisecond)
	require.EqualValues(t, 1, c.Stats().Learned.Dropped)
}

// Whichever comes first, none is lost, and the handler is called or the request refused.
func endsAsItsPlaceComes(t *testing.T, a Adapter) {
	for _, strategy := range strategies.Names() {
		c := Open(t, admission.Options{Strategy: strategy, Concurrency: 1})
		let := a.Direct(c, Options{Wait: 50 * time.Microsecond})
		for range 100 {
			p, err := c.Acquire(t.Context(), admission.Request{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var refused strategies.Reason
			served := false
			var all sync.WaitGroup
			all.Go(func() { refused = let(ctx, func() { served = true }) })
			all.Go(cancel)
			all.Go(p.Release)
			all.Wait()
			require.Equal(t, served, refused == strategies.ReasonNone)
			require.Contains(t, []strategies.Reason{strategies.ReasonNone, strategies.ReasonAbandoned, strategies.ReasonExpired}, refused)
		}
		if strategy != "sync" && strategy != "caller-runs" {
			RequireWhole(t, c)
		}
	}
}

func goesOn(t *testing.T, a Adapter) {
	for _, hold := range a.Holds {
		for _, kind := range a.Kinds {
			t.Run(fmt.Sprint(kind, hold), func(t *testing.T) {
				t.Parallel()
				c := Open(t, admission.Options{Concurrency: 1})
				next := make(chan bool)
				client := a.Serve(t, c, Options{Hold: hold}, func(call Call) { call.Stream(kind, next) })
				go func() { next <- true }()
				message, err := opened(t.Context(), client, kind)
				require.NoError(t, err)
				for range 3 {
					require.Equal(t, held(kind, hold), c.Stats().InUse)
					next <- true
					require.NoError(t, message())
				}
				next <- false
				require.ErrorIs(t, message(), io.EOF)
				InUse(t, c, 0)
			})
		}
	}
}

func goesWhileItsAnswerGoesOn(t *testing.T, a Adapter) {
	for _, kind := range a.Kinds {
		c := Open(t, admission.Options{Concurrency: 1})
		next := make(chan bool)
		ended := make(chan struct{})
		client := a.Serve(t, c, Options{Hold: a.Holds[len(a.Holds)-1]}, func(call Call) { call.Stream(kind, next) })
		var feeding sync.WaitGroup
		feeding.Go(func() {
			defer close(next)
			for {
				select {
				case next <- true:
				case <-ended:
					return
				}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		_, err := opened(ctx, client, kind)
		cancel()
		InUse(t, c, 0)
		close(ended)
		feeding.Wait()
		require.NoError(t, err)
	}
}

// It takes what there is.
func costsMore(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{Concurrency: 4})
	inUse := make(chan int, 1)
	client := a.Serve(t, c, Options{
		Request: func(string) admission.Request { return admission.Request{Cost: 100} },
	}, func(Call) { inUse <- c.Stats().InUse })
	held := Take(t, c)
	waits := start(t.Context(), client, "/")
	Waiting(t, c, 1)
	held.Release()
	requireServed(t, <-waits)
	require.Equal(t, 4, <-inUse)
}

func costsLess(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{Concurrency: 4})
	client := a.Serve(t, c, Options{
		Request: func(string) admission.Request { return admission.Request{Cost: -1} },
	}, nothing)
	require.Equal(t, Answer{Code: a.Mistake}, client.Call(t.Context(), "/"))
}

// It would wait for itself.
func twice(t *testing.T, a Adapter) {
	for _, twice := range []bool{false, true} {
		var admitted atomic.Int64
		c := Open(t, admission.Options{Concurrency: 1, Admitted: func(admission.Event) { admitted.Add(1) }})
		inUse := make(chan int, 2)
		client := a.Serve(t, c, Options{Twice: twice}, func(call Call) {
			permit, err := c.Acquire(call.Context, admission.Request{})
			if err != nil {
				panic(err)
			}
			inUse <- c.Stats().InUse
			permit.Release()
			inUse <- c.Stats().InUse
		})
		requireServed(t, client.Call(t.Context(), "/"))
		require.Equal(t, []int{1, 1}, []int{<-inUse, <-inUse})
		InUse(t, c, 0)
		require.EqualValues(t, 1, admitted.Load())
	}
	for _, kind := range a.Kinds {
		for _, hold := range a.Holds {
			c := Open(t, admission.Options{Concurrency: 1})
			next := make(chan bool, 1)
			client := a.Serve(t, c, Options{Twice: true, Hold: hold}, func(call Call) { call.Stream(kind, next) })
			next <- true
			message, err := opened(t.Context(), client, kind)
			require.NoError(t, err)
			InUse(t, c, held(kind, hold))
			close(next)
			require.ErrorIs(t, message(), io.EOF)
			InUse(t, c, 0)
		}
	}
}

func exemptsHealthChecks(t *testing.T, a Adapter) {
	exempts(t, a, nil, a.HealthChecks, []string{"/metrics"})
}

func exempt(t *testing.T, a Adapter) {
	exempts(t, a, func(path string) bool { return path == "/metrics" }, []string{"/metrics"}, append([]string{"/other"}, a.HealthChecks...))
}

func exempts(t *testing.T, a Adapter, exempt func(string) bool, free, measured []string) {
	t.Helper()
	var events atomic.Int64
	note := func(admission.Event) { events.Add(1) }
	c := Open(t, admission.Options{Concurrency: 1, Admitted: note, Shed: note})
	client := a.Serve(t, c, Options{Exempt: exempt}, nothing)
	held := Take(t, c)
	for _, path := range free {
		requireServed(t, client.Call(t.Context(), path))
	}
	require.EqualValues(t, 1, events.Load(), "of the place that is taken")
	for i, path := range measured {
		waits := start(t.Context(), client, path)
		Waiting(t, c, 1)
		held.Release()
		requireServed(t, <-waits)
		InUse(t, c, 0)
		require.EqualValues(t, 2*i+2, events.Load())
		held = Take(t, c)
	}
	held.Release()
}

func headers(t *testing.T, a Adapter) {
	said := []string{"Spillway-Client: me", "Spillway-Priority: 0", "Priority: u=6", "Spillway-Timeout-Ms: 3600001"}
	for _, row := range []struct {
		name    string
		options Options
		headers []string
		want    admission.Request
	}{
		{"not trusted", Options{}, append(slices.Clone(said), "Spillway-Timeout-Ms: 1"), admission.Request{Client: a.Address}},
		{
			"not trusted, with a function",
			Options{Request: func(string) admission.Request { return admission.Request{Client: "t", Priority: 5} }},
			said, admission.Request{Client: "t", Priority: 5},
		},
		{"trusted", Options{TrustHeaders: true}, said, admission.Request{Client: "me", Priority: strategies.MostImportant}},
		{
			"before a function",
			Options{TrustHeaders: true, Request: func(string) admission.Request { return admission.Request{Client: "t", Priority: 5, Cost: 1} }},
			said, admission.Request{Client: "me", Priority: strategies.MostImportant, Cost: 1},
		},
		{"of the standard", Options{TrustHeaders: true}, []string{"Priority: i, u=6"}, admission.Request{Client: a.Address, Priority: 6}},
		{
			"of the standard, in several fields, which are one (RFC 9218, 8)", Options{TrustHeaders: true},
			[]string{"Priority: u=1", "Priority: i", "Priority: u=6"}, admission.Request{Client: a.Address, Priority: 6},
		},
		{
			"that do not fit", Options{TrustHeaders: true},
			[]string{"Spillway-Client: " + strings.Repeat("x", 129), "Spillway-Priority: 8", "Priority: u=8", "Spillway-Timeout-Ms: soon"},
			admission.Request{Client: a.Address},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan admission.Request, 1)
			c := Open(t, admission.Options{Concurrency: 1, Admitted: func(e admission.Event) {
				if e.Request.Client != "" { // it is not the place that is taken here
					asked <- e.Request
				}
			}})
			client := a.Serve(t, c, row.options, nothing)
			held := Take(t, c)
			waits := start(t.Context(), client, "/", row.headers...)
			Waiting(t, c, 1)
			held.Release()
			requireServed(t, <-waits)
			require.Equal(t, row.want, <-asked)
		})
	}
	if !a.Timeout {
		return
	}
	t.Run("its time is over", func(t *testing.T) {
		t.Parallel()
		c := Open(t, admission.Options{Concurrency: 1})
		client := a.Serve(t, c, Options{TrustHeaders: true, Otherwise: true}, nothing)
		held := Take(t, c)
		defer held.Release()
		require.Equal(t, Answer{Code: a.Codes[strategies.ReasonExpired], Reason: "expired"},
			client.Call(t.Context(), "/", "Spillway-Timeout-Ms: 1"))
	})
}

// Those who have places go on, and nobody comes in until so many are back.
func lowered(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{Concurrency: 4})
	end := make(chan struct{})
	client := a.Serve(t, c, Options{}, func(Call) { <-end })
	var all []<-chan Answer
	for range 6 {
		all = append(all, start(t.Context(), client, "/"))
	}
	Waiting(t, c, 2)
	require.NoError(t, c.SetConcurrency(1))
	for range 3 {
		end <- struct{}{}
	}
	InUse(t, c, 1)
	require.Equal(t, 2, c.Stats().Waiting)
	close(end)
	for _, a := range all {
		requireServed(t, <-a)
	}
}

func drains(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{Concurrency: 1})
	client := a.Serve(t, c, Options{Otherwise: true}, nothing)
	held := Take(t, c)
	waits := start(t.Context(), client, "/")
	Waiting(t, c, 1)
	drained := make(chan error, 1)
	go func() { drained <- c.Drain(t.Context()) }()
	var late Answer
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		late = client.Call(ctx, "/") // which waits, and leaves, if it is before Drain
		return late.Err == nil
	}, time.Minute, time.Millisecond)
	requireStops(t, a, late)
	held.Release()
	requireServed(t, <-waits)
	require.NoError(t, <-drained)
}

func closes(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{Concurrency: 1})
	end := make(chan struct{})
	client := a.Serve(t, c, Options{Otherwise: true}, func(Call) { <-end })
	served := start(t.Context(), client, "/")
	InUse(t, c, 1)
	waits := start(t.Context(), client, "/")
	Waiting(t, c, 1)
	c.Close()
	requireStops(t, a, <-waits)
	requireStops(t, a, client.Call(t.Context(), "/"))
	close(end)
	requireServed(t, <-served)
}

// requireStops finds that a request was turned away since the service stops: it is not
// that there are too many.
func requireStops(t *testing.T, a Adapter, got Answer) {
	t.Helper()
	require.NoError(t, got.Err)
	require.Equal(t, a.Codes[strategies.ReasonDraining], got.Code)
	require.Equal(t, "draining", got.Reason)
}

func nothingGiven(t *testing.T, a Adapter) {
	require.PanicsWithValue(t, a.NilPanic, a.Nil)
}

// Under strategies that change, and with places that become more and fewer, none is lost.
func soak(t *testing.T, a Adapter) {
	c := Open(t, admission.Options{Concurrency: 3, Capacity: 8})
	client := a.Serve(t, c, Options{
		TrustHeaders: true, Hold: a.Holds[rand.IntN(len(a.Holds))],
		Request: func(string) admission.Request { return admission.Request{Cost: rand.IntN(5)} },
	}, func(call Call) {
		switch rand.IntN(5) {
		case 0:
			if a.Recovers {
				panic("oops")
			}
		case 1:
			if call.Release != nil {
				call.Release()
			}
		case 2:
			select {
			case <-call.Gone:
			case <-time.After(rand.N(2 * time.Millisecond)):
			}
		case 3:
			next := make(chan bool, 2)
			next <- true
			close(next)
			call.Stream(a.Kinds[rand.IntN(len(a.Kinds))], next)
		}
	})
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond+rand.N(20*time.Millisecond))
				if rand.IntN(4) > 0 {
					client.Call(ctx, "/", fmt.Sprint("Spillway-Timeout-Ms: ", 1+rand.IntN(5)))
				} else if next, err := client.Open(ctx, a.Kinds[rand.IntN(len(a.Kinds))]); err == nil {
					for err == nil {
						err = next()
					}
					if !errors.Is(err, io.EOF) && ctx.Err() == nil && rand.IntN(2) == 0 {
						<-ctx.Done()
					}
				}
				cancel()
			}
		})
	}
	clients.Go(func() {
		for i, name := range strategies.Names() {
			if name != "sync" && name != "caller-runs" { // whose places nobody counts
				require.NoError(t, c.Switch(name))
			}
			require.NoError(t, c.SetConcurrency(1+i%4))
			time.Sleep(time.Millisecond)
		}
	})
	clients.Wait()
}

// Its client waits no more when it is answered, whether its answer goes on or not.
func answersLate(t *testing.T, a Adapter) {
	if !a.Timeout {
		return
	}
	for _, goesOn := range []bool{false, true} {
		c := Open(t, admission.Options{})
		client := a.Serve(t, c, Options{TrustHeaders: true}, func(call Call) {
			if <-time.After(20 * time.Millisecond); goesOn {
				next := make(chan bool, 1)
				next <- true
				close(next)
				call.Stream(Long, next)
			}
		})
		for !client.Call(t.Context(), "/", "Spillway-Timeout-Ms: 10").Served {
			continue // on a machine that is too slow it is turned away
		}
		InUse(t, c, 0)
		require.EqualValues(t, 1, c.Stats().Learned.Dropped)
	}
}
