package main

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/spillway-go/spillway/loadtest/workload"
)

// files are the templates of what upstreams and rivals read.
//
//go:embed files
var files embed.FS

var templates = template.Must(template.ParseFS(files, "files/*"))

// upstream is a service that does so many requests at once, each of which takes so long.
type upstream struct {
	name    string
	needs   string // a program, if not only Go
	file    string // of files
	command string // of the shell, a template of setting
	places  int
	takes   time.Duration
	told    int // to who must be told a number, if another than places keeps them busier
	// objective is within what an answer is good.
	objective time.Duration
	method    string
	path      string
	body      string
	// capacity is a second: places by time, but where more at once slow each other down.
	capacity float64
	// steps are the places in the first, second and last third of a window.
	steps []int
}

var upstreams = []*upstream{
	// A fifth that waits in its backlog is there as soon as a worker ends one.
	{name: "gunicorn", capacity: 200, needs: "gunicorn", file: "gunicorn.py", places: 4, told: 5, takes: 20 * time.Millisecond, objective: 200 * time.Millisecond,
		command: "cp {{.File}} {{.Dir}}/app.py; exec gunicorn --chdir {{.Dir}} --log-level error -w 4 -b 127.0.0.1:{{.Port}} app:app"},
	{name: "go", capacity: 160, places: 8, takes: 50 * time.Millisecond, objective: 500 * time.Millisecond,
		command: "exec {{.Self}} -serve 127.0.0.1:{{.Port}} -places 8 -takes 50ms"},
	// It forks three, and serves itself. One of the four may take two connections while another idles: of eight each mostly has one.
	{name: "php", capacity: 200, needs: "php", file: "php.php", places: 4, told: 8, takes: 20 * time.Millisecond, objective: 200 * time.Millisecond,
		command: "exec env PHP_CLI_SERVER_WORKERS=3 php -q -S 127.0.0.1:{{.Port}} {{.File}} 2>/dev/null"},
	// One thread computes; with a second request at hand it does not wait for the proxy.
	{name: "node", capacity: 200, needs: "node", file: "node.js", places: 2, takes: 10 * time.Millisecond, objective: 200 * time.Millisecond,
		command: "exec node {{.File}} {{.Port}}"},
	// Twice as many lose little of 200 ms when there are 8 or 4, and keep more busy when there are 32.
	{name: "steps", capacity: 400, places: 8, told: 16, takes: 20 * time.Millisecond, objective: 200 * time.Millisecond, steps: []int{8, 32, 4},
		command: "exec {{.Self}} -serve 127.0.0.1:{{.Port}} -places 8 -takes 20ms"},
	// The highest rate of open arrivals of which 95% are in time: each that begins holds up all. A closed loop of 8 gets more.
	{name: "model", capacity: 6, needs: "xpyd-sim", places: 8, takes: 450 * time.Millisecond, objective: time.Second,
		method: "POST", path: "/v1/completions", body: `{"model":"x","prompt":"hello there","max_tokens":20}`,
		command: "exec xpyd-sim serve --host 127.0.0.1 --port {{.Port}} --prefill-delay-ms 50 --kv-transfer-delay-ms 0 " +
			"--decode-delay-per-token-ms 20 --max-num-seqs 8 --scheduling --eos-min-ratio 1 >/dev/null 2>&1"},
}

// rival is what may stand before an upstream.
type rival struct {
	name  string
	needs string
	file  string // the template of its configuration
	// command is of the shell, a template of setting; empty for nothing at all.
	command string
	ours    bool
	// told says that it is told how many requests the upstream does at once.
	told bool
	// only is the one load that it is for, whatever the connections.
	only string
	// What is in the configuration.
	adaptive, admission bool
	queue               float64 // how long a request may wait, of ours may take, in objectives
	docs                []string
}

const (
	spillway = "exec bin/spillway proxy --upstream http://127.0.0.1:{{.Upstream}} --listen 127.0.0.1:{{.Port}} " +
		"--admin-listen 127.0.0.1:0 --log-level error --proxy-trust-headers=true"
	objective = spillway + " --slo {{.Queue}}"

	envoy      = "exec envoy -c {{.File}} --log-level off --use-dynamic-base-id >/dev/null 2>&1"
	envoyDocs  = "https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/"
	spillwayIs = "https://github.com/spillway-go/spillway/blob/main/docs/"
)

