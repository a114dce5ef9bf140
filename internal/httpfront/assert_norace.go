//go:build !race

package httpfront

func assert(bool, string) {}
