package wire

import "strings"

// OfContent reports whether a header describes the content of an answer, for how long it may
// be kept, or where it is. A refusal has other content, and nobody may keep it, so that it
// carries none that was set for a good answer. What holds for any answer stays: CORS, Vary,
// security, tracing, and cookies, as whoever set one may have changed what it stands for.
func OfContent(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "accept-ranges", "age", "digest", "edge-control", "etag", "expires", "last-modified", "link", "location", "pragma",
		"refresh", "repr-digest", "surrogate-control", "surrogate-key", "trailer", "warning",
		"x-accel-expires", "x-accel-redirect", "x-sendfile": // by which proxies keep or replace an answer
		return true
	}
	return strings.HasSuffix(name, "cache-control") || strings.HasPrefix(name, "trailer:") ||
		strings.HasPrefix(name, "content-") && !strings.HasPrefix(name, "content-security-policy")
}
