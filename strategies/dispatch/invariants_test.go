//go:build race || invariants

package dispatch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What breaks an invariant of the package comment is found.
func TestInvariants_AreAsserted(t *testing.T) {
	t.Parallel()
	lend := func() (*Places, *Task) {
		d, err := Lend(Options{Strategy: "fifo", Workers: 2, Grant: func(*Task) {}})
		require.NoError(t, err)
		held := request("held", 1)
		require.True(t, d.Acquire(held))
		return d, held
	}
	for _, tc := range []struct {
		name   string
		breaks func()
		want   string
	}{
		{"places given back twice", func() {
			d, task := lend()
			d.Release(task)
			d.Release(task)
		}, "a task changes hands to where it is already"},
		{"more places free than there are", func() {
			d, _ := lend()
			d.only().free.Store(3)
			d.assertLocked()
		}, "3 places free and 0 gathered, of 2"},
		{"a task that is not the submitter's", func() {
			d, task := lend()
			d.Acquire(task)
		}, "a task changes hands to where it is already"},
		{"places gathered for nobody", func() {
			d, _ := lend()
			d.only().free.Store(0)
			d.gathering.has = 1
			d.assertLocked()
		}, "1 places gathered; for a task: false"},
		{"a worker on the stack twice", func() {
			var s idleStack
			w := new(worker)
			s.push(w)
			s.push(w)
		}, "a worker is on the stack twice"},
		{"a worker taken off the stack that is counted no more", func() {
			var s idleStack
			w := new(worker)
			s.push(w)
			s.n.Store(0)
			s.remove(w)
		}, "-1 workers on the stack"},
		{"a task in a line twice", func() {
			var l line
			task := new(Task)
			l.push(task)
			l.push(task)
		}, "a task is in a line twice"},
		{"a turn of writes that ends twice", func() { new(workers).endWriting() }, "-1 turns of writes"},
		{"stuck tasks beside a number that is given", func() {
			d, _ := lend()
			d.only().limit.stuck.Store(1)
			d.only().limit.assertLocked(2)
		}, "given: 2, 1 stuck"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			defer func() { require.ErrorContains(t, recover().(error), tc.want) }()
			tc.breaks()
		})
	}
}
