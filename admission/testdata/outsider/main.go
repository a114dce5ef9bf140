// Command outsider uses the library from a module of its own: see outsider_test.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/admission"
)

func main() {
	ctl, err := admission.New(admission.Options{Strategy: "lifo", Concurrency: 2, Capacity: 6})
	if err != nil {
		panic(err)
	}
	var served, turnedAway atomic.Int64
	var requests sync.WaitGroup
	for range 10 {
		requests.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			permit, err := ctl.Acquire(ctx, admission.Request{Client: "tenant-7"})
			if errors.Is(err, admission.ErrShed) {
				turnedAway.Add(1) // 2 run, 6 wait, the oldest had to go
				return
			}
			defer permit.Release()
			time.Sleep(time.Second)
			served.Add(1)
		})
	}
	requests.Wait()
	fmt.Printf("%d served, %d turned away\n", served.Load(), turnedAway.Load())
}
