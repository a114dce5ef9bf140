package concurrency_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

func TestLaw_MayBeToldByManyAtOnce(t *testing.T) {
	t.Parallel()
	law, err := concurrency.New(concurrency.Options{Max: 100})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range int64(2_000) {
				now := i*1e6 + r.Int64N(1e6)
				law.Completed(concurrency.Sample{Now: now, Began: now - r.Int64N(1e7), Running: 4, Waiting: true})
				_, _ = law.Limit(), law.Why()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, law.Limit(), 100)
}
