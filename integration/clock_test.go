//go:build integration && amd64

package integration

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clockShift is machine code that asks the kernel for a clock, and adds so many
// seconds to the wall clock:
//
//	mov eax, 228; syscall; test edi, edi; jne end
//	mov rax, [rip+6]; add [rsi], rax; xor eax, eax
//	end: ret; the seconds
var clockShift = []byte("\xb8\xe4\x00\x00\x00\x0f\x05\x85\xff\x75\x0c\x48\x8b\x05\x06\x00\x00\x00\x48\x01\x06\x31\xc0\xc3\x00\x00\x00\x00\x00\x00\x00\x00")

// wallClock sets the wall clock of one process, which goes on from there. Go asks the
// vDSO for the time, a piece of code that the kernel lays into each process: what is
// there of the clocks is led to clockShift.
type wallClock struct {
	memory  *os.File
	seconds int64 // where they are
}

func (s *service) wallClock() *wallClock {
	t := s.t
	t.Helper()
	process := fmt.Sprintf("/proc/%d/", s.cmd.Process.Pid)
	maps, err := os.ReadFile(process + "maps")
	require.NoError(t, err)
	at := regexp.MustCompile(`(?m)^([0-9a-f]+)-([0-9a-f]+) .*\[vdso\]$`).FindSubmatch(maps)
	require.NotNil(t, at)
	low, err := strconv.ParseInt(string(at[1]), 16, 64)
	require.NoError(t, err)
	high, err := strconv.ParseInt(string(at[2]), 16, 64)
	require.NoError(t, err)
	memory, err := os.OpenFile(process+"mem", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = memory.Close() })
	image := make([]byte, high-low)
	_, err = memory.ReadAt(image, low)
	require.NoError(t, err)
	file, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(t, err)
	symbols, err := file.DynamicSymbols()
	require.NoError(t, err)
	shift := int64(len(image) - len(clockShift))
	require.Zero(t, bytes.Trim(image[shift:], "\x00"), "the end of the vDSO is free")
	_, err = memory.WriteAt(clockShift, low+shift)
	require.NoError(t, err)
	s.signal(syscall.SIGSTOP) // no thread is to be in the midst of what is written
	s.eventually("the process has stopped", func() bool { return stopped(s.cmd.Process.Pid) })
	for _, symbol := range symbols {
		if symbol.Name == "__vdso_clock_gettime" {
			jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(shift-int64(symbol.Value)-5))
			_, err = memory.WriteAt(jump, low+int64(symbol.Value))
			require.NoError(t, err)
		}
	}
	s.signal(syscall.SIGCONT)
	return &wallClock{memory, low + shift + int64(len(clockShift)) - 8}
}

// step sets the clock to so much before or after the true time.
func (c *wallClock) step(t *testing.T, by time.Duration) {
	t.Helper()
	_, err := c.memory.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(by/time.Second)), c.seconds)
	require.NoError(t, err)
}

// steps are what wall clocks do that are set by hand, by NTP, or by a battery that
// is empty. The last one leads behind 2038.
var steps = []time.Duration{time.Hour, -time.Hour, -40 * 365 * 24 * time.Hour, 30 * 365 * 24 * time.Hour, 0}

// The clock of the machine is set forward and back under a service that is used: no
// request fails, nothing ends early or late, and nothing is lost.
func TestClock_Steps(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"always", "interval:20ms", "never"} {
		t.Run(mode, func(t *testing.T) { clockSteps(t, mode) })
	}
}

