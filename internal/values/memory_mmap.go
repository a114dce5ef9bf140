//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package values

import "syscall"

// OutsideHeap says whether the memory of a Cache is unknown to the garbage collector and
// its limit.
const OutsideHeap = true

// allocate returns zeroed memory, which takes none of the machine until it is used.
func allocate(n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	return syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

func release(memory []byte) {
	if memory != nil {
		_ = syscall.Munmap(memory)
	}
}
