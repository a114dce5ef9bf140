//go:build integration

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// binaries is the folder of the built binaries.
var binaries string

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "spillway-integration-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(patientMain{m}, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(binaries)
		os.Exit(code)
	}))
}

// patientMain gives the goroutines that the last tests have told to end, such as those of
// connections, time to do so on a busy machine: goleak waits for a second.
type patientMain struct{ *testing.M }

func (m patientMain) Run() int {
	code := m.M.Run()
	for begin := time.Now(); goleak.Find() != nil && time.Since(begin) < patience; {
	}
	return code
}

// build returns the path of a binary, having built it if need be.
type build func() (string, error)

var (
	// raced is the service with the race detector. Data races that it finds fail
	// the test that has started it.
	raced build = sync.OnceValues(func() (string, error) { return compile("spillway", "spillway-race", "-race") })
	// plain is the service as users run it: where CPU time is measured, and
	// where speed finds more.
	plain build = sync.OnceValues(func() (string, error) { return compile("spillway", "spillway") })
	// labBinary is the load lab.
	labBinary build = sync.OnceValues(func() (string, error) { return compile("loadtest", "loadtest") })
)

// compile builds cmd/<command> under another name.
func compile(command, name string, flags ...string) (string, error) {
	path := filepath.Join(binaries, name)
	args := append([]string{"build", "-o", path}, flags...)
	out, err := exec.Command("go", append(args, "github.com/spillway-go/spillway/cmd/"+command)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", command, err, out)
	}
	return path, nil
}

// longer returns the number in an environment variable that makes a test
// longer, or otherwise its normal value.
func longer(t *testing.T, variable string, normal int) int {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return normal
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, want a number above 0", variable, s)
	}
	return n
}

// seedOr returns the seed in SPILLWAY_TORTURE_SEED, to run a failed test again, or
// otherwise the given one.
func seedOr(t *testing.T, random uint64) uint64 {
	t.Helper()
	s := os.Getenv("SPILLWAY_TORTURE_SEED")
	if s == "" {
		return random
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("SPILLWAY_TORTURE_SEED is %q, want a number", s)
	}
	return seed
}