func clockSteps(t *testing.T, mode string) {
	t.Parallel()
	folder := t.TempDir()
	cert, key := certificate(t, folder, "first")
	env := []string{"SPILLWAY_SYNC=" + mode, "SPILLWAY_DATA_DIR=" + filepath.Join(folder, "data"),
		"SPILLWAY_READ_TIMEOUT=10m", "SPILLWAY_IDLE_TIMEOUT=10m", "SPILLWAY_WRITE_TIMEOUT=10m"}
	s := start(t, plain, append(env, "SPILLWAY_STRATEGY=codel")...)
	clock := s.wallClock()
	require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity("large")), strings.Repeat("v", mib)).status)

	const clients = 4
	stop := make(chan struct{})
	written := make([]int, clients)
	var writing sync.WaitGroup
	faults := make([]error, clients)
	for i := range clients {
		writing.Go(func() { written[i], faults[i] = writeUntil(s, stop, fmt.Sprint("client", i)) })
	}
	idle, slow, half := s.dial(), s.dial(), s.dial()
	idle.mustPut(t, "idle", "v")
	slow.mustSend(t, http.MethodGet, entity("large"), "")
	require.NoError(t, slow.conn.SetDeadline(time.Now().Add(10*patience))) // for all steps
	for n, step := range steps {
		body := fmt.Sprint("step ", n)
		start := fmt.Sprintf("PUT /v0/entity?id=half HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body))
		_, err := io.WriteString(half.conn, start)
		require.NoError(t, err)
		half.sent = append(half.sent, http.MethodPut)

		clock.step(t, step)
		s.eventually("the service has that time", func() bool {
			date, err := http.ParseTime(s.request(http.MethodGet, s.dataURL(entity("idle")), "").header.Get("Date"))
			return err == nil && (time.Until(date)-step).Abs() < time.Minute
		})
		before := s.metrics().sum("spillway_store_wal_fsync_duration_seconds_count")
		if mode != "never" {
			s.eventually("the log is synced", func() bool {
				return s.metrics().sum("spillway_store_wal_fsync_duration_seconds_count") > before+1
			})
		}
		_, err = io.WriteString(half.conn, body)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, half.mustReceive(t).status)
		idle.mustPut(t, "idle", body)
		_, err = io.ReadFull(slow.r, make([]byte, 1000)) // of the head and the value
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, s.ready())
		backup := filepath.Join(folder, fmt.Sprint("backup", n))
		run(t, plain, s.backupEnv(env...), "backup", backup).succeeds(t)
		run(t, plain, nil, "check", backup).succeeds(t)
	}
	_, err := io.Copy(io.Discard, io.LimitReader(slow.r, mib-int64(len(steps))*1000))
	require.NoError(t, err)
	close(stop)
	writing.Wait()
	require.NoError(t, errors.Join(faults...))
	s.awaitConserved("codel")
	m := s.metrics()
	t.Logf("%d writes while the clock was set %d times", sum(written), len(steps))
	require.Zero(t, m.sum("spillway_shed_total"))

	// The last step, and what is lost by a kill.
	clock.step(t, steps[2])
	s.switchTo("fifo")
	if mode == "never" {
		s.stop()
	} else {
		before := s.metrics().sum("spillway_store_wal_fsync_duration_seconds_count")
		s.request(http.MethodPut, s.dataURL(entity("last")), "v")
		if mode != "always" {
			s.eventually("the log is synced", func() bool {
				s.request(http.MethodPut, s.dataURL(entity("more")), "v")
				return s.metrics().sum("spillway_store_wal_fsync_duration_seconds_count") > before+2
			})
		}
		s.kill()
	}
	s = start(t, plain, append(env, "SPILLWAY_TLS_CERT="+cert, "SPILLWAY_TLS_KEY="+key)...)
	for i, n := range written {
		a := s.request(http.MethodGet, s.dataURL(entity(fmt.Sprint("client", i))), "")
		require.Equal(t, strconv.Itoa(n), a.body)
	}

	// TLS, old sessions, and a new pair, at all times.
	clock = s.wallClock()
	for n, step := range steps {
		clock.step(t, step)
		s.http.CloseIdleConnections()
		require.Equal(t, http.StatusOK, s.request(http.MethodGet, s.dataURL(entity("client0")), "").status)
		name := fmt.Sprint("step", n)
		certificate(t, folder, name)
		s.eventually("the new pair is used", func() bool {
			s.http.CloseIdleConnections()
			resp, err := s.http.Get(s.dataURL(entity("client0")))
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return resp.TLS.PeerCertificates[0].Subject.CommonName == name
		})
	}
	s.stop()
}

