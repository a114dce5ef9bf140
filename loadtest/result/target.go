package result

import (
	"strconv"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// TargetResult is what became of the requests to one target. Percentiles are within
// 1%.
type TargetResult struct {
	Target string `json:"target"`
	Share
	Status        map[string]int64 `json:"status"`
	Errors        int64            `json:"errors"`
	Latency       Percentiles      `json:"latency_ms"`
	ServedLatency Percentiles      `json:"served_latency_ms"`
}

// targetTally counts what becomes of the requests to one target.
type targetTally struct {
	status          map[int]int64
	errors          int64
	latency, served *hdrhistogram.Histogram
}

func newTargetTally() *targetTally {
	return &targetTally{status: map[int]int64{}, latency: newHistogram(coarse), served: newHistogram(coarse)}
}

// target returns the counts of the target that a part asks for, nil if that is none.
func (t *Tally) target(part Part) *targetTally {
	if t.targets == nil {
		return nil
	}
	return t.targets[part[0]]
}

func (t *targetTally) add(other *targetTally) {
	for status, n := range other.status {
		t.status[status] += n
	}
	t.errors += other.errors
	t.latency.Merge(other.latency)
	t.served.Merge(other.served)
}

func (t *targetTally) result(name string, share Share) TargetResult {
	r := TargetResult{
		Target: name, Share: share, Status: map[string]int64{}, Errors: t.errors,
		Latency: percentiles(t.latency), ServedLatency: percentiles(t.served),
	}
	for status, n := range t.status {
		r.Status[strconv.Itoa(status)] = n
	}
	return r
}
