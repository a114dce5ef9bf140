package generator

import (
	"net/http"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// refused tells whether a status says that the request was not done and may be
// tried again.
func refused(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout || status == http.StatusTooManyRequests
}

// budget is how many retries may be made, by what is asked for and by priority, of
// which -1 is none. It is not safe for concurrent use.
type budget struct {
	each  float64 // for each first attempt; 0 if retries are not budgeted
	most  float64
	saved [][len(workload.Priorities{}) + 1]float64
}

// newBudget returns the share of the budget that one of so many has.
func newBudget(o *workload.Options, shares int) budget {
	b := budget{each: o.Retries.Budget, most: max(1, workload.RetryBurst/float64(shares))}
	if b.each > 0 {
		b.saved = make([][len(workload.Priorities{}) + 1]float64, len(o.Asked()))
	}
	return b
}

// earn counts a first attempt.
func (b *budget) earn(r *workload.Request) {
	if b.each > 0 {
		saved := &b.saved[r.Asks()][r.Priority+1]
		*saved = min(*saved+b.each, b.most)
	}
}

// spend tells whether a request may be tried again, and counts that it is.
func (b *budget) spend(r *workload.Request) bool {
	if b.each == 0 {
		return true
	}
	saved := &b.saved[r.Asks()][r.Priority+1]
	if *saved < 1 {
		return false
	}
	*saved--
	return true
}
