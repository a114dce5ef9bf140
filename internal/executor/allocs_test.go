//go:build !race

// The race detector makes pools forget.

package executor

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Nothing is allocated per operation once the pools are warm.
func TestExecutor_AllocatesNothing(t *testing.T) {
	e := Open(Options{Store: nullStore{}})
	defer e.Close()
	var completed atomic.Int64
	done := func(*dispatch.Task) { completed.Add(1) }
	tasks := make([]*dispatch.Task, 8)
	for i := range tasks {
		op := putOp(fmt.Sprint(i), "v")
		tasks[i] = &dispatch.Task{Payload: &op}
	}
	get := getOp("a")
	get.Buf = make([]byte, 0, 16)
	read := []*dispatch.Task{{Payload: &get}}
	require.Zero(t, testing.AllocsPerRun(1000, func() { e.Run(tasks, done) }))
	require.Zero(t, testing.AllocsPerRun(1000, func() { get.Buf = get.Buf[:0]; e.Run(read, done) }))
}

// nullStore does nothing.
type nullStore struct{ store.Store }

func (nullStore) Get(dst, _ []byte) ([]byte, store.Meta, error) {
	return append(dst, 'x'), store.Meta{}, nil
}
func (nullStore) Apply([]store.Write) (store.Commit, error) { return nil, nil }
