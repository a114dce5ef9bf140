package admission_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

// In front of anything that is worth waiting for: a database, a disk, a model.
func ExampleController_Acquire() {
	ctl, err := admission.New(admission.Options{Concurrency: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	query := func(ctx context.Context) error {
		permit, err := ctl.Acquire(ctx, admission.Request{Client: "tenant-7"})
		if shed, ok := errors.AsType[*admission.ShedError](err); ok {
			return fmt.Errorf("come back in %v: %w", shed.RetryAfter, err)
		}
		defer permit.Release()
		fmt.Println("the query runs")
		return nil
	}
	fmt.Println(query(context.Background()))
	// Output:
	// the query runs
	// <nil>
}

// The context's deadline is how long a request waits.
func ExampleController_Acquire_deadline() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1})
	permit, _ := ctl.Acquire(context.Background(), admission.Request{})
	defer permit.Release()

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := ctl.Acquire(ctx, admission.Request{})
	fmt.Println(err)
	fmt.Println(errors.Is(err, admission.ErrShed), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// admission: shed: expired
	// true true
}

// What can do without waits for nothing.
func ExampleController_TryAcquire() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1})
	for range 2 {
		permit, ok := ctl.TryAcquire(admission.Request{})
		if !ok {
			fmt.Println("answered from the cache")
			continue
		}
		defer permit.Release()
		fmt.Println("computed anew")
	}
	// Output:
	// computed anew
	// answered from the cache
}

// Do gives the places back when the function returns or panics.
func ExampleController_Do() {
	ctl, _ := admission.New(admission.Options{Concurrency: 4})
	err := ctl.Do(context.Background(), admission.Request{}, func(context.Context) error {
		fmt.Println("in use:", ctl.Stats().InUse)
		return nil
	})
	fmt.Println("in use:", ctl.Stats().InUse, err)
	// Output:
	// in use: 1
	// in use: 0 <nil>
}

// A request that is ten times the work takes ten places.
func ExampleRequest_cost() {
	ctl, _ := admission.New(admission.Options{Concurrency: 16})
	report, _ := ctl.Acquire(context.Background(), admission.Request{Cost: 10})
	fmt.Println("in use:", ctl.Stats().InUse)
	_, ok := ctl.TryAcquire(admission.Request{Cost: 7})
	fmt.Println("room for 7 more:", ok)
	report.Release()
	fmt.Println("in use:", ctl.Stats().InUse)
	// Output:
	// in use: 10
	// room for 7 more: false
	// in use: 0
}

// Under the strategy priority the most important requests go first.
func ExampleRequest_priority() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1, Strategy: "priority"})
	permit, _ := ctl.Acquire(context.Background(), admission.Request{})
	var served sync.WaitGroup
	for i, r := range []struct {
		name     string
		priority strategies.Priority
	}{
		{"a crawler", strategies.LeastImportant},
		{"a page", strategies.Ordinary},
		{"a payment", strategies.MostImportant},
	} {
		served.Go(func() {
			_ = ctl.Do(context.Background(), admission.Request{Priority: r.priority}, func(context.Context) error {
				fmt.Println(r.name)
				return nil
			})
		})
		for ctl.Stats().Waiting <= i { // until it waits, for the sake of the example
			runtime.Gosched()
		}
	}
	permit.Release()
	served.Wait()
	// Output:
	// a payment
	// a page
	// a crawler
}

// Under the strategy fair clients take turns, however many requests one of them has.
func ExampleRequest_client() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1, Strategy: "fair"})
	permit, _ := ctl.Acquire(context.Background(), admission.Request{})
	var served sync.WaitGroup
	for i, client := range []string{"greedy", "greedy", "greedy", "modest"} {
		served.Go(func() {
			_ = ctl.Do(context.Background(), admission.Request{Client: client}, func(context.Context) error {
				fmt.Println(client)
				return nil
			})
		})
		for ctl.Stats().Waiting <= i { // until it waits, for the sake of the example
			runtime.Gosched()
		}
	}
	permit.Release()
	served.Wait()
	// Output:
	// greedy
	// modest
	// greedy
	// greedy
}

