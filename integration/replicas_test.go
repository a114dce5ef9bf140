//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// replica is gunicorn, with so many workers that take 20 ms for a request each.
type replica struct {
	t       *testing.T
	dir     string
	address string
	workers int
	cmd     *exec.Cmd
	said    bytes.Buffer
	ended   chan struct{}
}

// replicasOf starts one for each number of workers.
func replicasOf(t *testing.T, workers ...int) (all []*replica) {
	t.Helper()
	_, err := exec.LookPath("gunicorn")
	require.NoError(t, err, "make deps installs it")
	dir := t.TempDir()
	app := "import os, time\ndef app(environ, start_response):\n" +
		"    time.sleep(0.02)\n    start_response('200 OK', [])\n    return [b'done by ' + os.environb[b'REPLICA']]\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "app.py"), []byte(app), 0o600))
	for i, address := range freeAddresses(t, len(workers)) {
		r := &replica{t: t, dir: dir, address: address, workers: workers[i]}
		r.start()
		t.Cleanup(func() { r.stop(syscall.SIGKILL) })
		all = append(all, r)
	}
	return all
}

func (r *replica) url() string { return "http://" + r.address }

func (r *replica) start() {
	r.t.Helper()
	r.cmd = exec.Command("gunicorn", "--chdir", r.dir, "--log-level", "error", "--graceful-timeout", "60", "-e", "REPLICA="+r.address, "-w", fmt.Sprint(r.workers), "-b", r.address, "app:app")
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with its workers
	r.cmd.WaitDelay = 5 * time.Second
	r.cmd.Stdout, r.cmd.Stderr = &r.said, &r.said
	r.ended = make(chan struct{})
	require.NoError(r.t, startProcess(r.cmd, syscall.SIGKILL, r.ended))
}

// stop ends it, and waits for that: gracefully by SIGTERM, and with all its workers at once by SIGKILL.
func (r *replica) stop(how syscall.Signal) {
	if how == syscall.SIGKILL {
		_ = syscall.Kill(-r.cmd.Process.Pid, how)
	} else {
		_ = r.cmd.Process.Signal(how)
	}
	<-r.ended
}

func listOf(replicas []*replica) string {
	var all []string
	for _, r := range replicas {
		all = append(all, r.url())
	}
	return strings.Join(all, ",")
}

// steady are clients of a proxy, each of whom asks again once it has an answer.
type steady struct {
	stopped atomic.Bool
	running sync.WaitGroup
	asked   [16]atomic.Int64
	mu      sync.Mutex
	answers map[string]int // the body if it is good, or what else they were
}

func (s *service) steady() *steady {
	c := &steady{answers: map[string]int{}}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(c.asked)}, Timeout: patience}
	for i := range c.asked {
		c.running.Go(func() {
			for n := i; !c.stopped.Load(); n++ {
				what := ""
				r, err := http.NewRequest([]string{http.MethodGet, http.MethodPost}[n%2], s.dataURL("/"), strings.NewReader(strings.Repeat("x", n%2)))
				if err == nil {
					what = answerOf(client.Do(r))
				}
				c.asked[i].Add(1)
				c.mu.Lock()
				c.answers[what]++
				c.mu.Unlock()
			}
		})
	}
	s.t.Cleanup(func() {
		c.stop()
		client.CloseIdleConnections()
	})
	return c
}

// done begins every good answer, before the address of the replica.
const done = "done by "

func answerOf(a *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	defer func() { _ = a.Body.Close() }()
	body, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode == http.StatusOK && strings.HasPrefix(string(body), done) {
		return string(body)
	}
	return fmt.Sprint(a.StatusCode, " ", string(body), err)
}

func (c *steady) stop() map[string]int {
	c.stopped.Store(true)
	c.running.Wait()
	return c.answers
}

// goOn waits until every client has begun a request from now on, and has its answer.
func (c *steady) goOn(s *service) {
	s.t.Helper()
	var before [len(c.asked)]int64
	for i := range before {
		before[i] = c.asked[i].Load()
	}
	s.eventually("clients get answers", func() bool {
		for i := range before {
			if c.asked[i].Load() < before[i]+2 {
				return false
			}
		}
		return true
	})
}

// Told nothing of them, the proxy gives each as much as it can do.
func TestProxy_Replicas(t *testing.T) {
	t.Parallel()
	replicas := replicasOf(t, 1, 2, 4, 8)
	s := startProxy(t, listOf(replicas), "SPILLWAY_WORKERS=auto", "SPILLWAY_SLO=none")
	for _, r := range replicas {
		s.eventually(r.address+" is there", func() bool { return s.metrics().sum("spillway_upstream_up", fmt.Sprintf("upstream=%q", r.url())) == 1 })
	}
	load := s.steady()
	for range 8 {
		load.goOn(s)
	}
	answers := load.stop()
	t.Log(answers)
	require.Len(t, answers, len(replicas), "each has answered, and nothing else")
	for _, r := range replicas {
		require.Positive(t, answers[done+r.address])
	}
	require.Greater(t, answers[done+replicas[3].address], answers[done+replicas[0].address])
	s.eventually("no place is lost", func() bool { return s.metrics().sum("spillway_workers_busy") == 0 })
	s.stop()
}