var rivals = []*rival{
	{name: "nothing"},
	{name: "envoy-adaptive", needs: "envoy", file: "envoy.yaml", command: envoy, adaptive: true,
		docs: []string{envoyDocs + "adaptive_concurrency_filter"}},
	{name: "envoy-admission", needs: "envoy", file: "envoy.yaml", command: envoy, admission: true,
		docs: []string{envoyDocs + "admission_control_filter"}},
	{name: "envoy-both", needs: "envoy", file: "envoy.yaml", command: envoy, adaptive: true, admission: true,
		docs: []string{envoyDocs + "adaptive_concurrency_filter", envoyDocs + "admission_control_filter"}},
	{name: "caddy", needs: "caddy", file: "Caddyfile", command: "exec env XDG_DATA_HOME={{.Dir}} XDG_CONFIG_HOME={{.Dir}} caddy run --config {{.File}} --adapter caddyfile 2>/dev/null",
		docs: []string{"https://caddyserver.com/docs/caddyfile/directives/reverse_proxy"}},
	{name: "spillway-learned", ours: true, command: spillway, docs: []string{spillwayIs + "concurrency.md"}},
	{name: "spillway-objective", ours: true, command: objective, queue: 1, docs: []string{spillwayIs + "proxy.md"}},
	{name: "spillway-fair", ours: true, only: "greedy", command: objective + " --strategy fair", queue: 1, docs: []string{spillwayIs + "strategies.md"}},
	{name: "spillway-priority", ours: true, told: true, only: "important", command: spillway + " --strategy priority --workers {{.Places}} --queue-capacity {{.Waiting}}", docs: []string{spillwayIs + "strategies.md"}},
	{name: "envoy-breaker", needs: "envoy", file: "envoy.yaml", command: envoy, told: true,
		docs: []string{"https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/circuit_breaking"}},
	{name: "haproxy", needs: "haproxy", file: "haproxy.cfg", command: "exec haproxy -db -f {{.File}} 2>/dev/null", told: true, queue: 1,
		docs: []string{"https://docs.haproxy.org/2.6/configuration.html#5.2-maxconn", "https://docs.haproxy.org/2.6/configuration.html#4-timeout%20queue"}},
	{name: "haproxy-half", needs: "haproxy", file: "haproxy.cfg", command: "exec haproxy -db -f {{.File}} 2>/dev/null", told: true, queue: 0.5,
		docs: []string{"https://docs.haproxy.org/2.6/configuration.html#4-timeout%20queue"}},
	{name: "nginx", needs: "nginx", file: "nginx.conf", command: "exec nginx -c {{.File}}", told: true,
		docs: []string{"https://nginx.org/en/docs/http/ngx_http_limit_conn_module.html"}},
	{name: "spillway-told", ours: true, told: true, command: objective + " --workers {{.Places}}", queue: 1, docs: []string{spillwayIs + "proxy.md"}},
	{name: "spillway-half", ours: true, told: true, command: objective + " --workers {{.Places}}", queue: 0.5, docs: []string{spillwayIs + "proxy.md"}},
	{name: "spillway-fifo", ours: true, told: true, command: spillway + " --strategy fifo --workers {{.Places}} --queue-capacity {{.Waiting}}", docs: []string{spillwayIs + "strategies.md"}},
}

// load is what is sent: first to what has just been started (cold), then once more (warm).
type load struct {
	name        string
	multiple    float64 // of the capacity
	connections int
	windows     int // how many times as long as others
	profile     workload.Profile
	clients     workload.Clients
	priority    workload.Priorities
	// of is the class whose good answers are told too.
	of string
	// steps says that the capacity changes: of upstreams that can.
	steps bool
}

// spikeLength is a part of the window.
const spikeLength, spikeAfter = 0.25, (1 - 0.25) / 4

