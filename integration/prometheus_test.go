//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/dashboards"
)

// prometheus is a running Prometheus.
type prometheus struct {
	t      testing.TB
	url    string
	cmd    *exec.Cmd
	log    *output
	exited chan struct{} // closed when the process has ended
	http   *http.Client
}

// tool returns the path of a program of the distribution's package.
func tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	require.NoError(t, err, "%s is missing: make deps", name)
	return path
}

// prometheusFiles writes the repository's Prometheus files into a folder, each
// as adapt returns it.
func prometheusFiles(t testing.TB, adapt func(name, text string) string) string {
	t.Helper()
	folder := t.TempDir()
	files, err := fs.ReadDir(dashboards.Files, "prometheus")
	require.NoError(t, err)
	for _, f := range files {
		text, err := dashboards.Files.ReadFile("prometheus/" + f.Name())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, f.Name()), []byte(adapt(f.Name(), string(text))), 0o600))
	}
	return folder
}

// watch starts a Prometheus with the repository's own configuration and rules,
// which scrapes the service and evaluates the rules twice a second. The windows
// of the rules, and how long alerts are held back, are rewritten by shorten.
func (s *service) watch(shorten func(rules string) string, others ...*service) *prometheus {
	s.t.Helper()
	return s.watchAndTell("127.0.0.1:1", shorten, others...) // nobody listens there
}

// watchAndTell is like watch, and tells an Alertmanager.
func (s *service) watchAndTell(alertmanager string, shorten func(rules string) string, others ...*service) *prometheus {
	s.t.Helper()
	var targets []string
	for _, watched := range append([]*service{s}, others...) {
		targets = append(targets, strconv.Quote(watched.admin))
	}
	folder := prometheusFiles(s.t, func(name, text string) string {
		switch name {
		case "prometheus.yml":
			for was, is := range map[string]string{
				`"spillway:6060"`:          strings.Join(targets, ", "),
				`"alertmanager:9093"`:      strconv.Quote(alertmanager),
				"scrape_interval: 5s":      "scrape_interval: 500ms",
				"evaluation_interval: 15s": "evaluation_interval: 500ms",
			} {
				require.Equal(s.t, 1, strings.Count(text, was), "%q in %s", was, name)
				text = strings.ReplaceAll(text, was, is)
			}
		case "rules.yml":
			return shorten(text)
		}
		return text
	})
	return launchPrometheus(s.t, folder)
}

// launchPrometheus starts Prometheus, which cannot choose a port itself, and waits
// until it is ready.
func launchPrometheus(t testing.TB, folder string) *prometheus {
	t.Helper()
	addr := freeAddresses(t, 1)[0]
	p := &prometheus{
		t:      t,
		url:    "http://" + addr,
		log:    new(output),
		exited: make(chan struct{}),
		http:   &http.Client{Timeout: patience, Transport: new(http.Transport)},
	}
	p.cmd = exec.Command(tool(t, "prometheus"),
		"--config.file="+filepath.Join(folder, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(folder, "data"),
		"--web.listen-address="+addr)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	require.NoError(t, startProcess(p.cmd, syscall.SIGKILL, p.exited))
	t.Cleanup(func() {
		p.http.CloseIdleConnections()
		_ = p.cmd.Process.Kill() // an error says that it has ended already
		<-p.exited
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", tail(p.log.String(), 4<<10))
		}
	})

	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.exited:
			t.Fatalf("Prometheus has ended (%v):\n%s", p.cmd.ProcessState, p.log)
		case <-deadline.C:
			t.Fatalf("Prometheus is not ready after %v:\n%s", patience, p.log)
		case <-tick.C:
			if resp, err := p.http.Get(p.url + "/-/ready"); err == nil {
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					return p
				}
			}
		}
	}
}

// eventually polls Prometheus until it has what is wanted. The condition returns
// what is missing, for the message, or "".
func (p *prometheus) eventually(what string, missing func() string) {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		gap := missing()
		if gap == "" {
			return
		}
		select {
		case <-p.exited:
			p.t.Fatalf("Prometheus has ended before %s", what)
		case <-deadline.C:
			p.t.Fatalf("waited %v until %s: %s", patience, what, gap)
		case <-tick.C:
		}
	}
}

// ask calls Prometheus's HTTP API and reads the data of the answer.
func (p *prometheus) ask(path string, values url.Values, data any) {
	p.t.Helper()
	resp, err := p.http.Get(p.url + "/api/v1/" + path + "?" + values.Encode())
	require.NoError(p.t, err)
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	require.NoError(p.t, err)
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	require.NoError(p.t, json.Unmarshal(body, &answer), "%s", body)
	require.Equal(p.t, "success", answer.Status, "%s: %s", values.Get("query"), answer.Error)
}

// series is one result of a query.
type series struct {
	Metric map[string]string
	Value  []any   // of an instant query: time, value
	Values [][]any // of a range query
}

// query asks for now, or for each second of the time since begin.
func (p *prometheus) query(expr string, instant bool, begin time.Time) []series {
	p.t.Helper()
	var data struct{ Result []series }
	if instant {
		p.ask("query", url.Values{"query": {expr}}, &data)
		return data.Result
	}
	p.ask("query_range", url.Values{
		"query": {expr},
		"start": {strconv.FormatInt(begin.Unix(), 10)},
		"end":   {strconv.FormatInt(time.Now().Unix()+1, 10)},
		"step":  {"1s"},
	}, &data)
	return data.Result
}

// hasNumber reports whether any of the values is a number.
func (s series) hasNumber() bool {
	for _, v := range append(s.Values, s.Value) {
		if len(v) == 2 && v[1] != "NaN" {
			return true
		}
	}
	return false
}

