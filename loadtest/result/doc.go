// Package result is what becomes of the requests of a load: a [Tally] counts it, a
// [Result] holds it, which is saved as JSON, written out as text and judged by an
// [Assertion].
package result
