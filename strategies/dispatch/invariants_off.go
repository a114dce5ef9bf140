//go:build !race && !invariants

package dispatch

const asserting = false

func assert(bool, string, ...any) {}

type phase struct{}

func (*phase) becomes(bool) {}
