package httpfront

import "runtime"

// longPiece is what is written in one turn. What is not longer needs none.
const longPiece = 64 << 10

// turns are what goroutines take that write long answers, for a piece each, in order of
// arrival. Bytes are work: to copy a piece into a socket takes longer than to serve a
// small request, and Go runs what is ready in turn. With a writer for each reader ready, a
// small request would stand behind all of them each time that it has waited for something.
// So few of them are ready at once, and the others wait here. Nobody keeps a turn while a
// client takes its time.
type turns chan struct{}

func newTurns() turns { return make(turns, max(1, runtime.GOMAXPROCS(0)/2)) }

func (t turns) take() { t <- struct{}{} }
func (t turns) give() { <-t }
