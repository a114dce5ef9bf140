// Package secure holds what guards both planes: TLS from files that may change,
// and bearer tokens.
package secure
