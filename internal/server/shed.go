package server

import (
	"bytes"
	"cmp"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

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

// shedAnswer is a ready answer, for connections that go on and that do not. Its
// first head bytes answer HEAD.
type shedAnswer struct {
	goOn, end         []byte
	goOnHead, endHead int
}

// shedAnswers holds the answers for each reason and each number of seconds
// after which to try again. Turning a request away is what an overloaded
// service does most, so it costs no more than writing ready bytes. They carry
// no Date, which an answer of this class may leave out.
var shedAnswers = func() map[strategies.Reason]*[longestRetry + 1]shedAnswer {
	all := map[strategies.Reason]*[longestRetry + 1]shedAnswer{}
	for _, r := range strategies.Reasons() {
		all[r] = new([longestRetry + 1]shedAnswer)
		for seconds := 1; seconds <= longestRetry; seconds++ {
			p := shedProblem(r, seconds)
			all[r][seconds] = shedAnswer{
				goOn:     p.append(nil, nil, false, false),
				goOnHead: len(p.append(nil, nil, false, true)),
				end:      p.append(nil, nil, true, false),
				endHead:  len(p.append(nil, nil, true, true)),
			}
		}
	}
	return all
}()

func shedProblem(r strategies.Reason, seconds int) *problem {
	p := &problem{status: shedStatus(r), detail: cmp.Or(shedDetails[r], "the strategy has turned the request away"), header: "Spillway-Shed: " + r.String() + "\r\n"}
	if r != strategies.ReasonExpired {
		p.header += "Retry-After: " + strconv.Itoa(seconds) + "\r\n"
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

// appendShed appends the answer to a request that was turned away, with further
// header lines.
func appendShed(dst []byte, r strategies.Reason, drain time.Duration, ends, head bool, lines string) []byte {
	ready, ok := shedAnswers[r]
	if !ok { // of somebody's own strategy
		p := shedProblem(r, retryAfter(drain))
		p.header += lines
		return p.append(dst, nil, ends, head)
	}
	a := &ready[retryAfter(drain)]
	b, n := a.goOn, a.goOnHead
	if ends {
		b, n = a.end, a.endHead
	}
	if head {
		b = b[:n]
	}
	if lines != "" {
		status := bytes.IndexByte(b, '\n') + 1
		dst = append(append(dst, b[:status]...), lines...)
		b = b[status:]
	}
	return append(dst, b...)
}
