package deploy_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// platforms are those that a release is for.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

// A release has both programs for every platform, each with an SBOM, the packages, and a checksum
// of every file. A go that builds nothing takes the place of the real one.
func TestRelease(t *testing.T) {
	t.Parallel()
	bin, dist := t.TempDir(), filepath.Join(t.TempDir(), "dist")
	calls := filepath.Join(bin, "calls")
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(`#!/bin/sh
echo "$GOOS/$GOARCH cgo=$CGO_ENABLED $*" >>`+calls+`
case $1 in
build)
	while [ "$1" != -o ]; do shift; done
	echo "program for $GOOS/$GOARCH" >"$2" ;;
run)
	[ "$2" != ./cmd/spillway ] || { echo "printed"; exit; }
	while [ "$1" != -output ]; do shift; done
	echo '{}' >"$2" ;;
-C)
	while [ "$1" != --target ]; do shift; done
	echo "package $ARCH $VERSION of $(cat "$BINARY"), $(gzip -dc "$FILES/spillway.1.gz")" >"$2" ;;
esac
`), 0o700))
	makefile := exec.CommandContext(t.Context(), "make", "-C", "..", "release", "VERSION=v9.9.9", "COMMIT=abc1234", "DIST="+dist)
	makefile.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") || strings.HasPrefix(v, "GO")
	}), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := makefile.CombinedOutput()
	require.NoError(t, err, "%s", out)

	said := read(t, calls)
	sums := read(t, filepath.Join(dist, "SHA256SUMS"))
	for _, platform := range platforms {
		for _, program := range []string{"spillway", "loadtest"} {
			name := program + "-v9.9.9-" + strings.ReplaceAll(platform, "/", "-")
			require.Regexp(t, `(?m)^`+platform+` cgo=0 build -pgo=auto -trimpath .*-X github.com/spillway-go/spillway/internal/version.version=v9.9.9 `+
				`-X github.com/spillway-go/spillway/internal/version.commit=abc1234 -o \S+/`+name+` \./cmd/`+program+`$`, said)
			require.Regexp(t, `(?m)^/ cgo= run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v\S+ bin -json -version v9.9.9 -output \S+/`+name+`\.cdx\.json \S+/`+name+`$`, said)
			require.Equal(t, "program for "+platform+"\n", read(t, filepath.Join(dist, name)))
			for _, file := range []string{name, name + ".cdx.json"} {
				sum := sha256.Sum256([]byte(read(t, filepath.Join(dist, file))))
				require.Contains(t, sums, fmt.Sprintf("%x  %s\n", sum, file))
			}
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, format := range []string{"deb", "rpm"} {
			require.Regexp(t, `(?m) -C deploy/tools tool nfpm package --config \S+/deploy/packages/nfpm.yaml --packager `+format+` --target \S+/spillway-v9.9.9-linux-`+arch+`.`+format+`$`, said)
			name := "spillway-v9.9.9-linux-" + arch + "." + format
			require.Equal(t, "package "+arch+" 9.9.9 of program for linux/"+arch+", printed\n", read(t, filepath.Join(dist, name)))
			sum := sha256.Sum256([]byte(read(t, filepath.Join(dist, name))))
			require.Contains(t, sums, fmt.Sprintf("%x  %s\n", sum, name))
		}
	}
	files, err := os.ReadDir(dist)
	require.NoError(t, err)
	require.Len(t, files, 4*len(platforms)+4+1)
	require.Equal(t, 4*len(platforms)+4, strings.Count(sums, "\n"))
}

// A tag makes the release: once the tests have passed, its programs by make, its text
// from the section of CHANGELOG.md, and then its images for both architectures.
func TestRelease_Workflow(t *testing.T) {
	t.Parallel()
	text := read(t, "../.github/workflows/release.yml")
	var workflow struct {
		On struct {
			Push struct{ Tags []string }
		}
		Permissions map[string]string
		Jobs        map[string]struct {
			Needs       string
			Permissions map[string]string
			Steps       []struct{ Run string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &workflow))
	require.Equal(t, []string{"v*"}, workflow.On.Push.Tags)
	require.Equal(t, map[string]string{"contents": "read"}, workflow.Permissions)

	programs := workflow.Jobs["programs"]
	require.Equal(t, map[string]string{"contents": "write"}, programs.Permissions)
	var steps []string
	for _, step := range programs.Steps {
		if step.Run != "" {
			steps = append(steps, step.Run)
		}
	}
	require.Len(t, steps, 4)
	require.Contains(t, steps[0], `deploy/notes.sh "$GITHUB_REF_NAME"`)
	require.Equal(t, []string{"make test", `make release VERSION="$GITHUB_REF_NAME"`}, steps[1:3])
	require.Contains(t, steps[3], `gh release create "$GITHUB_REF_NAME" `)

	images := workflow.Jobs["images"]
	require.Equal(t, "programs", images.Needs)
	require.Empty(t, images.Permissions)
	require.Contains(t, text, " --platform linux/amd64,linux/arm64 ")
	dockerfile := read(t, "../Dockerfile")
	require.Contains(t, dockerfile, "\nFROM --platform=${BUILDPLATFORM:-linux} golang:", "nothing is emulated")
	require.Contains(t, dockerfile, " GOOS=$TARGETOS GOARCH=$TARGETARCH\n")
	for target, image := range map[string]string{"spillway": "spillway", "loadtest": "spillway-loadtest"} {
		require.Contains(t, text, "build "+target+" "+image+"\n")
		require.Contains(t, dockerfile, "\nFROM scratch AS "+target+"\n")
	}
}

// What a workflow uses of others is named by its commit: a tag can be moved.
func TestWorkflows_Pinned(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ci", "release"} {
		text := read(t, "../.github/workflows/"+name+".yml")
		uses := regexp.MustCompile(`uses: (.*)`).FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, uses)
		for _, u := range uses {
			require.Regexp(t, `^[a-z-]+/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`, u[1], name)
		}
	}
}

// The newest section of CHANGELOG.md is a version, and the notes of a release are what
// stands in its section.
func TestRelease_Notes(t *testing.T) {
	t.Parallel()
	newest := regexp.MustCompile(`(?m)^## (v\d+\.\d+\.\d+)( |$)`).FindStringSubmatch(read(t, "../CHANGELOG.md"))
	require.NotNil(t, newest)
	notes, err := exec.CommandContext(t.Context(), "./notes.sh", newest[1]).Output()
	require.NoError(t, err)
	require.Greater(t, len(notes), 500)
	require.NotContains(t, string(notes), "\n## ")
	out, err := exec.CommandContext(t.Context(), "./notes.sh", "v99.0.0").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "CHANGELOG.md has no section v99.0.0")
	// The chart takes the image of that version.
	chart := read(t, "chart/Chart.yaml")
	require.Contains(t, chart, "\nappVersion: "+newest[1]+"\n")
	require.Contains(t, chart, "\nversion: "+strings.TrimPrefix(newest[1], "v")+"\n")
	// Whoever takes a module in a folder gets the library of the same version with it.
	for _, module := range []string{"admissiongrpc", "admissionotel"} {
		require.Contains(t, read(t, "../admission/"+module+"/go.mod"), "\tgithub.com/spillway-go/spillway "+newest[1]+"\n")
	}
}
