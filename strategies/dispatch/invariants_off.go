//go:build !race && !invariants

package dispatch

const asserting = false

func assert(bool, string, ...any) {}

func counts(int64, string) {}

type phase struct{}

func (*phase) becomes(bool) {}
