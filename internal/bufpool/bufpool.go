// Package bufpool lends buffers for large values, bodies and ranges.
//
// They are pooled by size. There are four sizes to each power of two, so that a
// buffer is at most a quarter larger than asked for: budgets count the bytes of
// clients, not of buffers. To allocate a megabyte costs more than to copy a value
// into it, since the kernel has to find its pages. Unused buffers go back to the
// garbage collector, as sync.Pool has it.
//
// All functions are safe for concurrent use.
package bufpool

import (
	"math/bits"
	"slices"
	"sync"
)

const (
	smallest = 4 << 10  // what is smaller is cheap to allocate
	largest  = 16 << 20 // what is larger is rare
)

// Class i holds buffers of (4+i%4)/4 * 2^(i/4) * smallest bytes.
var pools [4*(24-12) + 1]sync.Pool // of *[]byte

// classBelow returns the largest class whose buffers have at most n bytes, where
// n is at least smallest.
func classBelow(n int) int {
	shift := bits.Len(uint(n)) - 3
	return 4*(shift-10) + n>>shift - 4
}

// sizeOf returns how many bytes the buffers of a class have.
func sizeOf(class int) int { return (4 + class%4) << (10 + class/4) }

// Get returns a buffer of length 0 that has room for n bytes.
func Get(n int) []byte {
	if n < smallest || n > largest {
		return make([]byte, 0, n)
	}
	class := classBelow(n)
	if sizeOf(class) < n {
		class++
	}
	if b, ok := pools[class].Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, sizeOf(class))
}

// Put takes a buffer that nobody refers to any more. It need not come from Get;
// one of a size that Get does not give is left to the garbage collector.
func Put(b []byte) {
	n := cap(b)
	if n < smallest || n > largest {
		return
	}
	if class := classBelow(n); sizeOf(class) == n {
		pooled := b // moves to the heap, and only here
		pools[class].Put(&pooled)
	}
}

// Grow returns b with room for n more bytes: b itself if it has it, or a buffer
// from Get with the same content. The caller, and whoever else refers to b, keeps
// b.
func Grow(b []byte, n int) []byte {
	switch free := cap(b) - len(b); {
	case free >= n:
		return b
	case len(b)+n < smallest:
		return slices.Grow(b, n)
	}
	return append(Get(len(b)+n), b...)
}
