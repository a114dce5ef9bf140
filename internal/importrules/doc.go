// Package importrules has the test that the import rules of .golangci.yml are kept: each
// is broken once, and golangci-lint has to notice.
package importrules
