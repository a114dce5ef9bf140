package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOfContent(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Content-Type", "Content-Length", "Content-Encoding", "Content-Disposition", "content-digest", "ETag", "Last-Modified",
		"Cache-Control", "CDN-Cache-Control", "Surrogate-Control", "Expires", "Age", "Accept-Ranges", "Location", "Link",
		"Trailer", "Trailer:Checksum", "X-Accel-Expires", "X-Accel-Redirect", "X-Sendfile", "Edge-Control",
	} {
		require.True(t, OfContent(name), name)
	}
	for _, name := range []string{
		"Vary", "Access-Control-Allow-Origin", "Strict-Transport-Security", "Content-Security-Policy",
		"Content-Security-Policy-Report-Only", "X-Content-Type-Options", "X-Request-Id", "Traceparent", "Server-Timing", "Set-Cookie",
		"Connection", "Date",
	} {
		require.False(t, OfContent(name), name)
	}
}