// writeUntil writes rising numbers to a key, and reads each back.
func writeUntil(s *service, stop <-chan struct{}, key string) (n int, err error) {
	c, err := dial(s.data)
	if err != nil {
		return 0, err
	}
	defer c.close()
	for {
		select {
		case <-stop:
			return n, nil
		default:
		}
		a, err := c.do(http.MethodPut, entity(key), strconv.Itoa(n+1))
		if err != nil || a.status != http.StatusCreated {
			return n, fmt.Errorf("write %d to %s: status %d, %s: %w", n+1, key, a.status, a.body, err)
		}
		n++
		a, err = c.do(http.MethodGet, entity(key), "")
		if err != nil || a.status != http.StatusOK || a.body != strconv.Itoa(n) {
			return n, fmt.Errorf("read of %s: status %d, %s, want %d: %w", key, a.status, a.body, n, err)
		}
	}
}

func sum(numbers []int) (n int) {
	for _, m := range numbers {
		n += m
	}
	return n
}

// A deadline is a time that passes, and not a place on the wall clock.
func TestClock_DeadlinesPass(t *testing.T) {
	t.Parallel()
	for _, step := range steps[:4] {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			const work = 4 * time.Second
			s := start(t, plain, "SPILLWAY_WORKERS=1", "SPILLWAY_STRATEGY=fifo", fmt.Sprint("SPILLWAY_STORE_DELAY=", work))
			clock := s.wallClock()
			submitted := func() float64 { return s.metrics().sum("spillway_tasks_submitted_total") }
			for attempt := 1; ; attempt++ {
				busy, short, long := s.dial(), s.dial(), s.dial()
				before, began := submitted(), time.Now()
				busy.mustSend(t, http.MethodPut, entity("busy"), "v")
				s.eventually("the worker is busy", func() bool { return submitted() == before+1 })
				sent := time.Now()
				short.mustSend(t, http.MethodPut, entity("short"), "v", "Spillway-Timeout-Ms: 1000")
				long.mustSend(t, http.MethodPut, entity("long"), "v", "Spillway-Timeout-Ms: 600000")
				s.eventually("both wait", func() bool { return submitted() == before+3 })
				// Otherwise the worker may have been free before the deadline.
				inTime := time.Since(began) < work-time.Second
				if inTime {
					clock.step(t, step)
				}
				a := short.mustReceive(t)
				waited := time.Since(sent)
				require.Equal(t, http.StatusCreated, busy.mustReceive(t).status)
				require.Equal(t, http.StatusCreated, long.mustReceive(t).status)
				if !inTime {
					require.Less(t, attempt, 10, "this machine is too slow to have a request wait for %v", work)
					continue
				}
				require.Equal(t, http.StatusGatewayTimeout, a.status)
				require.Equal(t, "expired", a.shed())
				require.GreaterOrEqual(t, waited, time.Second)
				s.stop()
				return
			}
		})
	}
}

// One bad second of the wall clock ends no value early and keeps none, here and after a
// restart. One that is set for good changes no time to live by much.
func TestClock_Expiry(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{24 * time.Hour, -24 * time.Hour, 10 * 365 * 24 * time.Hour, -10 * 365 * 24 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			env := "SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data")
			s := start(t, plain, env)
			put := func(key, ttl string) {
				c := s.dial()
				defer c.close()
				a, err := c.do(http.MethodPut, entity(key), "v", "Spillway-Ttl: "+ttl)
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, a.status)
			}
			left := func(key string) int {
				a := s.request(http.MethodGet, s.dataURL(entity(key)), "")
				if a.status == http.StatusNotFound {
					return 0
				}
				require.Equal(t, http.StatusOK, a.status)
				n, err := strconv.Atoi(a.header.Get("Spillway-Ttl"))
				require.NoError(t, err)
				return n
			}
			clock, began := s.wallClock(), time.Now()
			put("before", "1000")
			clock.step(t, jump)
			put("meanwhile", "1000")
			put("soon", "3")
			require.Positive(t, left("before"))
			clock.step(t, 0)
			put("after", "1000")
			s.eventually("what was put for three seconds is gone", func() bool { return left("soon") == 0 })
			require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
			s.stop()
			s = start(t, plain, env)
			require.Zero(t, left("soon"))
			for _, key := range []string{"before", "meanwhile", "after"} {
				passed := int(time.Since(began).Seconds())
				require.InDelta(t, 1000-passed, left(key), float64(3+passed/5))
			}
			s.stop()
		})
	}
}
