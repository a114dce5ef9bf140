//go:build integration

package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// dockerPatience bounds a docker command. Building the image compiles
// everything anew, which took 8 minutes on a machine that others load.
const dockerPatience = 30 * time.Minute

// engine is a Docker engine of the test's own. It knows no image but those that
// are made here, under names that would mean others to the machine's engine.
type engine struct {
	env     []string
	network *os.File // the namespace that its published ports are in
}

// startEngine starts dockerd in a network of its own: neither the ports nor the
// firewall of the machine know of it, and another engine is not disturbed.
func startEngine(t *testing.T) *engine {
	t.Helper()
	for _, program := range []string{"dockerd", "docker", "docker-compose", "haproxy", "ip", "ldd", "prometheus"} {
		_, err := exec.LookPath(program)
		require.NoError(t, err, "%s is missing: make deps", program)
	}
	folder := t.TempDir()
	socket := "unix://" + filepath.Join(folder, "docker.sock")
	e := &engine{env: append(os.Environ(), "DOCKER_HOST="+socket, "DOCKER_BUILDKIT=0", "DOCKER_CONTEXT=",
		"DOCKER_CONFIG="+filepath.Join(folder, "config"))}
	log := new(output)
	daemon := exec.Command("sh", "-c", `ip link set lo up && exec dockerd "$@"`, "dockerd",
		"--host", socket, "--log-level", "warn",
		"--data-root", filepath.Join(folder, "data"), "--exec-root", filepath.Join(folder, "exec"), "--pidfile", filepath.Join(folder, "pid"),
		"--containerd-namespace", "spillway-test", "--containerd-plugins-namespace", "spillway-test-plugins")
	daemon.Stdout, daemon.Stderr = log, log
	daemon.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	exited := make(chan struct{})
	require.NoError(t, startProcess(daemon, syscall.SIGTERM, exited), "dockerd takes root")
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", daemon.Process.Pid))
	require.NoError(t, err)
	e.network = network
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		<-exited
		_ = network.Close()
		if t.Failed() {
			t.Logf("dockerd said:\n%s", tail(log.String(), 8<<10))
		}
	})
	e.eventually(t, "the engine answers", func() bool {
		select {
		case <-exited:
			t.Fatalf("dockerd does not start here (it takes root, cgroups and namespaces):\n%s", tail(log.String(), 4<<10))
		default:
		}
		_, err := e.try("docker", "info")
		return err == nil
	})
	return e
}

// try runs a command against the engine and returns what it writes to stdout.
// It is run in the repository's root.
func (e *engine) try(command ...string) (string, error) {
	return e.pipe(nil, command...)
}

func (e *engine) pipe(stdin io.Reader, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = ".."
	cmd.Env = e.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(command, " "), errors.Join(err, ctx.Err()), tail(stdout.String(), 4<<10), tail(stderr.String(), 4<<10))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// do runs a command against the engine and expects it to succeed.
func (e *engine) do(t testing.TB, command ...string) string {
	t.Helper()
	out, err := e.try(command...)
	require.NoError(t, err)
	return out
}

// dial connects to a port that the engine has published.
func (e *engine) dial(_ context.Context, network, addr string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(e.network.Fd()), unix.CLONE_NEWNET); err != nil {
			dialed <- result{nil, err}
			return
		}
		conn, err := net.DialTimeout(network, addr, patience)
		dialed <- result{conn, err}
	}()
	r := <-dialed
	return r.conn, r.err
}

// inspect returns what a template makes of an image or a container.
func (e *engine) inspect(t testing.TB, name, template string) string {
	t.Helper()
	return e.do(t, "docker", "inspect", "--format", template, name)
}

// eventually polls a condition until it holds.
func (e *engine) eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(4 * patience) // several commands of an engine on a machine that does much else
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("waited %v for: %s", 4*patience, what)
		case <-tick.C:
		}
	}
}

// importImage makes an image of files: what is to be at a path of the image, by
// the path on this machine. Folders are taken whole but for what skip names;
// programs get the libraries that they need. changes are instructions as in a
// Dockerfile.
func (e *engine) importImage(t *testing.T, name string, changes []string, files map[string]string, skip func(path string) bool) {
	t.Helper()
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(writeTar(w, files, skip)) }()
	command := []string{"docker", "import"}
	for _, change := range changes {
		command = append(command, "--change", change)
	}
	_, err := e.pipe(r, append(command, "-", name)...)
	_ = r.CloseWithError(err) // so that the writer ends in any case
	require.NoError(t, err)
}

func writeTar(w io.Writer, files map[string]string, skip func(path string) bool) error {
	archive := tar.NewWriter(w)
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return err
	}
	all := make(map[string]string)
	for at, from := range files {
		all[at] = from
		for _, library := range libraries(from) {
			all[library] = library
		}
	}
	for at, from := range all {
		from, err := filepath.EvalSymlinks(from)
		if err != nil {
			return err
		}
		err = filepath.WalkDir(from, func(p string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case skip(p) && entry.IsDir():
				return fs.SkipDir
			case skip(p) || !entry.IsDir() && !entry.Type().IsRegular():
				return nil
			}
			return appendTar(archive, path.Join(at, strings.TrimPrefix(p, from)), p)
		})
		if err != nil {
			return err
		}
	}
	return archive.Close()
}

// appendTar writes a file, or a folder without what is in it.
func appendTar(archive *tar.Writer, at, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	header.Name = strings.TrimPrefix(at, "/")
	if info.IsDir() {
		header.Name += "/"
		return archive.WriteHeader(header)
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, f)
	return err
}

// libraries returns what a program is linked with; nothing if it is static, or
// no program.
func libraries(program string) (paths []string) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil
	}
	for field := range strings.FieldsSeq(string(out)) {
		if path.IsAbs(field) {
			paths = append(paths, strings.TrimSuffix(field, ":"))
		}
	}
	return paths
}

// importGo makes golang:1.26, which cannot be pulled everywhere, of what the
// Dockerfile needs of it: this machine's Go, a shell, mkdir, and a module proxy
// that is a folder with the modules of go.mod.
func (e *engine) importGo(t *testing.T) {
	t.Helper()
	var goroot struct{ GOROOT, GOMODCACHE string }
	require.NoError(t, json.Unmarshal([]byte(e.do(t, "go", "env", "-json", "GOROOT", "GOMODCACHE")), &goroot))
	proxy := filepath.Join(goroot.GOMODCACHE, "cache", "download")
	zips := make(map[string]bool)
	modules := json.NewDecoder(strings.NewReader(e.do(t, "go", "mod", "download", "-json")))
	for {
		var module struct{ Zip string }
		err := modules.Decode(&module)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		zips[module.Zip] = true
	}
	e.importImage(t, "golang:1.26",
		// Without the profile the programs are built in half the time.
		[]string{"ENV PATH=/usr/local/go/bin:/bin HOME=/root GOPROXY=file:///proxy GOSUMDB=off GOTOOLCHAIN=local GOFLAGS=-pgo=off"},
		map[string]string{
			"/bin/sh": "/bin/sh", "/bin/mkdir": "/bin/mkdir", "/usr/local/go": goroot.GOROOT, "/proxy": proxy,
		},
		func(p string) bool {
			return p == filepath.Join(goroot.GOROOT, "test") || p == filepath.Join(proxy, "sumdb") ||
				path.Ext(p) == ".zip" && strings.HasPrefix(p, proxy) && !zips[p]
		})
}
