package httpfront

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each completion is seen once, whatever other signals come at the same time.
func TestParker(t *testing.T) {
	t.Parallel()
	p := newParker()
	rounds := 20_000
	if testing.Short() {
		rounds = 1000
	}
	start := make(chan struct{})
	stop := make(chan struct{})
	var others sync.WaitGroup
	for _, event := range []uint32{timeUp, hungUp} {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					p.signal(event)
				}
			}
		})
	}
	others.Go(func() {
		for range start {
			p.signal(workDone)
		}
	})
	for range rounds {
		start <- struct{}{}
		for p.wait()&workDone == 0 {
		}
	}
	close(start)
	close(stop)
	others.Wait()
	require.Empty(t, p.wake)
	require.Zero(t, p.poll()&workDone)
}
