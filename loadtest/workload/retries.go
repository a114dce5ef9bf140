package workload

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Retries is what clients do with a refusal or a time-out: "3,10ms" for three
// attempts at most, 10 ms after the first and twice as long after the next;
// "3,10ms,0.1" for no more retries than a tenth of the first attempts. The zero
// value is no retries.
//
// A refusal is an answer of 429, 503 or 504. A request that has no answer for another
// reason, or never had a connection, is not retried. The wait is drawn evenly from 0 to the
// back-off, and the client keeps its connection meanwhile. The timeout is that of each
// attempt. Latency counts from the scheduled time of the first one. A request counts once,
// by how its last attempt ended.
type Retries struct {
	// Attempts is how many there are at most, the first included: 2 to 100.
	Attempts int
	// Backoff is the wait after the first of them, 0 to 1h.
	Backoff time.Duration
	// Budget, if not 0, is how many retries there may be for each first attempt, in
	// the mean. At most RetryBurst can be saved up.
	Budget float64
}

const (
	// RetryBurst is how many retries a budget saves up at most.
	RetryBurst = 100
	// longestBackoff is what doubling ends at.
	longestBackoff = time.Hour
)

// Wait draws how long a client waits after so many attempts.
func (r *Retries) Wait(attempts int, random *rand.Rand) time.Duration {
	wait := r.Backoff
	for n := 1; n < attempts && wait < longestBackoff; n++ {
		wait *= 2
	}
	return time.Duration(random.Int64N(int64(min(wait, longestBackoff)) + 1))
}

// UnmarshalText reads retries.
func (r *Retries) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ",")
	var read Retries
	ok := len(parts) == 2 || len(parts) == 3
	if ok {
		var errs [3]error
		read.Attempts, errs[0] = strconv.Atoi(parts[0])
		read.Backoff, errs[1] = time.ParseDuration(parts[1])
		if len(parts) == 3 {
			read.Budget, errs[2] = strconv.ParseFloat(parts[2], 64)
			ok = read.Budget > 0 && read.Budget <= 100
		}
		ok = ok && errs == [3]error{} && read.Attempts >= 2 && read.Attempts <= 100 && read.Backoff >= 0 && read.Backoff <= longestBackoff
	}
	if !ok {
		return badValue("retries", string(text), "attempts (2 to 100) and a back-off, such as 3,10ms, and perhaps retries for each first attempt, such as 3,10ms,0.1")
	}
	*r = read
	return nil
}
