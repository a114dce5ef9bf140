// Package server is the data plane: it turns requests into operations, and the results of
// operations into answers.
//
// The front (package httpfront) owns connections and bytes, and invokes a Call for each
// request: Field for each line of the head, then Head, which makes a request of them, and
// Serve. Serve makes an operation of the request, submits it as a task, waits until the
// task is completed, and sends the answer that the result makes. Until it is completed, its
// bytes (key, value, answer buffer) belong to whoever runs it.
//
//	fields  ──parse──►  request  ──operation──►  executor.Op  ──run──►  result  ──answer──►  httpfront.Answer
//
// The arrows but run are functions that need no connection.
package server
