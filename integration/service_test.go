//go:build integration

package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/metrics/metricstest"
)

// patience bounds every wait of the tests. It is far longer than anything takes
// on a slow machine, and only ends what would never end.
const patience = 90 * time.Second

// service is a running process.
type service struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *output
	exited chan struct{} // closed when the process has ended
	scheme string
	data   string // address of the data plane
	admin  string // address of the admin plane
	http   *http.Client
}

// output collects what a process writes.
type output struct {
	mu   sync.Mutex // nothing is read from the process while it is held
	text bytes.Buffer
	gone bool // the process loses its reader
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return 0, io.ErrClosedPipe
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// cacheSizes are settings of the cache on which no answer may depend: the values have
// none, one that evicts all the time, and one that holds what tests write.
var cacheSizes = []string{"SPILLWAY_CACHE_BYTES=1", "SPILLWAY_CACHE_BYTES=10000", "SPILLWAY_CACHE_BYTES=16MB"}

// environment returns the environment of a service: free ports, a data folder
// that goes with the test, and what is asked for, which wins. Nobody is refused for
// being late unless a test sets an objective, as a slow machine would be an overload.
func environment(t testing.TB, env []string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + t.TempDir(),
		"GORACE=atexit_sleep_ms=0",
		"SPILLWAY_LISTEN=127.0.0.1:0",
		"SPILLWAY_ADMIN_LISTEN=127.0.0.1:0",
		"SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data"),
		"SPILLWAY_CACHE_BYTES=16MB",
		"SPILLWAY_DRAIN_TIMEOUT=60s",
		"SPILLWAY_LOG_FORMAT=json",
		"SPILLWAY_SLO=none",
	}, env...)
}

// startProcess starts a process that does not outlive the tests: the kernel sends
// it that signal when the thread ends that has started it. So the thread must be
// one that others cannot let end, and stays until the process has ended, which
// closes exited. Its outcome is in cmd.ProcessState.
func startProcess(cmd *exec.Cmd, orphaned syscall.Signal, exited chan<- struct{}) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = orphaned
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(exited)
		}
	}()
	return <-started
}

// writeProgram writes a program that is run next. No process may be made meanwhile: it
// would hold the file open for writing until it becomes another program, and a file that
// anybody holds so cannot be run.
func writeProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o755)
}

// launch starts the binary without waiting for it to be ready.
func launch(t testing.TB, b build, env ...string) *service {
	t.Helper()
	return launchCommand(t, b, env)
}

// launchCommand is launch with arguments.
func launchCommand(t testing.TB, b build, env []string, args ...string) *service {
	t.Helper()
	binary, err := b()
	require.NoError(t, err)
	s := &service{
		t:      t,
		cmd:    exec.Command(binary, args...),
		stderr: new(output),
		exited: make(chan struct{}),
		scheme: "http",
		http: &http.Client{Timeout: patience, Transport: &http.Transport{
			MaxIdleConnsPerHost: 64,
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		}},
	}
	s.cmd.Env = environment(t, env)
	s.cmd.Stdout, s.cmd.Stderr = s.stderr, s.stderr
	for _, e := range env {
		if strings.HasPrefix(e, "SPILLWAY_TLS_CERT=") {
			s.scheme = "https"
		}
	}
	require.NoError(t, startProcess(s.cmd, syscall.SIGKILL, s.exited))
	t.Cleanup(func() {
		s.http.CloseIdleConnections()
		s.kill()
		log := s.stderr.String()
		if strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic:") || strings.Contains(log, "fatal error:") {
			t.Errorf("the service has a fault:\n%s", log)
		} else if t.Failed() {
			t.Logf("%v said:\n%s", env, tail(log, 8<<10))
		}
	})
	return s
}

// start starts the binary and waits until it is ready.
func start(t testing.TB, b build, env ...string) *service {
	t.Helper()
	s := launch(t, b, env...)
	s.awaitListening()
	s.eventually("the service is ready", func() bool { return s.ready() == http.StatusOK })
	return s
}

// awaitListening learns the addresses from the log.
func (s *service) awaitListening() {
	s.t.Helper()
	s.eventually("both planes listen", func() bool {
		for line := range strings.Lines(s.stderr.String()) {
			var entry struct{ Msg, Plane, Addr string }
			if json.Unmarshal([]byte(line), &entry) != nil || entry.Msg != "listening" {
				continue
			}
			switch entry.Plane {
			case "data":
				s.data = entry.Addr
			case "admin":
				s.admin = entry.Addr
			}
		}
		return s.data != "" && s.admin != ""
	})
}

// eventually polls a condition until it holds. It fails the test when the
// service has ended and the condition does not hold.
func (s *service) eventually(what string, condition func() bool) {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-s.exited:
			if condition() { // it came to hold just before
				return
			}
			s.t.Fatalf("the service has ended (%v) before %s:\n%s", s.cmd.ProcessState, what, tail(s.stderr.String(), 4<<10))
		case <-deadline.C:
			s.t.Fatalf("waited %v for: %s\n%s", patience, what, tail(s.stderr.String(), 4<<10))
		case <-tick.C:
		}
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

