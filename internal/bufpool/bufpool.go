// Package bufpool lends buffers for large values, bodies and ranges.
//
// They are pooled by size: class i holds those whose capacity is at least 1<<i.
// A buffer of a megabyte that is allocated anew costs more than to copy a value
// into it, since the kernel has to find its pages. What is not used for a while
// goes back to the garbage collector, as sync.Pool has it.
//
// All functions are safe for concurrent use.
package bufpool

import (
	"math/bits"
	"slices"
	"sync"
)

const (
	smallestClass = 13 // 8 KiB: what is smaller is cheap to allocate
	largestClass  = 24 // 16 MiB: what is larger is rare
)

var pools [largestClass + 1]sync.Pool // of *[]byte

// Get returns a buffer of length 0 that has room for n bytes.
func Get(n int) []byte {
	class := max(smallestClass, bits.Len(uint(max(n-1, 0))))
	if class > largestClass {
		return make([]byte, 0, n)
	}
	if b, ok := pools[class].Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, 1<<class)
}

// Put takes a buffer that nobody refers to any more. It need not come from Get.
func Put(b []byte) {
	class := bits.Len(uint(cap(b))) - 1
	if class >= smallestClass && class <= largestClass {
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
	case len(b)+n < 1<<smallestClass:
		return slices.Grow(b, n)
	}
	return append(Get(len(b)+n), b...)
}
