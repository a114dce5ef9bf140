package served

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPathOf(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"":                              "",
		"/v0/entity?id=secret":          "/v0/entity",
		"/a;session=secret?b=c":         "/a",
		"/a%3Fb":                        "/a%3Fb",
		"/" + strings.Repeat("a", 9999): "/" + strings.Repeat("a", longestPath-1),
	} {
		require.Equal(t, want, string(PathOf([]byte(target))))
	}
}

func TestTraceID(t *testing.T) {
	t.Parallel()
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for traceparent, want := range map[string]string{
		"00-" + id + "-" + span + "-01":       id,
		"cc-" + id + "-" + span + "-01-later": id,
		"":                                    "",
		"00-" + id:                            "",
		"00-" + strings.ToUpper(id) + "-" + span + "-01":     "",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01": "",
		"00_" + id + "-" + span + "-01":                      "",
		"00-" + id[:30] + "zz-" + span + "-01":               "",
	} {
		require.Equal(t, want, TraceID([]byte(traceparent)), traceparent)
	}
}
