package server

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

// What proxies and browsers say of a request in headers of their own follows.

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
	switch { // as each is a thousand times the other, the present shows which it is
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