func (s *service) signal(sig os.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(sig))
}

// stopped reports whether SIGSTOP has stopped all threads of a process, which takes a
// moment.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		state := stat[bytes.LastIndexByte(stat, ')')+1:]
		if !bytes.HasPrefix(state, []byte(" T")) {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// hasEnded reports whether the process has ended.
func (s *service) hasEnded() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// wait waits for the process to end by itself and returns its exit code.
func (s *service) wait() int {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(patience):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // shows where it hangs
		<-s.exited
		s.t.Fatalf("the service did not end:\n%s", s.stderr)
	}
	return s.cmd.ProcessState.ExitCode()
}

// stop ends the service gracefully and expects success.
func (s *service) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	require.Equal(s.t, 0, s.wait(), "exit code after SIGTERM")
}

// kill ends the service with SIGKILL, if it runs.
func (s *service) kill() {
	_ = s.cmd.Process.Kill() // an error says that it has ended already
	<-s.exited
}

func (s *service) dataURL(path string) string  { return s.scheme + "://" + s.data + path }
func (s *service) adminURL(path string) string { return s.scheme + "://" + s.admin + path }

// ready returns the status of /readyz, 0 if there is no answer.
func (s *service) ready() int {
	resp, err := s.http.Get(s.adminURL("/readyz"))
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
	_ = resp.Body.Close()
	return resp.StatusCode
}

// request sends a request with net/http and returns the answer, its body read.
// Headers are "Name: value".
func (s *service) request(method, url, body string, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(method, url, body, headers...)
	require.NoError(s.t, err)
	return a
}

func (s *service) try(method, url, body string, headers ...string) (answer, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(content), close: resp.Close}, err
}

// switchTo makes a strategy the active one.
func (s *service) switchTo(strategy string) {
	s.t.Helper()
	require.NoError(s.t, s.trySwitch(strategy))
}

func (s *service) trySwitch(strategy string) error {
	a, err := s.try(http.MethodPut, s.adminURL("/strategy"), fmt.Sprintf(`{"strategy":%q}`, strategy))
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("switch to %s: status %d: %s", strategy, a.status, a.body)
	}
	return err
}

// metrics are the samples of /metrics, by name and labels as they stand there.
type metrics map[string]float64

func (s *service) metrics() metrics {
	s.t.Helper()
	m, err := s.tryMetrics()
	require.NoError(s.t, err)
	return m
}

func (s *service) tryMetrics() (metrics, error) {
	a, err := s.try(http.MethodGet, s.adminURL("/metrics"), "")
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return nil, fmt.Errorf("/metrics: status %d: %s", a.status, a.body)
	}
	samples, err := metricstest.Read(a.body)
	if err != nil {
		return nil, fmt.Errorf("/metrics: %w", err)
	}
	m := make(metrics)
	for _, sample := range samples {
		m[metricstest.Series(sample)] = float64(sample.Value)
	}
	return m, nil
}

// sum adds up the series of a metric that have all of the labels, each given as
// name="value".
func (m metrics) sum(name string, labels ...string) float64 {
	var sum float64
	for series, v := range m {
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		matches := true
		for _, l := range labels {
			matches = matches && (strings.Contains(series, "{"+l) || strings.Contains(series, ","+l))
		}
		if matches {
			sum += v
		}
	}
	return sum
}

// strategyLabel is the label of the queueing metrics.
func strategyLabel(strategy string) string { return fmt.Sprintf("strategy=%q", strategy) }

// awaitConserved waits until every submitted task of each strategy is accounted
// for: run, or shed.
func (s *service) awaitConserved(strategies ...string) {
	s.t.Helper()
	for _, name := range strategies {
		var submitted, run, shed float64
		s.eventually("submitted = run + shed under "+name, func() bool {
			m, l := s.metrics(), strategyLabel(name)
			submitted = m.sum("spillway_tasks_submitted_total", l)
			run = m.sum("spillway_tasks_run_total", l)
			shed = m.sum("spillway_shed_total", l)
			return submitted == run+shed
		})
		s.t.Logf("%s: %.0f tasks submitted = %.0f run + %.0f shed", name, submitted, run, shed)
	}
}

// result is how a process ended that was not meant to serve.
type result struct {
	code           int
	stdout, stderr string
}

// run runs the binary to its end. Its data folder is empty and its ports are
// free unless env says otherwise.
func run(t *testing.T, b build, env []string, args ...string) result {
	t.Helper()
	binary, err := b()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience) // some copy or check a whole store
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = environment(t, env)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	exited := make(chan struct{})
	require.NoError(t, startProcess(cmd, syscall.SIGKILL, exited))
	<-exited
	require.NoError(t, ctx.Err(), "the process did not end by itself:\n%s", stderr.String())
	require.NotContains(t, stderr.String(), "DATA RACE")
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// requireOneLine asserts that the process said exactly one line on stderr.
func (r result) requireOneLine(t *testing.T) {
	t.Helper()
	require.Equal(t, 1, strings.Count(r.stderr, "\n"), "want one line on stderr, got:\n%s", r.stderr)
}
