package dispatch

import (
	"testing"

	"github.com/spillway-go/spillway/strategies"
)

// BenchmarkRoundTrip is what a request pays for going through a queue: from
// Submit, through a worker, until its goroutine goes on.
func BenchmarkRoundTrip(b *testing.B) {
	for _, strategy := range strategies.Names() {
		for _, load := range []struct {
			name       string
			submitters int
		}{{"submitters=1", 1}, {"submitters=64", 64}} {
			b.Run("strategy="+strategy+"/"+load.name, func(b *testing.B) {
				d, err := Open(Options{
					Strategy: strategy, Capacity: 256, Workers: 4, MaxBatch: 1,
					Run: func(tasks []*Task, done func(*Task)) { done(tasks[0]) },
				})
				if err != nil {
					b.Fatal(err)
				}
				defer d.Close()
				b.ReportAllocs()
				b.SetParallelism(load.submitters) // times GOMAXPROCS
				b.RunParallel(func(pb *testing.PB) {
					completed := make(chan struct{}, 1)
					t := &Task{Done: func(*Task) { completed <- struct{}{} }}
					for pb.Next() {
						d.Submit(t)
						<-completed
					}
				})
			})
		}
	}
}
