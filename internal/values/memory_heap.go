//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package values

import "errors"

// OutsideHeap says whether the memory of a Cache is unknown to the garbage collector and
// its limit.
const OutsideHeap = false

// allocate returns zeroed memory, in one piece, in which the collector has nothing to
// look for.
func allocate(n int64) (memory []byte, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("out of memory")
		}
	}()
	return make([]byte, n), nil
}

func release([]byte) {}
