//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pointReads sends GETs at that rate for that time and returns what it took them, and
// how many were answered otherwise than by a value.
func pointReads(b *testing.B, url, duration string, rate int) (p50, p99 float64, failed int) {
	b.Helper()
	binary, err := labBinary()
	require.NoError(b, err)
	file := filepath.Join(b.TempDir(), "result.json")
	out, err := exec.Command(binary, "run", "--url", url, "--rate", fmt.Sprint(rate), "--connections", "32", "--mix", "get=1",
		"--keys", "50000", "--value-size", "1000", "--duration", duration, "--warmup", "1s", "--timeout", "20s", "--json", file).CombinedOutput()
	require.NoError(b, err, string(out))
	text, err := os.ReadFile(file)
	require.NoError(b, err)
	var r struct {
		Requests int
		Status   map[string]int
		Latency  struct{ P50, P99 float64 } `json:"latency_ms"`
	}
	require.NoError(b, json.Unmarshal(text, &r))
	return r.Latency.P50, r.Latency.P99, r.Requests - r.Status["200"]
}

// fill50MB fills the store with what pointReads reads.
func fill50MB(b *testing.B, s *service) {
	b.Helper()
	binary, err := labBinary()
	require.NoError(b, err)
	out, err := exec.Command(binary, "fill", "--url", s.dataURL(""), "--bytes", "50MB", "--value-size", "1000").CombinedOutput()
	require.NoError(b, err, string(out))
}