var loads = func() (all []*load) {
	for _, connections := range []int{64, 2000} {
		for _, multiple := range []float64{0.5, 0.9, 1.2, 2, 5} {
			all = append(all, &load{name: fmt.Sprintf("%gx", multiple), multiple: multiple, connections: connections, windows: 1})
		}
		all = append(all,
			&load{name: "spike", multiple: 0.8, connections: connections, windows: 2, profile: "spike:5x,"},
			&load{name: "greedy", multiple: 2, connections: connections, windows: 1, clients: "greedy=95,other*19=5", of: "client other"},
			&load{name: "important", multiple: 2, connections: connections, windows: 1, priority: workload.Priorities{0: 10, 3: 90}, of: "priority 0"},
			&load{name: "step", multiple: 2, connections: connections, windows: 3, steps: true})
	}
	return all
}()

// id is how the command and the report call the load.
func (l *load) id() string { return l.name + "-" + strconv.Itoa(l.connections) }

// fits says whether a rival and an upstream are measured under the load.
func (l *load) fits(u *upstream, r *rival) bool {
	return (r.only == "" || r.only == l.name) && l.steps == (u.steps != nil)
}

// options returns the load that is sent for so long a window.
func (l *load) options(u *upstream, window time.Duration) workload.Options {
	window *= time.Duration(l.windows)
	o := workload.Options{
		Rate: l.multiple * u.capacity, Connections: l.connections, Duration: window, Clients: l.clients, Priority: l.priority,
		SLO: u.objective, Timeout: 10 * u.objective, Targets: []workload.Target{u.target()},
	}
	if l.profile != "" {
		o.Profile = l.profile + workload.Profile(time.Duration(float64(window)*spikeLength).String())
	}
	return o
}

func (u *upstream) target() workload.Target {
	t := workload.Target{Method: "GET", URL: "/" + strings.TrimPrefix(u.path, "/"), Body: []byte(u.body)}
	if u.method != "" {
		t.Method, t.Headers = u.method, []string{"Content-Type: application/json"}
	}
	return t
}

// setting is what templates know.
type setting struct {
	Port, Upstream, Dir, File string
	Self                      string // this program, to upstreams alone
	Objective                 string // in seconds, which all but HAProxy read with a fraction
	Queue                     string // in milliseconds
	Places                    int
	Told, Adaptive, Admission bool
	// Waiting is how many may wait for half of the objective, Limit these and those that are served: the best number
	// for who counts both, or has no other bound of its queue.
	Waiting, Limit int
}

// setting returns what a rival is told of an upstream.
func (r *rival) setting(u *upstream, port, upstreamPort, dir string) setting {
	s := setting{
		Port: port, Upstream: upstreamPort, Dir: dir, File: filepath.Join(dir, r.file),
		Objective: strconv.FormatFloat(u.objective.Seconds(), 'f', -1, 64) + "s",
		Queue:     strconv.FormatFloat(r.queue*float64(u.objective.Milliseconds()), 'f', 0, 64) + "ms",
		Places:    cmp.Or(u.told, u.places), Told: r.told, Adaptive: r.adaptive, Admission: r.admission,
	}
	s.Waiting = int(float64(u.places) * float64(u.objective) / float64(u.takes) / 2)
	s.Limit = s.Places + s.Waiting
	return s
}

// render writes the file that a command reads, if there is one, to the folder, and returns the command.
func render(file, line string, s setting) (string, error) {
	var text, command bytes.Buffer
	if file != "" {
		err := templates.ExecuteTemplate(&text, file, s)
		if err == nil {
			err = os.WriteFile(s.File, text.Bytes(), 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	t, err := template.New("command").Parse(line)
	if err == nil {
		err = t.Execute(&command, s)
	}
	return command.String(), err
}

// chosen returns the rows of a table whose names are in the list, all for an empty one, in the table's order.
func chosen[T any](what, list string, table []T, name func(T) string) (rows []T, err error) {
	want := strings.FieldsFunc(list, func(c rune) bool { return c == ' ' || c == ',' })
	for _, w := range want {
		if !slices.ContainsFunc(table, func(row T) bool { return name(row) == w }) {
			return nil, fmt.Errorf("%s: there is no %q; there are %s", what, w, names(table, name))
		}
	}
	for _, row := range table {
		if len(want) == 0 || slices.Contains(want, name(row)) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}
