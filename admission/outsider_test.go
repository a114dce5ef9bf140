package admission_test

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	modulePath    = "github.com/spillway-go/spillway"
	moduleVersion = "v0.0.1"
)

// An outsider gets the module from a proxy, builds a program with it and runs it.
func TestOutsider(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	proxy, outside := t.TempDir(), t.TempDir()
	serve(t, root, proxy)
	writeProgram(t, outside)

	// What other modules say they need is in the cache of whoever could build this test. Without paths what is built is
	// in that of the next run.
	env := []string{
		"GOPROXY=file://" + filepath.ToSlash(proxy) + "," + cache(t),
		"GOFLAGS=-mod=mod -modcacherw -trimpath", "GONOSUMDB=*", "GONOSUMCHECK=1", "GOSUMDB=off", "GOPRIVATE=", "GOWORK=off",
		"GOMODCACHE=" + t.TempDir(), "GOTOOLCHAIN=local",
	}
	run(t, outside, env, "go", "mod", "init", "example.com/outside")
	run(t, outside, env, "go", "get", modulePath+"/admission@"+moduleVersion)
	run(t, outside, env, "go", "build", "-o", "outside", ".")
	// On a machine that is not too slow, 8 and 2.
	require.Regexp(t, `^([89]|10) served, [012] turned away\n$`, run(t, outside, env, "./outside"))
}

// Until there is a proxy that has it, the README says what to do beside a clone. Its lines
// of Go compile there.
func TestOutsider_BesideAClone(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	beside := t.TempDir()
	outside := filepath.Join(beside, "try")
	require.NoError(t, os.Mkdir(outside, 0o700))
	require.NoError(t, os.Symlink(root, filepath.Join(beside, "spillway")))
	writeProgram(t, outside)
	lines := blocks(t, "../README.md", "go", "")
	commands := blocks(t, "../README.md", "sh", "go mod edit ")
	require.NoError(t, os.WriteFile(filepath.Join(outside, "readme.go"), fmt.Appendf(nil, `package main

import (
	"net/http"

	"%[1]s/admission"
	"%[1]s/admission/admissionhttp"
)

func serve(mux http.Handler) error {
%[2]s
	return err
}

var _ = serve
`, modulePath, lines[0]), 0o600))
	env := []string{"GOPROXY=" + cache(t), "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local", "GOFLAGS=-trimpath"}
	run(t, outside, env, "go", "mod", "init", "example.com/try")
	require.Regexp(t, `^([89]|10) served, [012] turned away\n$`, run(t, outside, env, "sh", "-ec", commands[0]+"go run ."))
}

// cache is a proxy that has what this machine has downloaded.
func cache(t *testing.T) string {
	t.Helper()
	dir := strings.TrimSpace(run(t, ".", nil, "go", "env", "GOMODCACHE"))
	return "file://" + filepath.ToSlash(filepath.Join(dir, "cache", "download"))
}

// blocks returns the code of that language in a page that begins with those words, at least one piece.
func blocks(t *testing.T, page, language, begins string) (code []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, b := range regexp.MustCompile("(?s)```"+language+"\n("+begins+".*?)```").FindAllStringSubmatch(string(text), -1) {
		code = append(code, b[1])
	}
	require.NotEmpty(t, code, "%s has no %s that begins with %q", page, language, begins)
	return code
}

func writeProgram(t *testing.T, dir string) {
	t.Helper()
	program, err := os.ReadFile("testdata/outsider/main.go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), program, 0o600))
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v: %s", name, args, &stderr)
	return string(out)
}

// serve makes proxy a module proxy of the module in root.
func serve(t *testing.T, root, proxy string) {
	t.Helper()
	dir := filepath.Join(proxy, filepath.FromSlash(modulePath), "@v")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	write := func(name string, text []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	write("list", []byte(moduleVersion+"\n"))
	write(moduleVersion+".info", fmt.Appendf(nil, `{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, moduleVersion))
	write(moduleVersion+".mod", mod)

	file, err := os.Create(filepath.Join(dir, moduleVersion+".zip"))
	require.NoError(t, err)
	defer file.Close()
	archive := zip.NewWriter(file)
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if name != "." && (err == nil || strings.HasPrefix(entry.Name(), ".") || entry.Name() == "data") {
				return fs.SkipDir // another module, or no part of this one
			}
			return nil
		}
		if ext := filepath.Ext(name); ext != ".go" && ext != ".mod" && entry.Name() != "LICENSE" {
			return nil // the program needs nothing else
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w, err := archive.Create(modulePath + "@" + moduleVersion + "/" + filepath.ToSlash(name))
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}))
	require.NoError(t, archive.Close())
}
