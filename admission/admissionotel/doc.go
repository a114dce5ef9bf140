// Package admissionotel tells OpenTelemetry of a controller of package admission: its metrics,
// under the names of Spillway's own queue, and a span for the time that a request waits.
//
//	ctl, instruments, err := admissionotel.New(admission.Options{})
//	…
//	defer instruments.Close()
//	permit, err := instruments.Acquire(ctx, admission.Request{})
//
// It is a module of its own, so that who does not use it does not depend on OpenTelemetry. Which
// provider takes metrics and spans is said by Options; by default it is the global one.
package admissionotel
