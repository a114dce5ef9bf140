// Package learned compares laws that learn how many requests run at once: Spillway's, those of
// platinummonkey/go-concurrency-limits and failsafe-go with their defaults, a plain one as a
// yardstick, and numbers that nobody learns. All get the same random resources, with auto in front, in virtual time. The
// table of docs/concurrency.md takes an hour:
//
//	go test ./learned -v -run Table -timeout 3h -from 1 -to 80
package learned
