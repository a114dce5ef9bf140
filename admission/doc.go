// Package admission limits how many requests run at once. The others wait in a queue,
// which a strategy of package strategies orders. In an overload it turns some away, so that
// the others are served in time.
//
//	ctl, err := admission.New(admission.Options{})
//	…
//	permit, err := ctl.Acquire(ctx, admission.Request{Client: tenant})
//	if err != nil {
//		return err // errors.Is(err, admission.ErrShed)
//	}
//	defer permit.Release()
//
// What a request takes are places, as many as it costs, and the concurrency is how many places
// there are. It is learned, see package concurrency, or set by Options.Concurrency. What it is
// learned from is how requests end: [Permit.Done] says whether the resource could do what was
// asked. What clients do says nothing of it.
//
// Only metrics call places workers, as the service does, so that the same boards and alerts hold.
//
// A [Controller] has no goroutines that last. Acquire takes a place if one is free and nobody waits.
// Release hands the place to the request whose turn it is. What a request does under the context
// of [Permit.Context], which the adapters give to handlers, asks the same controller for nothing
// more: it would wait for itself.
package admission
