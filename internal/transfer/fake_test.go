package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store"
	"github.com/spillway-go/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// source is a Source in memory.
type source struct {
	values map[string]string
	// expires is when they do, of those that do.
	expires map[string]time.Time
	// failAt is the key at which reading fails, "" for none.
	failAt string
	// endAt is the key before which the iteration ends with an error, "" for none.
	endAt string
}

var errDisk = errors.New("the disk fails")

func (s *source) keys() []string { return slices.Sorted(maps.Keys(s.values)) }

func (s *source) After(key []byte) (store.ExpiringIterator, error) {
	keys := s.keys()
	if key != nil {
		i, found := slices.BinarySearch(keys, string(key))
		if found {
			i++
		}
		keys = keys[i:]
	}
	return &iterator{source: s, keys: keys, at: -1}, nil
}

func (s *source) Share(key []byte) (float64, bool) {
	i, _ := slices.BinarySearch(s.keys(), string(key))
	return float64(i+1) / float64(len(s.values)), true
}

// iterator spoils what it has returned when it moves on, as a store may.
type iterator struct {
	source *source
	keys   []string
	at     int
	buffer []byte
	closed bool
}

func (i *iterator) Next() bool {
	for j := range i.buffer {
		i.buffer[j] = 'X'
	}
	i.at++
	return i.at < len(i.keys) && i.keys[i.at] != i.source.endAt
}

func (i *iterator) Entry() (key, value []byte, err error) {
	k := i.keys[i.at]
	i.buffer = []byte(k + i.source.values[k])
	if k == i.source.failAt {
		err = errDisk
	}
	return i.buffer[:len(k)], i.buffer[len(k):], err
}

func (i *iterator) Expires() time.Time { return i.source.expires[i.keys[i.at]] }

func (i *iterator) Err() error {
	if i.at < len(i.keys) {
		return errDisk
	}
	return nil
}

func (i *iterator) Close() error {
	if i.closed {
		return errors.New("closed twice")
	}
	i.closed = true
	return nil
}

// cell is a value in a target, or what was deleted.
type cell struct {
	value   string
	ttl     uint32
	stamp   int64
	deleted bool
}

// target is a Target in memory, which keeps what has the latest timestamp.
type target struct {
	// before is called before each operation has its effect; an error is what it
	// answers then, without one. Nil means nothing happens.
	before func(key string, write bool) error

	mu       sync.Mutex
	cells    map[string]cell
	acked    map[string]bool
	puts     int
	gets     int
	flying   int
	mostEver int
}

func newTarget() *target { return &target{cells: map[string]cell{}, acked: map[string]bool{}} }

func (t *target) begin(key []byte, write bool) error {
	t.mu.Lock()
	t.flying++
	t.mostEver = max(t.mostEver, t.flying)
	if write {
		t.puts++
	} else {
		t.gets++
	}
	t.mu.Unlock()
	if t.before == nil {
		return nil
	}
	return t.before(string(key), write)
}

// begun returns how many writes have begun.
func (t *target) begun() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.puts
}

func (t *target) setLocked(key string, c cell) {
	if old, ok := t.cells[key]; !ok || c.stamp > old.stamp || c.stamp == old.stamp && c.value > old.value {
		t.cells[key] = c
	}
}

func (t *target) PutStamped(key, value []byte, ttl uint32, stamp int64) error {
	err := t.begin(key, true)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flying--
	if err == nil || errors.Is(err, errHalf) {
		t.setLocked(string(key), cell{value: string(value), ttl: ttl, stamp: stamp})
	}
	if err == nil {
		t.acked[string(key)] = true
	}
	return err
}

// errHalf is of a write that has had its effect nevertheless.
var errHalf = errors.New("who knows")

func (t *target) GetStamped(dst, key []byte) ([]byte, int64, error) {
	err := t.begin(key, false)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flying--
	if err != nil {
		return dst, 0, err
	}
	c, ok := t.cells[string(key)]
	if !ok || c.deleted {
		return dst, 0, store.ErrNotFound
	}
	return append(dst, c.value...), c.stamp, nil
}

// holds returns the values by key.
func (t *target) holds() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	values := map[string]string{}
	for k, c := range t.cells {
		if !c.deleted {
			values[k] = c.value
		}
	}
	return values
}

// entries returns so many keys of any bytes with values, some of them empty.
func entries(rng *rand.Rand, n int) map[string]string {
	values := map[string]string{}
	for len(values) < n {
		key := make([]byte, 1+rng.IntN(5))
		for i := range key {
			key[i] = byte(rng.Uint32())
		}
		values[string(key)] = strings.Repeat(fmt.Sprint(len(values)), rng.IntN(3))
	}
	return values
}

// moment is before the clock of a test begins, within synctest as well.
var moment = time.Date(1999, 12, 31, 12, 0, 0, 123456000, time.UTC)

// newJob returns a copy with a state file of its own.
func newJob(t *testing.T, from map[string]string, to *target) *Job {
	t.Helper()
	return &Job{
		Source:   &source{values: from},
		Target:   to,
		Identity: Identity{From: "here", Source: "s1", To: "there", Target: "t1"},
		Moment:   moment,
		State:    filepath.Join(t.TempDir(), "state"),
		InFlight: 4,
	}
}

// requireDone asserts that a copy has been made and verified, as far as the Result
// tells.
func requireDone(t *testing.T, r Result, from map[string]string) {
	t.Helper()
	bytes := 0
	for k, v := range from {
		bytes += len(k) + len(v)
	}
	require.EqualValues(t, len(from), r.Verified.Keys)
	require.EqualValues(t, bytes, r.Verified.Bytes)
	require.Zero(t, r.Verified.Different)
	require.Empty(t, r.Verified.Differences)
}

// dawdle returns a function that waits for a random time, up to most.
func dawdle(rng *rand.Rand, most time.Duration) func() {
	var mu sync.Mutex
	return func() {
		mu.Lock()
		pause := time.Duration(rng.Int64N(int64(most)))
		mu.Unlock()
		time.Sleep(cmp.Or(pause, 1))
	}
}
