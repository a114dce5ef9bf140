// Package refusal has the answers to requests that a queue turns away. They are ready, as
// turning requests away is what an overloaded service does most.
package refusal

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/strategies"
)

// longestRetry is the most that Retry-After says, in whole seconds. The least is 1.
const longestRetry = 30

// details say what the reasons mean to a client.
var details = map[strategies.Reason]string{
	strategies.ReasonFull:      "the queue is full",
	strategies.ReasonDisplaced: "a newer request took the place of this one in the queue",
	strategies.ReasonCoDel:     "the request waited too long in a queue that does not get shorter",
	strategies.ReasonLate:      "the request would be answered later than the objective or its own deadline",
	strategies.ReasonFair:      "this client has more requests waiting than its share",
	strategies.ReasonAbandoned: "the client has gone",
	strategies.ReasonDraining:  "the service is stopping",
	strategies.ReasonExpired:   "the request was not started within its Spillway-Timeout-Ms",
}

// ready holds the answers for each reason and each number of seconds after which to try
// again.
var ready = func() map[strategies.Reason]*[longestRetry + 1]*httpfront.Problem {
	all := map[strategies.Reason]*[longestRetry + 1]*httpfront.Problem{}
	for _, r := range strategies.Reasons() {
		all[r] = new([longestRetry + 1]*httpfront.Problem)
		for seconds := 1; seconds <= longestRetry; seconds++ {
			all[r][seconds] = Problem(r, seconds).Ready()
		}
	}
	return all
}()

// Problem returns the answer to a request that was turned away for that reason, with those
// seconds, 1 to 30, after which to try again.
func Problem(r strategies.Reason, seconds int) *httpfront.Problem {
	p := &httpfront.Problem{Status: http.StatusServiceUnavailable, Detail: cmp.Or(details[r], "the strategy has turned the request away"), Lines: "Spillway-Shed: " + r.String() + "\r\n"}
	if r == strategies.ReasonExpired {
		p.Status = http.StatusGatewayTimeout
	} else {
		p.Lines += "Retry-After: " + strconv.Itoa(seconds) + "\r\n"
	}
	return p
}

// Seconds turns the time that a queue takes to drain into those of Retry-After.
func Seconds(d time.Duration) int {
	return int(min(max((d+time.Second-1)/time.Second, 1), longestRetry))
}

// Answer returns the answer to a request that was turned away by a queue that takes that
// time to drain. The reason may be one of somebody's own strategy.
func Answer(r strategies.Reason, drain time.Duration) *httpfront.Problem {
	if all, ok := ready[r]; ok {
		return all[Seconds(drain)]
	}
	return Problem(r, Seconds(drain))
}
