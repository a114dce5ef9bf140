package server

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/internal/httpfront"
)

// What proxies and browsers say of a request in headers of their own follows.

// urgency returns the digit that a Priority header (RFC 9218) gives for u, nil if it
// does not fit, or what a header before gave if this one gives none. Of several the
// last counts.
func urgency(value, before []byte) (digit []byte) {
	digit = before
	for len(value) > 0 {
		var member []byte
		member, value = cutMember(value)
		name, v, _ := bytes.Cut(member, equals)
		if string(httpfront.Trim(name)) != "u" {
			continue
		}
		v, _, _ = bytes.Cut(v, semicolon) // parameters have no meaning
		if digit = httpfront.Trim(v); len(digit) != 1 || digit[0] < '0' || digit[0] > '0'+maxPriority {
			digit = nil
		}
	}
	return digit
}

// cutMember splits a dictionary (RFC 8941) at its first comma that is not within a
// string.
func cutMember(b []byte) (member, rest []byte) {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '"':
			quoted = !quoted
		case quoted && b[i] == '\\':
			i++
		case !quoted && b[i] == ',':
			return b[:i], b[i+1:]
		}
	}
	return b, nil
}

// longestBefore is the longest time that a request may have spent in proxies. One that is
// longer comes of a wrong clock.
const longestBefore = time.Hour

// movedBack returns the arrival of a request that came here at arrival, which is now, as
// moved back by a proxy's X-Request-Start: t=, and seconds since the epoch, perhaps with a
// fraction, or milliseconds, or microseconds. What does not fit, or lies in the future,
// changes nothing. No arrival is before the zero of its clock.
func movedBack(arrival int64, value []byte, now time.Time) int64 {
	value = bytes.TrimPrefix(value, []byte("t="))
	if len(value) == 0 || len(value) > 20 || len(bytes.Trim(value, "0123456789.")) > 0 {
		return arrival
	}
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil {
		return arrival
	}
	switch { // as each is a thousand times the other, the present tells which it is
	case seconds > 1e14:
		seconds /= 1e6
	case seconds > 1e11:
		seconds /= 1e3
	}
	whole, fraction := math.Modf(seconds)
	before := now.Sub(time.Unix(int64(whole), int64(fraction*1e9)))
	if before <= 0 || before > longestBefore {
		return arrival
	}
	return max(1, arrival-int64(before))
}
