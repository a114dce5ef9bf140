// Package secure holds what guards both planes: TLS from files that may change,
// and bearer tokens, the files that hold such things, and what errors may say of them.
package secure
