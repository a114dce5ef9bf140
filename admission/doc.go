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
// How many run at once is learned, see package concurrency, or set by Options.Concurrency.
//
// A [Controller] has no goroutines. Acquire takes a place if one is free and nobody waits.
// Release hands the place to the request whose turn it is.
package admission