// firing returns the alerts that fire, each with its summary, but for that of the
// disk.
func (p *prometheus) firing() map[string]string {
	p.t.Helper()
	var data struct {
		Alerts []struct {
			Labels, Annotations map[string]string
			State               string
		}
	}
	p.ask("alerts", nil, &data)
	firing := make(map[string]string)
	for _, a := range data.Alerts {
		// The disk is the machine's, on which others write.
		if a.State == "firing" && a.Labels["alertname"] != "SpillwayDiskFilling" {
			firing[a.Labels["alertname"]] = a.Annotations["summary"]
		}
	}
	return firing
}

// awaitAlerts waits until these alerts fire, and no others.
func (p *prometheus) awaitAlerts(want ...string) {
	p.t.Helper()
	var firing map[string]string
	p.eventually(fmt.Sprint("these alerts alone fire: ", want), func() string {
		firing = p.firing()
		same := len(firing) == len(want)
		for _, alert := range want {
			_, fires := firing[alert]
			same = same && fires
		}
		if same {
			return ""
		}
		return fmt.Sprint("firing are ", firing)
	})
	p.t.Logf("firing: %v", firing)
}

// What Prometheus's own tools say of our metrics and files.
func TestPrometheus_Promtool(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool")
	s := start(t, raced)
	s.mixedLoad()
	exposition := s.request(http.MethodGet, s.adminURL("/metrics"), "").body
	folder := prometheusFiles(t, func(_, text string) string { return text })
	for _, test := range []struct {
		name  string
		args  []string
		stdin string
	}{
		{"check metrics", []string{"check", "metrics"}, exposition},
		{"check config", []string{"check", "config", "prometheus.yml"}, ""},
		{"check rules", []string{"check", "rules", "--lint-fatal", "rules.yml"}, ""},
		{"test rules", []string{"test", "rules", "rules_test.yml"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(promtool, test.args...)
			cmd.Dir = folder
			cmd.Stdin = strings.NewReader(test.stdin)
			said, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", said)
			if test.stdin != "" {
				require.Empty(t, string(said), "promtool has something to say about the metrics")
			}
		})
	}
}

// Alertmanager takes the repository's configuration, and hears of an alert.
func TestAlertmanager(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	config, err := dashboards.Files.ReadFile("prometheus/alertmanager.yml")
	require.NoError(t, err)
	file := filepath.Join(folder, "alertmanager.yml")
	require.NoError(t, os.WriteFile(file, config, 0o600))
	checked, err := exec.Command(tool(t, "amtool"), "check-config", file).CombinedOutput()
	require.NoError(t, err, "%s", checked)

	addr := freeAddresses(t, 1)[0] // it cannot choose a port itself
	log, exited := new(output), make(chan struct{})
	cmd := exec.Command(tool(t, "prometheus-alertmanager"), "--config.file="+file, "--storage.path="+filepath.Join(folder, "data"), "--web.listen-address="+addr, "--cluster.listen-address=")
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, startProcess(cmd, syscall.SIGKILL, exited))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("Alertmanager said:\n%s", tail(log.String(), 4<<10))
		}
	})

	s := start(t, plain)
	p := s.watchAndTell(addr, func(rules string) string {
		return regexp.MustCompile(`for: \w+`).ReplaceAllString(rules, "for: 1s")
	})
	s.stop()
	p.eventually("Alertmanager has heard of the service that is down", func() string {
		resp, err := p.http.Get("http://" + addr + "/api/v2/alerts")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(body), `"SpillwayDown"`) {
			return fmt.Sprintf("%v %s", err, body)
		}
		return ""
	})
}

// The alerts of overload fire while more arrives than is served, and not
// afterwards; that the service is down is told until it is back.
func TestPrometheus_Alerts(t *testing.T) {
	t.Parallel()
	folder, admin := "SPILLWAY_DATA_DIR="+filepath.Join(t.TempDir(), "data"), "SPILLWAY_ADMIN_LISTEN="+freeAddresses(t, 1)[0]
	s := start(t, plain, folder, admin, "SPILLWAY_WORKERS=1", "SPILLWAY_QUEUE_CAPACITY=1", "SPILLWAY_STORE_DELAY=50ms")
	p := s.watch(func(rules string) string {
		rules = regexp.MustCompile(`for: \w+`).ReplaceAllString(rules, "for: 1s")
		// The order of the windows is kept.
		for was, is := range map[string]string{"5m": "4s", "10m": "4s", "30m": "5s", "1h": "6s", "6h": "8s", "3d": "10s"} {
			rules = strings.ReplaceAll(rules, "["+was+"]", "["+is+"]")
		}
		return rules
	})
	p.eventually("the service is scraped", func() string {
		if len(p.query("up == 1", true, time.Time{})) == 0 {
			return "up is not 1"
		}
		return ""
	})
	p.awaitAlerts()

	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- concurrently(6, func(i int) error {
			c, err := dial(s.data)
			if err != nil {
				return err
			}
			defer c.close()
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-stop:
					return nil
				case <-pace.C:
				}
				if _, err := c.do(http.MethodPut, entity(fmt.Sprint("k", i)), "v"); err != nil {
					return err
				}
			}
		})
	}()
	p.awaitAlerts("SpillwayShedding", "SpillwaySaturated", "SpillwayObjectiveBurningFast", "SpillwayObjectiveBurningSlowly")
	close(stop)
	require.NoError(t, <-done)
	p.awaitAlerts()

	s.stop()
	p.awaitAlerts("SpillwayDown")
	again := start(t, plain, folder, admin)
	p.awaitAlerts()
	again.stop()
}
