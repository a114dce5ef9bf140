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
// A request takes as many places as it costs; the concurrency is the number of places. It is
// learned, see package concurrency, or set by Options.Concurrency. It is learned from how requests
// end: [Permit.Done] reports whether the resource could do what was asked. That a client left
// teaches nothing.
//
// Metrics call places workers, as the service does, so that the same boards and alerts hold.
//
// A [Controller] keeps no goroutines. Acquire takes a place if one is free and nothing waits.
// Release hands the place to the request whose turn it is. Under the context of [Permit.Context],
// which the adapters give to handlers, the same controller is not asked again: the request would
// wait for itself.
package admission
