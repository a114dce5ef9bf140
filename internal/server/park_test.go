package server

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each completion is seen once, whatever other signals come at the same time.
func TestParker(t *testing.T) {
	t.Parallel()
	p := newParker()
	const rounds = 20_000
	start := make(chan struct{})
	stop := make(chan struct{})
	var others sync.WaitGroup
	for _, event := range []uint32{timeUp, halfGone} {
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
			p.signal(taskDone)
		}
	})
	for range rounds {
		start <- struct{}{}
		for p.wait()&taskDone == 0 {
		}
	}
	close(start)
	close(stop)
	others.Wait()
	require.Empty(t, p.wake)
	require.Zero(t, p.poll()&taskDone)
}

func TestBuffers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 8 << 10, 8<<10 + 1, 1 << 20, 1 << 24, 1<<24 + 1} {
		b := getBuffer(n)
		require.Empty(t, *b)
		require.GreaterOrEqual(t, cap(*b), n)
		putBuffer(b)
	}
	odd := make([]byte, 0, 10_000) // goes to the class of 8 KiB
	putBuffer(&odd)
	require.GreaterOrEqual(t, cap(*getBuffer(10_000)), 10_000)
}
