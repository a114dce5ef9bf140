//go:build !unix

package main

import "math"

// maxDescriptors returns that there is no limit.
func maxDescriptors() uint64 { return math.MaxUint64 }