// While one replica after the other is stopped and started again, no request is lost that had not been sent, and none at
// all if the replica is taken off the list before.
func TestProxy_RollingReplicas(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]syscall.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL, "taken off": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := replicasOf(t, 2, 2, 2)
			s := startProxy(t, listOf(replicas), "SPILLWAY_WORKERS=auto", "SPILLWAY_SLO=none")
			up := func() float64 { return s.metrics().sum("spillway_upstream_up") }
			s.eventually("all are there", func() bool { return up() == 3 })
			load := s.steady()
			load.goOn(s)
			for i, r := range replicas {
				others := append(append([]*replica{}, replicas[:i]...), replicas[i+1:]...)
				if name == "taken off" {
					s.putUpstreams(t, listOf(others), http.StatusOK)
					load.goOn(s) // what was sent there has ended
				}
				r.stop(how)
				load.goOn(s)
				r.start()
				if name == "taken off" {
					s.putUpstreams(t, listOf(replicas), http.StatusOK)
				}
				s.eventually("it is back", func() bool { return up() == 3 })
				load.goOn(s)
			}
			answers := load.stop()
			t.Log(answers)
			for what := range answers {
				if !strings.HasPrefix(what, done) {
					require.NotEqual(t, "taken off", name, what)
					require.Contains(t, what, "502 ")
					require.Contains(t, what, "the upstream closed the connection", "it was sent")
				}
			}
			s.eventually("no place is lost", func() bool { return s.metrics().sum("spillway_workers_busy") == 0 })
			s.stop()
		})
	}
}

// putUpstreams changes the list, and returns the answer.
func (s *service) putUpstreams(t *testing.T, list string, status int) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"upstreams": strings.Split(list, ","), "strategy": "auto"})
	require.NoError(t, err)
	a := s.request(http.MethodPut, s.adminURL("/strategy"), string(body))
	require.Equal(t, status, a.status, a.body)
	return a.body
}

// A list that cannot be is refused whole, by PUT and when the configuration is read again, and says why.
func TestProxy_BadUpstreams(t *testing.T) {
	t.Parallel()
	url, _ := upstreamAt(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done\n") })
	file := "strategy: fifo\nupstream: " + url + "\n"
	s := launchConfigured(t, raced, file, nil, "proxy")
	var many string
	for i := range 300 {
		many += fmt.Sprintf("http://127.0.0.1:%d,", 1+i)
	}
	for list, why := range map[string]string{
		"": "http://HOST:PORT", url + "," + url: "each only once", strings.TrimSuffix(many, ","): "at most 256", url + ",ftp://a:1": "http://HOST:PORT",
	} {
		require.Contains(t, s.putUpstreams(t, list, http.StatusBadRequest), why)
		s.reload("strategy: lifo\nupstream: \""+list+"\"\n", true)
	}
	for body, why := range map[string]string{`{"upstreams":[],"strategy":"lifo"}`: "http://HOST:PORT", `{"upstreams":7}`: "upstreams", `{"upstreams":"` + url + `"}`: "upstreams"} {
		a := s.request(http.MethodPut, s.adminURL("/strategy"), body)
		require.Equal(t, http.StatusBadRequest, a.status, a.body)
		require.Contains(t, a.body, why)
	}
	now := jsonFields(t, s.request(http.MethodGet, s.adminURL("/strategy"), "").body)
	require.Equal(t, "fifo", now["strategy"])
	require.Equal(t, []any{url}, now["upstreams"])
	require.Equal(t, "done\n", s.request(http.MethodGet, s.dataURL("/"), "").body)

	s.reload(file+"workers: 3\n", false)
	s.reload("strategy: lifo\nupstream: "+url+",http://127.0.0.1:1\n", false)
	require.Len(t, jsonFields(t, s.request(http.MethodGet, s.adminURL("/strategy"), "").body)["upstreams"], 2)
	s.stop()
}

// The console has a row for each upstream, which fits a phone too.
func TestConsole_Upstreams(t *testing.T) {
	t.Parallel()
	handler := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, done) }
	one, _ := upstreamAt(t, "127.0.0.1:0", handler)
	two, _ := upstreamAt(t, "127.0.0.1:0", handler)
	gone := "http://" + freeAddresses(t, 1)[0]
	s := startProxy(t, one+","+two+","+gone)
	load := s.steady()
	load.goOn(s)
	for _, width := range []int64{1280, 390} {
		p := s.console(width)
		state := func(name string) string {
			return `([...document.querySelectorAll('#upstreams-rows tr')].find(r => r.firstChild.textContent === '` + name + `')?.lastChild.textContent || '')`
		}
		p.until(state(one) + ` === 'well' && ` + state(two) + ` === 'well' && ` + state(gone) + `.startsWith('rests')`)
		p.until(`!document.getElementById('upstreams').hidden && document.querySelectorAll('#upstreams-rows tr').length === 3`)
		require.LessOrEqual(t, eval[int64](p, `document.documentElement.scrollWidth`), width)
		p.js(`document.getElementById('upstreams').scrollIntoView()`)
		p.settle()
		p.picture(fmt.Sprintf("upstreams-%d", width), chromedp.FullScreenshot(100))
	}
	require.Len(t, load.stop(), 1, "all are good")
	s.stop()
}
