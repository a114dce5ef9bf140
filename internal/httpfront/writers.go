package httpfront

import "runtime"

// quantum is what is written of a long answer at a time. What is not longer needs no writer.
const quantum = 64 << 10

// writers bounds how many goroutines write long answers at once: a semaphore, acquired for a
// quantum each, in order of arrival. Bytes are work: to copy a quantum into a socket takes
// longer than to serve a small request, and Go schedules what is ready round robin. With a
// writer for each reader ready, a small request would stand behind all of them each time that
// it has waited for something. Nobody holds it while a client takes its time.
type writers chan struct{}

func newWriters() writers { return make(writers, max(1, runtime.GOMAXPROCS(0)/2)) }

func (w writers) acquire() { w <- struct{}{} }
func (w writers) release() { <-w }
