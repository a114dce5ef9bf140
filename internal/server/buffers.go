package server

import (
	"math/bits"
	"sync"
)

// Buffers of large values and ranges are pooled by size: class i holds those
// whose capacity is at least 1<<i. What is not used for a while goes back to
// the garbage collector, as sync.Pool has it.
const (
	smallestClass = 13 // 8 KiB: what is smaller lies in an exchange
	largestClass  = 24 // 16 MiB: what is larger is rare
)

var bufferPools [largestClass + 1]sync.Pool // of *[]byte

// getBuffer returns a buffer of length 0 that has room for n bytes.
func getBuffer(n int) *[]byte {
	class := max(smallestClass, bits.Len(uint(max(n-1, 0))))
	if class > largestClass {
		b := make([]byte, 0, n)
		return &b
	}
	if b, ok := bufferPools[class].Get().(*[]byte); ok {
		*b = (*b)[:0]
		return b
	}
	b := make([]byte, 0, 1<<class)
	return &b
}

// putBuffer takes a buffer that nobody refers to any more.
func putBuffer(b *[]byte) {
	class := bits.Len(uint(cap(*b))) - 1
	if class >= smallestClass && class <= largestClass {
		bufferPools[class].Put(b)
	}
}
