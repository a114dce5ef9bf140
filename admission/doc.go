// Package admission lets so many requests through at once, and has the others wait in a
// queue whose discipline is one of package strategies, which turns away what it is not
// worth to keep: to serve some in time instead of all too late.
//
//	ctl, err := admission.New(admission.Options{})
//	…
//	permit, err := ctl.Acquire(ctx, admission.Request{Client: tenant})
//	if err != nil {
//		return err // errors.Is(err, admission.ErrShed)
//	}
//	defer permit.Release()
//
// How many go through at once is learned: package concurrency tells how. Options.Concurrency
// gives the number instead.
//
// There are no goroutines behind a [Controller]: who asks for a place takes it, if one is
// free and nobody waits, and who gives one back hands it to the request whose turn it is.
package admission
