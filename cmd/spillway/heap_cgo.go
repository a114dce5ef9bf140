//go:build cgo

package main

// cacheOutsideHeap says whether Pebble allocates its cache with C's malloc.
const cacheOutsideHeap = true
