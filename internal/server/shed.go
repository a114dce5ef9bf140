package server

import (
	"cmp"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/strategies"
)

// Retry-After is told in whole seconds from 1 to this.
const longestRetry = 30

// shedDetails say what the reasons mean to a client.
var shedDetails = map[strategies.Reason]string{
	strategies.ReasonFull:      "the queue is full",
	strategies.ReasonDisplaced: "a newer request took the place of this one in the queue",
	strategies.ReasonCoDel:     "the request waited too long in a queue that does not get shorter",
	strategies.ReasonLate:      "the request would be answered later than the objective or its own deadline",
	strategies.ReasonFair:      "this client has more requests waiting than its share",
	strategies.ReasonAbandoned: "the client has gone",
	strategies.ReasonDraining:  "the service is stopping",
	strategies.ReasonExpired:   "the request was not started within its Spillway-Timeout-Ms",
}

// shedAnswers holds the answers for each reason and each number of seconds
// after which to try again. Turning a request away is what an overloaded
// service does most.
var shedAnswers = func() map[strategies.Reason]*[longestRetry + 1]*httpfront.Ready {
	all := map[strategies.Reason]*[longestRetry + 1]*httpfront.Ready{}
	for _, r := range strategies.Reasons() {
		all[r] = new([longestRetry + 1]*httpfront.Ready)
		for seconds := 1; seconds <= longestRetry; seconds++ {
			all[r][seconds] = httpfront.NewReady(shedProblem(r, seconds))
		}
	}
	return all
}()

func shedProblem(r strategies.Reason, seconds int) *httpfront.Problem {
	p := &httpfront.Problem{Status: shedStatus(r), Detail: cmp.Or(shedDetails[r], "the strategy has turned the request away"), Lines: "Spillway-Shed: " + r.String() + "\r\n"}
	if r != strategies.ReasonExpired {
		p.Lines += "Retry-After: " + strconv.Itoa(seconds) + "\r\n"
	}
	return p
}

func shedStatus(r strategies.Reason) int {
	if r == strategies.ReasonExpired {
		return fasthttp.StatusGatewayTimeout
	}
	return fasthttp.StatusServiceUnavailable
}

// retryAfter turns the time that a queue takes to drain into seconds.
func retryAfter(d time.Duration) int {
	return int(min(max((d+time.Second-1)/time.Second, 1), longestRetry))
}

// answerShed returns the answer to a request that was turned away.
func (c *call) answerShed(buf []byte) httpfront.Answer {
	r, seconds := c.task.Shed, retryAfter(c.server.opts.Dispatcher.DrainTime())
	c.shed, c.left = true, r == strategies.ReasonAbandoned
	a := httpfront.Answer{Buf: buf, Close: c.left}
	if ready, ok := shedAnswers[r]; ok {
		a.Ready = ready[seconds]
	} else { // of somebody's own strategy
		a.Problem = shedProblem(r, seconds)
	}
	return a
}
