// Package caches compares the cache of values with what a user of Go would take from a
// library instead, by benchmarks: time and allocations of a hit, and how many reads hit
// in the same bytes. docs/decisions/2026-11-22-value-cache.md has the table.
package caches
