package httpfront

import "sync/atomic"

// budget bounds the bodies that are being read or wait, in bytes, over all
// connections. It never makes anybody wait.
type budget struct{ left atomic.Int64 }

// take reserves n bytes, and reports whether they were left.
func (b *budget) take(n int64) bool {
	for {
		left := b.left.Load()
		if left < n {
			return false
		}
		if b.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

// give returns n bytes.
func (b *budget) give(n int64) { b.left.Add(n) }
