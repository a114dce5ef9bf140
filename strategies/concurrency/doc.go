// Package concurrency learns how many requests a resource of which nobody knows
// anything should be given at once.
//
//	law, err := concurrency.New(concurrency.Options{Min: 1, Max: 1000})
//	…
//	if _, changed := law.Completed(concurrency.Sample{
//		Now: now, Began: began, Running: places.Taken(), Waiting: queue.Len() > 0,
//	}); changed {
//		places.mu.Lock() // so that the last to resize has the latest limit
//		places.resizeLocked(law.Limit())
//		places.mu.Unlock()
//	}
//
// It is passive, as a queue discipline is: it starts no goroutine, blocks nobody and
// reads no clock. The time is an argument. It needs the standard library alone.
package concurrency
