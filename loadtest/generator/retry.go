package generator

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// refused reports whether a status says that the request was not done and may be
// tried again.
func refused(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout || status == http.StatusTooManyRequests
}

// retrying is what a loop needs for clients that try again. Such a client keeps
// its connection until its request has ended, so that a request which is tried
// again is on one connection throughout: on the way, resting, or not open at the
// moment.
type retrying struct {
	resting []*conn // what is due first is last
	// onTheWay are the connections with attempts other than the first, in the order
	// in which these were sent.
	onTheWay list
	// unfinished counts the requests of the window, or before it, that have been or
	// are to be tried again and have not ended.
	unfinished int
	saved      float64    // retries that the budget has left
	waits      *rand.Rand // draws back-offs, and nothing else
}

// offered counts the next request, whose time has come.
func (l *loop) offered(scheduled time.Duration) {
	l.count.Offered(scheduled, l.count.Part(&l.next))
	l.saved = min(l.saved+l.o.Retries.Budget, max(1, workload.RetryBurst/float64(l.o.Loops)))
}

// again plans that the request on c is sent once more, if it may be, now that an
// attempt was refused or given up. It reports whether it is.
func (l *loop) again(c *conn, now time.Duration) bool {
	if c.attempts == 0 || c.attempts >= l.o.Retries.Attempts {
		return false
	}
	if l.o.Retries.Budget > 0 {
		if l.saved < 1 {
			return false
		}
		l.saved--
	}
	if c.attempts == 1 && c.scheduled < l.window.To {
		l.unfinished++
	}
	c.pending, c.due = true, now+l.o.Retries.Wait(c.attempts, l.waits)
	return true
}

// over forgets the request on c, which has ended.
func (l *loop) over(c *conn) {
	if (c.attempts > 1 || c.pending) && c.scheduled < l.window.To {
		l.unfinished--
	}
	c.attempts, c.pending = 0, false
}

// rest has c, which is open, wait until its request is sent again.
func (l *loop) rest(c *conn) {
	c.state = connResting
	at, _ := slices.BinarySearchFunc(l.resting, c.due, func(c *conn, due time.Duration) int { return cmp.Compare(due, c.due) })
	l.resting = slices.Insert(l.resting, at, c)
}

// resend sends the request again that has rested longest past its time. It reports
// whether there was one.
func (l *loop) resend(now time.Duration) bool {
	last := len(l.resting) - 1
	if last < 0 || l.resting[last].due > now {
		return false
	}
	c := l.resting[last]
	l.resting = slices.Delete(l.resting, last, last+1)
	c.attempts++
	c.pending, c.since = false, now
	l.count.Retried(c.scheduled, 1)
	l.count.Late(c.scheduled, now-max(c.due, c.freeSince))
	l.transmit(c, &c.request, now, &l.onTheWay)
	return true
}
