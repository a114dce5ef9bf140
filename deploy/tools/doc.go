// Package tools has no code. Its module names the programs, each at a version, by which packages,
// charts and lists of components are made and checked: go -C deploy/tools tool NAME. Nothing else
// depends on what they depend on.
package tools
