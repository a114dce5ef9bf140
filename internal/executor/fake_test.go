package executor

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/spillway-go/spillway/internal/etag"
	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// fake is a store whose commits end when the test says so.
type fake struct {
	durable bool // Apply hands back commits

	step sync.Mutex // held by who applies

	mu         sync.Mutex
	data       map[string]string
	commits    []*fakeCommit
	batches    [][]store.Write // copies of what was applied
	applyErr   error
	getErr     map[string]error // by key
	unwritable error
	stalled    bool
	panics     bool
	badEnd     bool   // iterators panic when they are closed
	onGet      func() // called after each Get has read
	open       int    // iterators
}

var _ store.Store = (*fake)(nil)

type fakeCommit struct{ result chan error }

func (c *fakeCommit) Wait() error { return <-c.result }

func newFake(durable bool) *fake {
	return &fake{durable: durable, data: make(map[string]string)}
}

func (f *fake) Get(dst, key []byte) ([]byte, store.Meta, error) {
	f.mu.Lock()
	v, ok := f.data[string(key)]
	panics, onGet, err := f.panics, f.onGet, f.getErr[string(key)]
	f.mu.Unlock()
	if err != nil {
		return dst, store.Meta{}, err
	}
	if panics {
		panic("get")
	}
	if onGet != nil {
		onGet()
	}
	if !ok {
		return dst, store.Meta{}, store.ErrNotFound
	}
	return append(dst, v...), store.Meta{}, nil
}

func (f *fake) View(read func(store.View) error) error { return read(fakeView{f}) }

type fakeView struct{ *fake }

func (v fakeView) Get(key []byte) ([]byte, store.Meta, error) { return v.fake.Get(nil, key) }

func (v fakeView) Stat(key []byte) (store.Meta, error) {
	value, m, err := v.Get(key)
	if err == nil && m.Tag.IsZero() {
		m.Tag = etag.Of(value)
	}
	return m, err
}

func (f *fake) Transact(_ []store.Look, decide func(store.View) ([]store.Write, error)) (store.Commit, error) {
	f.step.Lock()
	defer f.step.Unlock()
	writes, err := decide(fakeView{f})
	if err != nil || len(writes) == 0 {
		return nil, err
	}
	return f.apply(writes)
}

func (f *fake) Apply(writes []store.Write) (store.Commit, error) {
	f.step.Lock()
	defer f.step.Unlock()
	return f.apply(writes)
}

func (f *fake) apply(writes []store.Write) (store.Commit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics {
		panic("apply")
	}
	if f.applyErr != nil {
		return nil, f.applyErr
	}
	var batch []store.Write
	for _, w := range writes {
		batch = append(batch, store.Write{Key: bytes.Clone(w.Key), Value: bytes.Clone(w.Value), Delete: w.Delete, TTL: w.TTL})
		if w.Delete {
			delete(f.data, string(w.Key))
		} else {
			f.data[string(w.Key)] = string(w.Value)
		}
	}
	f.batches = append(f.batches, batch)
	if !f.durable {
		return nil, nil
	}
	c := &fakeCommit{result: make(chan error, 1)}
	f.commits = append(f.commits, c)
	return c, nil
}

func (f *fake) Range(start, end []byte, descending bool) (store.Iterator, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics {
		panic("range")
	}
	it := &fakeIter{fake: f, at: -1}
	for _, k := range slices.Sorted(maps.Keys(f.data)) {
		if k >= string(start) && (len(end) == 0 || k < string(end)) {
			it.keys = append(it.keys, k)
			it.values = append(it.values, f.data[k])
		}
	}
	if descending {
		slices.Reverse(it.keys)
		slices.Reverse(it.values)
	}
	f.open++
	return it, nil
}

func (f *fake) Writable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unwritable
}

func (f *fake) Stalled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stalled
}

func (f *fake) Close() error { return nil }

func (f *fake) set(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// end ends commit i, counted from the first.
func (f *fake) end(i int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits[i].result <- err
}

func (f *fake) iterators() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

type fakeIter struct {
	fake         *fake
	keys, values []string
	at           int
	err          error // reported after the last entry
	closed       bool
}

func (i *fakeIter) Next() bool { i.at++; return i.at < len(i.keys) }
func (i *fakeIter) Entry() (key, value []byte, err error) {
	return []byte(i.keys[i.at]), []byte(i.values[i.at]), nil
}
func (i *fakeIter) Err() error { return i.err }
func (i *fakeIter) Close() error {
	if i.closed {
		panic("closed twice")
	}
	i.closed = true
	i.fake.mu.Lock()
	defer i.fake.mu.Unlock()
	i.fake.open--
	if i.fake.badEnd {
		panic("close")
	}
	return nil
}

// call is a task under way.
type call struct {
	task dispatch.Task
	op   Op
	done chan struct{}
}

func newCall(op Op) *call {
	c := &call{op: op, done: make(chan struct{}, 1)}
	c.task.Payload = &c.op
	c.task.Strategy = "fifo"
	c.task.Done = func(*dispatch.Task) { c.done <- struct{}{} }
	return c
}

func getOp(k string) Op    { return Op{Kind: Get, Key: []byte(k)} }
func putOp(k, v string) Op { return Op{Kind: Put, Key: []byte(k), Value: []byte(v)} }
func delOp(k string) Op    { return Op{Kind: Delete, Key: []byte(k)} }
func rangeOp(start, end string) Op {
	return Op{Kind: Range, Key: []byte(start), End: []byte(end), Encode: encode}
}

func encode(dst, key, value []byte) []byte {
	dst = append(append(dst, key...), '=')
	return append(append(dst, value...), ';')
}

func finish(t *dispatch.Task) { t.Done(t) }

// run runs the operations as one turn of a worker.
func run(e *Executor, ops ...Op) []*call {
	calls := make([]*call, len(ops))
	tasks := make([]*dispatch.Task, len(ops))
	for i, op := range ops {
		calls[i] = newCall(op)
		tasks[i] = &calls[i].task
	}
	e.Run(tasks, finish)
	clear(tasks) // the slice is not kept
	return calls
}

func run1(e *Executor, op Op) *call { return run(e, op)[0] }

func tasksOf(calls ...*call) (tasks []*dispatch.Task) {
	for _, c := range calls {
		tasks = append(tasks, &c.task)
	}
	return tasks
}

// wait waits until the call is completed.
func (c *call) wait(t testing.TB) *Op {
	t.Helper()
	<-c.done
	return &c.op
}

// pending reports that the call is not completed. Nothing can complete it at
// the moment but what the test does next.
func (c *call) pending() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}
