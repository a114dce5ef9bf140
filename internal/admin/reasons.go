package admin

import "github.com/spillway-go/spillway/strategies"

// explanations tell in plain words, for people who have not read the
// strategies, what happened to a request that was turned away. Each goes on
// after "it". docs/operations.md has the rules behind them, with their figures.
var explanations = map[strategies.Reason]string{
	strategies.ReasonFull:      "found no room: as many waited as may wait, or bodies took up all the memory they may",
	strategies.ReasonDisplaced: "waited in a full queue and gave its place to another: a newer one, or a more important or more urgent one",
	strategies.ReasonCoDel:     "waited too long in a queue that does not get empty; without it, others are served in time",
	strategies.ReasonLimit:     "came when as much was under way as the strategy has found the service to manage",
	strategies.ReasonFair:      "waited in a full queue, and its client had more waiting than any other",
	strategies.ReasonAbandoned: "waited, and its client hung up",
	strategies.ReasonDraining:  "waited still, or came, when the service had to stop",
	strategies.ReasonExpired:   "was past its own deadline (Spillway-Timeout-Ms), or could not have met it",
}
