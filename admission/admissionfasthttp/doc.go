// Package admissionfasthttp puts queues in front of fasthttp's handlers.
//
//	srv := &fasthttp.Server{Handler: admissionfasthttp.Handler(ctl, handler)}
//
// fasthttp reads the whole of a request before its handler, so that a slow body takes no
// place, unless Server.StreamRequestBody is set. It does not notify handlers that a client has
// hung up. So a request waits until its turn, or until the strategy or Options.Wait gives it
// up.
package admissionfasthttp
