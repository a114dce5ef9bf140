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
// A place is a unit of the concurrency; a [Permit] holds the places of one request, as many as it
// costs. The concurrency is set by Options.Concurrency, or learned from how requests end (see
// package concurrency): [Permit.Done] reports whether the resource could do what was asked. That a
// client hung up teaches nothing, nor does a deadline that was nearer than the usual service time
// when the request began. In metrics places are called workers, so that the service's dashboards
// and alerts apply.
//
// A [Controller] keeps no goroutines. Acquire takes a place if one is free and nothing waits.
// Release hands the place to the request that is next. Acquire is reentrant: under the context of
// [Permit.Context], which the adapters give to handlers, it returns at once, as the request would
// wait for itself.
package admission