// rangeClients have so many clients read ranges of everything, as fast as they can,
// until stop is called, which returns how many bytes they got.
func rangeClients(b *testing.B, address string, clients int) (stop func() int64) {
	b.Helper()
	var read atomic.Int64
	var done sync.WaitGroup
	var connections []net.Conn
	for range clients {
		c, err := net.Dial("tcp", address)
		require.NoError(b, err)
		connections = append(connections, c)
		done.Go(func() {
			go func() { // pipelined, so that there is always one under way
				for {
					if _, err := io.WriteString(c, "GET /v0/entities?start=%00 HTTP/1.1\r\nHost: x\r\nSpillway-Priority: 7\r\n\r\n"); err != nil {
						return
					}
				}
			}()
			buffer := make([]byte, 256<<10)
			for {
				n, err := c.Read(buffer)
				read.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
	}
	return func() int64 {
		for _, c := range connections {
			_ = c.Close()
		}
		done.Wait()
		return read.Load()
	}
}

// hogs are processes beside that take all the CPU they get.
func hogs(b *testing.B, n int) (stop func()) {
	b.Helper()
	var exits []chan struct{}
	var commands []*exec.Cmd
	for range n {
		c, exited := exec.Command("sh", "-c", "while :; do :; done"), make(chan struct{})
		require.NoError(b, startProcess(c, syscall.SIGKILL, exited))
		commands, exits = append(commands, c), append(exits, exited)
	}
	return func() {
		for i, c := range commands {
			_ = c.Process.Kill()
			<-exits[i]
		}
	}
}

// ownReads is pointReads from this process, over one connection. It begins after a second, as
// pointReads counts from then on: until the pipelines of rangeClients are full, their goroutines
// take all of this process's time.
func ownReads(b *testing.B, url string, d time.Duration, rate int) (p50, p99 float64, failed int) {
	b.Helper()
	var took []float64
	begin := time.Now().Add(time.Second)
	for due := begin; due.Sub(begin) < d; due = due.Add(time.Second / time.Duration(rate)) {
		time.Sleep(time.Until(due))
		resp, err := http.Get(url + "/v0/entity?id=" + fmt.Sprint(len(took))) // found or not, it is read
		require.NoError(b, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(b, err)
		require.NoError(b, resp.Body.Close())
		if took = append(took, time.Since(due).Seconds()*1000); resp.StatusCode >= http.StatusInternalServerError {
			failed++
		}
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], failed
}

// BenchmarkBesideRanges tells how long 200 GETs a second take beside clients that read
// ranges as fast as they can, and beside a process that takes as much CPU. The GETs
// have priority 3, the ranges 7, and come from a process of their own, or from that of the
// ranges, where they wait for its CPU too.
//
//	go test -tags integration -run '^$' -bench '^BenchmarkBesideRanges$' -benchtime 3x ./integration
func BenchmarkBesideRanges(b *testing.B) {
	for _, strategy := range []string{"fifo", "auto", "priority", "fair"} {
		for _, beside := range []string{"ranges=0", "ranges=32", "ranges=32/probe=own", "ranges=256", "hogs=2"} {
			b.Run("strategy="+strategy+"/"+beside, func(b *testing.B) {
				s := start(b, plain, "SPILLWAY_WORKERS=2", "SPILLWAY_SYNC=never", "SPILLWAY_STRATEGY="+strategy)
				fill50MB(b, s)
				var p50s, p99s []float64
				failures := 0
				for b.Loop() {
					stop := func() {}
					var n int
					if _, err := fmt.Sscanf(beside, "ranges=%d", &n); err == nil && n > 0 {
						end := rangeClients(b, s.data, n)
						stop = func() { _ = end() }
					} else if _, err := fmt.Sscanf(beside, "hogs=%d", &n); err == nil {
						stop = hogs(b, n)
					}
					read := func() (p50, p99 float64, failed int) { return pointReads(b, s.dataURL(""), "5s", 200) }
					if strings.HasSuffix(beside, "probe=own") {
						read = func() (p50, p99 float64, failed int) { return ownReads(b, s.dataURL(""), 5*time.Second, 200) }
					}
					p50, p99, failed := read()
					stop()
					p50s, p99s = append(p50s, p50), append(p99s, p99)
					failures += failed
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(median(p50s), "ms-p50")
				b.ReportMetric(median(p99s), "ms-p99")
				b.ReportMetric(float64(failures), "failed")
			})
		}
	}
}

// BenchmarkBesideFrozenDisk tells how long 200 GETs a second take while 64 connections
// PUT as fast as they can, first on a disk that works and then on one that is frozen
// for ten seconds: every write and sync to it hangs. Under always the sync of the log
// hangs, and under never the flushes do, so that writes stall. It needs root.
//
// The writes are of other keys than the reads: a read of a key whose write is on its way
// to the disk waits for that write, as it must, and so for the end of the freeze.
//
//	go test -tags integration -run '^$' -bench '^BenchmarkBesideFrozenDisk$' -benchtime 3x ./integration
func BenchmarkBesideFrozenDisk(b *testing.B) {
	for _, sync := range []string{"always", "never"} {
		b.Run("sync="+sync, func(b *testing.B) {
			dir := loopDisk(b)
			s := start(b, plain, "SPILLWAY_WORKERS=4", "SPILLWAY_SYNC="+sync, "SPILLWAY_DATA_DIR="+filepath.Join(dir, "data"), "SPILLWAY_CACHE_BYTES=128MB")
			fill50MB(b, s)
			binary, err := labBinary()
			require.NoError(b, err)
			writes := targetsOfWrites(b, s)
			var working, frozen []float64
			failures := 0
			for b.Loop() {
				for _, freeze := range []bool{false, true} {
					puts, exited := exec.Command(binary, "run", "--url", s.dataURL(""), "--rate", "max", "--connections", "64", "--targets", writes,
						"--duration", "12s", "--warmup", "0s", "--timeout", "30s"), make(chan struct{})
					require.NoError(b, startProcess(puts, syscall.SIGKILL, exited))
					before := s.metrics().sum("spillway_requests_total", `method="PUT"`)
					s.eventually("writes are under way", func() bool {
						return s.metrics().sum("spillway_requests_total", `method="PUT"`) > before+1000
					})
					if freeze {
						mustRun(b, "fsfreeze", "-f", dir)
					}
					_, p99, failed := pointReads(b, s.dataURL(""), "9s", 200) // and a second before that
					if freeze {
						mustRun(b, "fsfreeze", "-u", dir)
						frozen = append(frozen, p99)
					} else {
						working = append(working, p99)
					}
					failures += failed
					<-exited
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(working), "ms-p99-working")
			b.ReportMetric(median(frozen), "ms-p99-frozen")
			b.ReportMetric(float64(failures), "failed")
		})
	}
}

// targetsOfWrites returns a file of targets that put values of 1000 bytes under keys of
// which no pointReads knows.
func targetsOfWrites(b *testing.B, s *service) string {
	b.Helper()
	value := filepath.Join(b.TempDir(), "value")
	require.NoError(b, os.WriteFile(value, make([]byte, 1000), 0o600))
	var text strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&text, "PUT %s\n@%s\n\n", s.dataURL(fmt.Sprintf("/v0/entity?id=written-%d", i)), value)
	}
	file := filepath.Join(b.TempDir(), "targets")
	require.NoError(b, os.WriteFile(file, []byte(text.String()), 0o600))
	return file
}

// loopDisk returns where a file system of its own is mounted.
func loopDisk(b *testing.B) string {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("mounting a file system needs root")
	}
	image, dir := filepath.Join(b.TempDir(), "disk.img"), b.TempDir()
	mustRun(b, "truncate", "-s", "2G", image)
	mustRun(b, "mkfs.ext4", "-q", image)
	mustRun(b, "mount", "-o", "loop,noatime", image, dir)
	b.Cleanup(func() {
		_ = exec.Command("fsfreeze", "-u", dir).Run() // if it is frozen
		mustRun(b, "umount", dir)
	})
	return dir
}

func mustRun(b *testing.B, name string, args ...string) {
	b.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(b, err, "%s %s: %s", name, strings.Join(args, " "), out)
}

// BenchmarkSwitchInOverload tells what a switch does in the midst of an overload: of
// the requests of the two seconds after it, how many are answered in time. The service
// has 8 workers over a store that does 8 operations of 4 ms at once, and gets 1.7 times
// what that can do; under unbounded thousands wait after 8 seconds.
//
//	go test -tags integration -run '^$' -bench '^BenchmarkSwitchInOverload$' -benchtime 3x ./integration
func BenchmarkSwitchInOverload(b *testing.B) {
	binary, err := labBinary()
	require.NoError(b, err)
	for _, to := range []string{"unbounded", "auto", "lifo", "adaptive-lifo"} {
		b.Run("to="+to, func(b *testing.B) {
			var shares []float64
			var waited float64
			for b.Loop() {
				s := start(b, plain, "SPILLWAY_WORKERS=8", "SPILLWAY_SYNC=never", "SPILLWAY_STRATEGY=unbounded",
					"SPILLWAY_STORE_DELAY=exp:4ms", "SPILLWAY_STORE_PARALLEL=8")
				file := filepath.Join(b.TempDir(), "result.json")
				// 1.7 times of what it does here, about. The window that is measured begins after
				// eight seconds.
				load, exited := exec.Command(binary, "run", "--url", s.dataURL(""), "--rate", "3000", "--connections", "15000",
					"--mix", "get=1", "--duration", "2s", "--warmup", "8s", "--timeout", "20s", "--slo", "100ms", "--json", file), make(chan struct{})
				said := new(output)
				load.Stdout, load.Stderr = said, said
				require.NoError(b, startProcess(load, syscall.SIGKILL, exited))
				time.Sleep(8 * time.Second)
				waited = s.metrics().sum("spillway_queue_depth")
				if to != "unbounded" {
					s.switchTo(to)
				}
				<-exited
				text, err := os.ReadFile(file)
				require.NoError(b, err, said)
				var r struct {
					Goodput float64 `json:"goodput_rps"`
				}
				require.NoError(b, json.Unmarshal(text, &r))
				shares = append(shares, r.Goodput)
				s.kill()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(shares), "good/s")
			b.ReportMetric(waited, "waited")
		})
	}
}