// The strategy can be changed while requests wait; none is lost.
func ExampleController_Switch() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1, Strategy: "fifo"})
	fmt.Println(ctl.Switch("adaptive-lifo"), ctl.Stats().Strategy)
	fmt.Println(errors.Is(ctl.Switch("nonsense"), strategies.ErrUnknown), ctl.Stats().Strategy)
	// Output:
	// <nil> adaptive-lifo
	// true adaptive-lifo
}

// A strategy may be given as a value, with options of its own, or be one's own.
func ExampleController_SwitchTo() {
	ctl, _ := admission.New(admission.Options{
		Concurrency: 8,
		Spec:        strategies.CoDel(strategies.CoDelOptions{Target: 5 * time.Millisecond, Interval: 100 * time.Millisecond}),
	})
	fmt.Println(ctl.Stats().Strategy)
	fmt.Println(ctl.SwitchTo(strategies.EDF(strategies.EDFOptions{})), ctl.Stats().Strategy)
	// Output:
	// codel
	// <nil> edf
}

// The number of places can be changed; what is in use stays so until it is given back.
func ExampleController_SetConcurrency() {
	ctl, _ := admission.New(admission.Options{Concurrency: 2})
	first, _ := ctl.TryAcquire(admission.Request{})
	second, _ := ctl.TryAcquire(admission.Request{})
	fmt.Println(ctl.SetConcurrency(1))
	first.Release()
	_, ok := ctl.TryAcquire(admission.Request{})
	fmt.Println("a place is free:", ok)
	second.Release()
	_, ok = ctl.TryAcquire(admission.Request{})
	fmt.Println("a place is free:", ok)
	fmt.Println(ctl.SetConcurrency(-1))
	// Output:
	// <nil>
	// a place is free: false
	// a place is free: true
	// admission: Concurrency is -1, 1 to 1048576 is allowed, or 0 to have it learned
}

// Without a number of places the controller learns it, from how long requests take while
// others wait. What is in front of something that answers before it has sent all says when
// its answer begins: how long the client takes to read it is another matter.
func ExamplePermit_Tell() {
	ctl, _ := admission.New(admission.Options{MaxConcurrency: 100})
	permit, err := ctl.Acquire(context.Background(), admission.Request{})
	if err != nil {
		return
	}
	defer permit.Release()
	// … the work …
	permit.Tell(admission.Good)
	// … the answer is sent, and the place kept …
	fmt.Println(ctl.Stats().InUse, ctl.Stats().Learned.Max)
	// Output: 1 100
}

// Done tells how a request ended. What its client does says nothing of the resource.
func ExamplePermit_Done() {
	ctl, _ := admission.New(admission.Options{InitialConcurrency: 8})
	query := func(ctx context.Context, db func(context.Context) error) error {
		permit, err := ctl.Acquire(ctx, admission.Request{})
		if err != nil {
			return err
		}
		err = db(ctx)
		switch {
		case errors.Is(err, context.Canceled):
			permit.Done(admission.Ignored)
		case errors.Is(err, context.DeadlineExceeded):
			permit.Done(admission.Dropped)
		default:
			permit.Done(admission.Good)
		}
		permit.Release() // does nothing any more
		return err
	}
	fmt.Println(query(context.Background(), func(context.Context) error { return context.Canceled }))
	fmt.Println(query(context.Background(), func(context.Context) error { return context.DeadlineExceeded }))
	fmt.Println("dropped:", ctl.Stats().Learned.Dropped)
	// Output:
	// context canceled
	// context deadline exceeded
	// dropped: 1
}

