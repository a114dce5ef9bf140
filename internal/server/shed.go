package server

import (
	"github.com/spillway-go/spillway/internal/httpfront"
	"github.com/spillway-go/spillway/internal/refusal"
	"github.com/spillway-go/spillway/strategies"
)

// answerShed returns the answer to a request that was turned away.
func (c *call) answerShed(buf []byte) httpfront.Answer {
	r, drain := c.task.Shed, c.server.opts.Dispatcher.DrainTime()
	c.shed, c.left = true, r == strategies.ReasonAbandoned
	a := refusal.Answer(r, drain)
	a.Buf, a.Close = buf, c.left
	return a
}
