// Package httpfront serves HTTP/1.1 and 1.0 to a Handler. It knows bytes, time and memory:
// listeners, connections, where a request ends, limits, time-outs, the budget of bodies,
// clients that are slow or gone, refusals, and how a service ends. It knows no path and no
// header but those of the protocol.
//
// # Types
//
//	Front ──► conn ──► Exchange ──► Call (the handler's)
//	           │         ├ inbound    the request being read, and its body
//	           └ wire    └ outbound   the answer being written
//
// A Front accepts, counts, and ends connections. A conn is a connection and its goroutine,
// which does all that the connection needs; there is none per request. A wire is its socket
// and the alarm that ends waiting. An Exchange comes from a pool with the first byte of a
// request, and goes back when no byte and no answer is left. It invokes the handler's Call.
// Call.Serve alone uses it in return: to wait for work that others do, and to answer.
//
// # States of a connection
//
//	state      entered when                buffers belong to  ended by (in brackets: without an answer)
//	dormant    idle, and not busy lately   – (stack of 2 KiB) bytes, [idle time-out, hang-up, drain]
//	idle       opened, or all is answered  –                  bytes, [idle time-out, hang-up, drain]
//	reading    bytes of a request came     the goroutine      the whole request, a fault in it, read time-out, end of stream, [reset]
//	serving    the request is there        the goroutine      Serve returns
//	waiting    Wait or WaitDone in Serve   the work           the work is done; Wait also by a deadline or a hang-up: then WaitDone follows
//	writing    an answer is there          the goroutine      all is taken, [write time-out without progress, reset]
//	lingering  an answer ended it while    the goroutine      [end of stream, 1 s, 1 MiB]
//	           the client may be sending
//	closed     any of the above            –
//
// While the work has the buffers it may use key, body and the free tail of the output buffer.
// Drain has each answer end its connection, and after a second closes the idle and dormant
// ones. Close interrupts reading and idling as well. Neither interrupts waiting.
//
// # Where the HTTP standards leave a choice
//
//   - A target in absolute form is served as if it were in origin form; a
//     number sign in a query is an ordinary byte; paths are compared as sent.
//   - Lines end in CR LF, nothing else. Folded header lines, names with spaces,
//     Content-Length beside Transfer-Encoding, and codings other than chunked
//     are 400, and end the connection.
//   - Trailers obey the rules of the head, and are dropped. Extensions of chunks are
//     printable, and 16 KiB in a body at most.
//   - Versions other than 1.0 and 1.1 are 505, expectations other than
//     100-continue 417.
//   - Bodies of requests that need none are read and dropped.
//
// # Refusals
//
// Whatever is wrong with a request is said in an answer of the type
// application/problem+json, and everything that shows in the head of a request
// is said before its body is read. After a refusal the connection lives
// on if the whole request has arrived already; otherwise it is closed in a way
// that lets a client that is still sending see the answer.
package httpfront
