// Package server is the data plane: it turns bytes on TCP connections into
// tasks, and the results of tasks into bytes.
//
// # The way of a connection
//
// An accept loop starts one goroutine for each connection, and that goroutine
// does everything the connection needs: it reads, parses and checks a request,
// submits a task, parks until the task is done, and writes the answer. There is
// no goroutine per request. While a task is away, its bytes (key, value, answer
// buffer) belong to whoever runs it, and the goroutine looks at none of them.
//
// A connection that waits for its next request holds no buffer. The first bytes
// of a request are read into an exchange, a pooled set of buffers with the task
// and its operation, which goes back to the pool when nothing is left to do.
//
// # Refusals
//
// Whatever is wrong with a request is said in an answer of the type
// application/problem+json, and everything that can be told from the head of a
// request is told before its body is read. After a refusal the connection lives
// on if the whole request has arrived already; otherwise it is closed in a way
// that lets a client that is still sending see the answer.
//
// # Where the HTTP standards leave a choice
//
//   - A target in absolute form is served as if it were in origin form; a
//     number sign in a query is an ordinary byte; paths are compared as sent.
//   - Lines end in CR LF, nothing else. Folded header lines, names with spaces,
//     Content-Length beside Transfer-Encoding, and codings other than chunked
//     are 400, and end the connection.
//   - Trailers obey the rules of the head, and are dropped. Extensions of chunks are
//     printable, and bounded.
//   - Versions other than 1.0 and 1.1 are 505, expectations other than
//     100-continue 417.
//   - Bodies of requests that need none are read and dropped.
package server
