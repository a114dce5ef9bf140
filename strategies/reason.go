package strategies

import (
	"slices"
	"strings"
)

// Reason says why a task was not run: a word, as clients and metrics see it. A
// strategy may have reasons of its own, which it declares in its Spec.
type Reason string

// The reasons why a task may be shed.
const (
	// ReasonNone means that the task was not shed.
	ReasonNone Reason = ""
	// ReasonFull means that the queue was full.
	ReasonFull Reason = "full"
	// ReasonDisplaced means that a task pushed later was queued in its stead.
	ReasonDisplaced Reason = "displaced"
	// ReasonCoDel means that the task waited too long while a queue stood.
	ReasonCoDel Reason = "codel"
	// ReasonLate means that the task would be answered later than its objective or its
	// own deadline.
	ReasonLate Reason = "late"
	// ReasonFair means that the task's client was over its share.
	ReasonFair Reason = "fair"
	// ReasonAbandoned means that the client went away.
	ReasonAbandoned Reason = "abandoned"
	// ReasonDraining means that the service is stopping.
	ReasonDraining Reason = "draining"
	// ReasonExpired means that the task's deadline passed while it waited.
	ReasonExpired Reason = "expired"
)

var reasons = []Reason{
	ReasonFull, ReasonDisplaced, ReasonCoDel, ReasonLate,
	ReasonFair, ReasonAbandoned, ReasonDraining, ReasonExpired,
}

// Reasons returns the reasons that every strategy may shed a task for.
func Reasons() []Reason { return slices.Clone(reasons) }

// String returns the reason's name, "none" if there is none.
func (r Reason) String() string {
	if r == ReasonNone {
		return "none"
	}
	return string(r)
}

// longestReason is how many bytes a reason may have.
const longestReason = 32

// wellFormed reports whether r may be the name of a reason.
func (r Reason) wellFormed() bool {
	return r != ReasonNone && r != "none" && len(r) <= longestReason &&
		strings.Trim(string(r), "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}
