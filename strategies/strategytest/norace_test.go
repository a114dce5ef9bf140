//go:build !race

package strategytest

const raced = false
