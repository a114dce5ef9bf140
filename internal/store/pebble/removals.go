package pebble

import (
	"slices"
	"sync"
)

// removals keeps tables that an instance wants to remove for as long as a
// replaced one may still read them.
type removals struct {
	mu    sync.Mutex
	holds int
	names []string
}

// hold keeps tables until release.
func (r *removals) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds++
}

// release ends one hold. After the last it returns what can be removed now.
func (r *removals) release() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds--; r.holds == 0 {
		names, r.names = r.names, nil
	}
	return names
}

// later notes a table, and reports whether it is to be kept for now.
func (r *removals) later(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds == 0 {
		return false
	}
	// Each instance that is opened meanwhile finds it. It must be removed once, as
	// there may be another table of that name then.
	if !slices.Contains(r.names, name) {
		r.names = append(r.names, name)
	}
	return true
}
