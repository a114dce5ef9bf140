//go:build race || invariants

package dispatch

const asserting = true
