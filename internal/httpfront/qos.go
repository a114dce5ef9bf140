package httpfront

import (
	"strconv"
	"time"
)

// QoS is what a client says of whom a request counts for, and of how important and how urgent it is. It refers to
// the bytes of the head. A nil slice means that the field was not sent.
type QoS struct {
	client, priority, timeout []byte
	urgency                   []byte // of Priority; nil if none fits
}

// The bounds of a QoS.
const (
	longestClient  = 128 // bytes
	leastImportant = 7
	longestTimeout = 3_600_000 // ms
)

// Note takes a field, whose name is given in lower case too, if it is one of them.
func (w *QoS) Note(lower, name, value []byte) *Problem {
	switch string(lower) {
	case "priority":
		w.urgency = Urgency(value, w.urgency)
	case "spillway-client":
		return Once(&w.client, name, value)
	case "spillway-priority":
		return Once(&w.priority, name, value)
	case "spillway-timeout-ms":
		return Once(&w.timeout, name, value)
	}
	return nil
}

// Read checks them, and returns the client, empty if it has not said, the class from 0, the most important, to 7, or
// unset, and the time within which an answer is wanted, 0 for any.
func (w *QoS) Read(unset int) (client []byte, class int, timeout time.Duration, bad *Problem) {
	if w.urgency != nil {
		unset = int(w.urgency[0] - '0')
	}
	ms, bad := Whole("Spillway-Timeout-Ms", w.timeout, 1, longestTimeout, 0)
	if bad == nil {
		class, bad = Whole("Spillway-Priority", w.priority, 0, leastImportant, unset)
	}
	if bad == nil && len(w.client) > longestClient {
		bad = BadHeader("Spillway-Client", w.client, "at most 128 bytes")
	}
	return w.client, class, time.Duration(ms) * time.Millisecond, bad
}

// Whole parses a field with a whole number, which is unset if the field was not sent.
func Whole(name string, value []byte, least, most, unset int) (n int, bad *Problem) {
	if value == nil {
		return unset, nil
	}
	n, ok := ParseNumber(value)
	if !ok || n < least || n > most {
		return n, BadHeader(name, value, "a whole number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
	}
	return n, nil
}

// BadHeader is the answer to a field whose value does not fit.
func BadHeader(name string, value []byte, allowed string) *Problem {
	return BadRequest("header " + name + " is " + Quote(value) + ", allowed: " + allowed)
}
