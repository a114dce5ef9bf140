package admin

import "github.com/spillway-go/spillway/strategies"

// explanations tell in plain words, for people who have not read the
// strategies, what happened to a request that was turned away. Each goes on
// after "it". docs/operations.md has the rules behind them, with their figures.
var explanations = map[strategies.Reason]string{
	strategies.ReasonFull:      "found no room: the queue, or the memory for bodies, was full",
	strategies.ReasonDisplaced: "waited in a full queue and lost its place to a newer, more important or more urgent request",
	strategies.ReasonCoDel:     "waited too long in a queue that did not get empty; giving it up lets others be in time",
	strategies.ReasonLate:      "would have been answered later than the objective, or than its own deadline",
	strategies.ReasonFair:      "waited in a full queue, and its client had more work waiting than any other",
	strategies.ReasonAbandoned: "waited, and its client hung up",
	strategies.ReasonDraining:  "waited, or came, while the service was stopping",
	strategies.ReasonExpired:   "missed its own deadline (Spillway-Timeout-Ms)",
}
