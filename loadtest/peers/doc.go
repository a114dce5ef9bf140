// Package peers measures what others offer beside Spillway's own parts, in the
// same run and with the same harness. It is a module of its own, so that what
// is compared with never becomes a dependency of the service.
//
//	cd loadtest/peers && go test -bench .
package peers
