package version

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	t.Parallel()
	info := func(module string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: module}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123abc"}
	for name, test := range map[string]struct {
		version, commit string
		info            *debug.BuildInfo
		want            string
	}{
		"the linker knows best":         {"v1.2.3", "abc1234", info("v0.0.1", revision), "v1.2.3 (commit abc1234, "},
		"go install knows the module":   {"", "", info("v0.0.1"), "v0.0.1 (commit unknown, "},
		"go build in a clone":           {"", "", info("v0.0.2-0.2026+dirty", revision), "v0.0.2-0.2026+dirty (commit 0123abc, "},
		"go build without the history":  {"", "", info("(devel)"), "devel (commit unknown, "},
		"nothing is known of the build": {"", "", info(""), "devel (commit unknown, "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want+runtime.Version()+")", of(test.version, test.commit, test.info).String())
		})
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	b := Get()
	require.NotEmpty(t, b.Version)
	require.NotEmpty(t, b.Commit)
	require.Equal(t, runtime.Version(), b.Go)
}
