// Package version says what a program was built from. It is the one place that the
// linker writes to:
//
//	-ldflags '-X github.com/spillway-go/spillway/internal/version.version=v0.1.0
//	          -X github.com/spillway-go/spillway/internal/version.commit=abc1234'
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker, or else empty.
var version, commit string

// Build is what a program was built from.
type Build struct {
	Version string // such as v0.1.0, or "devel" if nothing is known
	Commit  string // or "unknown"
	Go      string // the version of Go
}

// Get returns the build of this program: what the linker set, or else what Go's
// toolchain knows of the module and the clone.
func Get() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return of(version, commit, info)
}

func of(version, commit string, info *debug.BuildInfo) Build {
	var module, revision string
	if info.Main.Version != "(devel)" {
		module = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return Build{
		Version: cmp.Or(version, module, "devel"),
		Commit:  cmp.Or(commit, revision, "unknown"),
		Go:      runtime.Version(),
	}
}

// String returns the build as --version prints it.
func (b Build) String() string {
	return fmt.Sprintf("%s (commit %s, %s)", b.Version, b.Commit, b.Go)
}