// What a request does is part of it, and waits for no places of the same controller.
func ExamplePermit_Context() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1})
	permit, _ := ctl.Acquire(context.Background(), admission.Request{})
	defer permit.Release()
	ctx := permit.Context(context.Background())
	fmt.Println(ctl.Do(ctx, admission.Request{}, func(context.Context) error {
		fmt.Println("in use:", ctl.Stats().InUse)
		return nil
	}))
	// Output:
	// in use: 1
	// <nil>
}

// LimitChanged is told how many places there are.
func ExampleOptions_limitChanged() {
	changed := make(chan [2]int, 1)
	ctl, _ := admission.New(admission.Options{
		Concurrency:  4,
		LimitChanged: func(from, to int) { changed <- [2]int{from, to} },
	})
	fmt.Println(ctl.SetConcurrency(8), <-changed)
	// Output: <nil> [4 8]
}

// Hooks are told what becomes of every request.
func ExampleOptions_hooks() {
	ctl, _ := admission.New(admission.Options{
		Concurrency: 1, Capacity: 1, Strategy: "fifo",
		Admitted: func(e admission.Event) { fmt.Println(e.Request.Client, "is let through by", e.Strategy) },
		Shed:     func(e admission.Event) { fmt.Println(e.Request.Client, "is turned away:", e.Reason) },
		Released: func(e admission.Event) { fmt.Println(e.Request.Client, "has given its place back") },
	})
	permit, _ := ctl.Acquire(context.Background(), admission.Request{Client: "ann"})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = ctl.Acquire(gone, admission.Request{Client: "bob"})
	permit.Release()
	// Output:
	// ann is let through by fifo
	// bob is turned away: abandoned
	// ann has given its place back
}

// Observe tells what would be turned away, and turns nothing away: to look before it
// leaps.
func ExampleOptions_observe() {
	ctl, _ := admission.New(admission.Options{
		Concurrency: 1, Mode: admission.Observe,
		Shed: func(e admission.Event) {
			if e.Observed {
				fmt.Println("would be turned away:", e.Reason)
			}
		},
	})
	fmt.Println(ctl.Stats().Mode)
	// Output: observe
}

// A service that stops lets what waits through, and turns away what comes.
func ExampleController_Drain() {
	ctl, _ := admission.New(admission.Options{Concurrency: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(ctl.Drain(ctx))
	_, err := ctl.Acquire(ctx, admission.Request{})
	fmt.Println(err)

	ctl.Close() // does not wait
	_, err = ctl.Acquire(ctx, admission.Request{})
	fmt.Println(errors.Is(err, admission.ErrClosed))
	// Output:
	// <nil>
	// admission: shed: draining
	// true
}

// One queue before replicas. What did not reach one of them is done by another.
func ExampleGroup_Do() {
	g, _ := admission.NewGroup(admission.GroupOptions{
		Options:   admission.Options{Concurrency: 2}, // each; 0 has it learned
		Resources: []string{"one", "two"},
		Rests: func(replica string, rests bool) {
			fmt.Println(replica, "rests:", rests)
		},
	})
	defer g.Close()
	for range 3 {
		err := g.Do(context.Background(), admission.Request{}, func(_ context.Context, replica string) error {
			if replica == "two" {
				return fmt.Errorf("connection refused: %w", admission.ErrUnreached)
			}
			fmt.Println("done by", replica)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Unordered output:
	// two rests: true
	// done by one
	// done by one
	// done by one
}

// The list changes while requests are under way. What stays goes on with what it has learned.
func ExampleGroup_SetResources() {
	g, _ := admission.NewGroup(admission.GroupOptions{Resources: []string{"one"}})
	defer g.Close()
	permit, _ := g.Acquire(context.Background(), admission.Request{})
	fmt.Println(g.SetResources([]string{"two", "three"}))
	fmt.Println("still at", permit.Resource())
	permit.Release()
	for _, r := range g.Resources() {
		fmt.Println(r.Name, r.Concurrency)
	}
	// Output:
	// <nil>
	// still at one
	// two 4
	// three 4
}
