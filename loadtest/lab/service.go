package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/loadtest/observe"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// How long a service may take. A large store takes some seconds to open, and to
// write out what it has in memory.
const (
	startPatience = time.Minute
	stopPatience  = 15 * time.Second
)

// service is a running service.
type service struct {
	data, admin string // the URLs of its planes; admin is empty if it has none
	port        string // of data, if it was started by a command

	process *os.Process
	log     *serviceLog
	exited  chan struct{} // closed when the process has ended
	ended   error         // how; set before exited is closed
}

// settings returns the environment variables that make the service what a
// combination asks for. It gets the time within which answers are good.
func settings(c *scenario.Combination, slo time.Duration) []string {
	var env []string
	set := func(variable, value string) {
		if value != "" && value != "0" {
			env = append(env, "SPILLWAY_"+variable+"="+value)
		}
	}
	set("STRATEGY", c.Strategy)
	set("STORE_PARALLEL", strconv.Itoa(c.StoreParallel))
	if c.Objective != scenario.Unset {
		set("SLO", cmp.Or(c.Objective, workload.Options{SLO: slo}.WithDefaults().SLO.String()))
	}
	set("WORKERS", strconv.Itoa(c.Workers))
	set("QUEUE_CAPACITY", strconv.Itoa(c.Capacity))
	set("SYNC", c.Sync)
	set("STORE_DELAY", c.StoreDelay)
	return env
}

// startService starts the binary on free ports of the loopback interface, with
// its store in dir, and returns when it is ready. Of the environment it
// inherits, no setting of the service reaches it.
func startService(ctx context.Context, binary, dir string, env []string) (*service, error) {
	cmd := exec.Command(binary)
	cmd.Env = append(append(cleanEnvironment(), env...),
		"SPILLWAY_LISTEN=127.0.0.1:0",
		"SPILLWAY_ADMIN_LISTEN=127.0.0.1:0",
		"SPILLWAY_DATA_DIR="+dir,
		"SPILLWAY_LOG_LEVEL=info", // at which it says where it listens
		"SPILLWAY_LOG_FORMAT=json",
	)
	s, err := launch(cmd)
	if err != nil {
		return nil, err
	}
	ready := func() bool {
		s.data, s.admin = s.log.address("data"), s.log.address("admin")
		if s.data == "" || s.admin == "" {
			return false
		}
		_, err := observe.Get(ctx, s.admin, "/readyz")
		return err == nil
	}
	return s, s.await(ctx, ready, "")
}

func launch(cmd *exec.Cmd) (*service, error) {
	s := &service{log: new(serviceLog), exited: make(chan struct{})}
	cmd.Stderr = s.log
	cmd.SysProcAttr = attributes()
	cmd.WaitDelay = time.Second

	started := make(chan error)
	go func() {
		// The kernel ends the process when this thread ends, which therefore must
		// not be one that others let end: a generator's.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			s.ended = cmd.Wait()
			close(s.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	s.process = cmd.Process
	return s, nil
}

// cleanEnvironment is ours, without what sets up a service.
func cleanEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "SPILLWAY_") })
}

// await waits until the service has started, and ends it if it does not. A hint says what
// may be wrong if it has ended.
func (s *service) await(ctx context.Context, ready func() bool, hint string) error {
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		var err error
		select {
		case <-tick.C:
			continue
		case <-s.exited:
			err = fmt.Errorf("the service did not start (%v)%s%s", s.outcome(), s.log.last(), hint)
		case <-timer.C:
			err = fmt.Errorf("the service is not ready %v after its start%s", startPatience, s.log.last())
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		s.kill()
		return err
	}
	return nil
}

// cpu returns the processor time that a service which a command started has used so far, in
// all its processes and threads, to the nanosecond. Asking costs them nothing.
func (s *service) cpu() (total time.Duration, err error) {
	if err := s.death(); err != nil {
		return 0, err
	}
	for i, pid := range processGroup(s.process.Pid) {
		cpu, err := processCPU(pid)
		if err != nil && i == 0 { // another one may have ended meanwhile
			return 0, err
		}
		total += cpu
	}
	return total, nil
}

// while returns a context that ends with ctx, or when the process does; its
// cause is then how. The caller must call release.
func (s *service) while(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.exited:
			cancel(s.death())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// death returns nil while the process lives, and otherwise how it has ended.
func (s *service) death() error {
	select {
	case <-s.exited:
		return fmt.Errorf("the service died (%v)%s", s.outcome(), s.log.last())
	default:
		return nil
	}
}

func (s *service) outcome() string {
	if s.ended != nil {
		return s.ended.Error()
	}
	return "exit status 0"
}

// stop ends the service gracefully, or after the patience by force. It fails
// unless the service has written all that it was given.
func (s *service) stop(patience time.Duration) error {
	if err := s.death(); err != nil {
		return err
	}
	_ = signalGroup(s.process, syscall.SIGTERM) // an error says that it has just ended
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.exited:
		_ = signalGroup(s.process, syscall.SIGKILL) // what a shell has started may outlive it
	case <-timer.C:
		s.kill()
		return fmt.Errorf("the service did not stop within %v%s", patience, s.log.last())
	}
	if s.ended != nil {
		return fmt.Errorf("the service did not stop cleanly (%w)%s", s.ended, s.log.last())
	}
	return nil
}

func (s *service) kill() {
	_ = signalGroup(s.process, syscall.SIGKILL) // an error says that it has ended already
	<-s.exited
}

// serviceLog takes what the service writes to its standard error. It keeps the
// addresses, and the line that says best why the service has ended: the last
// one, or the one with which a panic begins.
type serviceLog struct {
	mu struct {
		sync.Mutex
		line      []byte // not complete yet
		said      string
		panicked  bool
		addresses map[string]string // URLs by plane
	}
}

// longestLine is how much is kept of a line.
const longestLine = 4 << 10

// Write never fails.
func (l *serviceLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, complete := bytes.Cut(rest, []byte("\n"))
		l.mu.line = append(l.mu.line, line[:min(len(line), longestLine-len(l.mu.line))]...)
		if complete {
			l.readLocked(strings.TrimSpace(string(l.mu.line)))
			l.mu.line = l.mu.line[:0]
		}
		rest = after
	}
	return len(p), nil
}

func (l *serviceLog) readLocked(line string) {
	if line == "" || l.mu.panicked {
		return
	}
	l.mu.panicked = strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:")
	l.mu.said = line
	var entry struct{ Msg, Err, Plane, Addr string }
	if json.Unmarshal([]byte(line), &entry) != nil {
		return
	}
	l.mu.said = strings.TrimSuffix(entry.Msg+": "+entry.Err, ": ")
	if entry.Msg == "listening" {
		if l.mu.addresses == nil {
			l.mu.addresses = map[string]string{}
		}
		l.mu.addresses[entry.Plane] = "http://" + entry.Addr
	}
}

// address returns the URL of a plane, or nothing before it listens.
func (l *serviceLog) address(plane string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.addresses[plane]
}

// last returns what the service has said, for the end of a message.
func (l *serviceLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.said == "" {
		return ", it logged nothing"
	}
	return ", its last log line: " + l.mu.said
}

func version(ctx context.Context, binary string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	log := new(serviceLog)
	cmd := exec.CommandContext(ctx, binary, "--version")
	cmd.Env, cmd.Stderr = cleanEnvironment(), log
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w%s", binary, err, log.last())
	}
	return strings.TrimSpace(string(out)), nil
}
