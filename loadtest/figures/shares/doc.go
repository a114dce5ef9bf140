// Package shares tests that fair shares the time of workers among tenants, in virtual time, and
// compares it with other ways to share them: how much of the time each tenant gets, how much is
// answered in time, and how long one waits who asks for less than its share. Its tables, in
// Markdown, are those of docs/strategies.md:
//
//	go test -v -run TestReport ./loadtest/figures/shares -args -seconds 600 -seeds 3
package shares
