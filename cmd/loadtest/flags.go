package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// defaultURL is where a service listens that was told nothing else.
const defaultURL = "http://127.0.0.1:8080"

// target are the flags that say where load is sent, and over what.
type target struct {
	URL         string `placeholder:"URL" help:"Where the service answers, https too; by default ${url}, or where all targets are."`
	carrier     `embed:""`
	Connections int `default:"64" help:"Connections that are open at once."`
	Loops       int `help:"How many loops share the connections, with the epoll engine a thread each; by default one for every two CPUs."`
}

// carrier are the flags that say how requests are carried.
type carrier struct {
	Header   []string        `sep:"none" placeholder:"NAME:VALUE" help:"A header to send with every request; may be repeated."`
	Engine   workload.Engine `default:"auto" help:"What carries the load: epoll (Linux, HTTP/1.1 in the clear, the fastest), portable (TLS, HTTP/2, every system), or auto."`
	HTTP     workload.HTTP   `name:"http" default:"auto" help:"Version of HTTP: 1.1, 2 (in the clear too), or auto: what a server over TLS offers, 1.1 in the clear."`
	CAFile   string          `name:"ca-file" placeholder:"FILE" help:"PEM file of certificate authorities to trust."`
	Insecure bool            `help:"Do not verify the server's certificate."`
}

func (c *carrier) carry(o *workload.Options) {
	o.Headers, o.Engine, o.HTTP, o.CAFile, o.Insecure = c.Header, c.Engine, c.HTTP, c.CAFile, c.Insecure
}

// sent are the flags that say what is sent to any HTTP service.
type sent struct {
	Target  []string       `sep:"none" placeholder:"'METHOD URL'" help:"Send this request to any HTTP service, in place of --mix; the URL may be a path under --url. May be repeated, with a weight before the method."`
	Targets string         `placeholder:"FILE" help:"Send the targets of a file in the text format of vegeta: METHOD URL, headers, @body."`
	Body    string         `placeholder:"FILE" help:"The body of targets that have none of their own."`
	Good    workload.Codes `placeholder:"CODES" help:"Status codes that are good, such as 2xx,304; by default 2xx and 3xx of targets, and of the --mix 2xx, 304, and 404 to a get."`
}

// add adds what the flags say to o.
func (s *sent) add(o *workload.Options) error {
	o.Good = s.Good
	var body []byte
	if s.Body != "" {
		var err error
		if body, err = os.ReadFile(s.Body); err != nil {
			return usageError{fmt.Errorf("--body: %w", err)}
		}
	}
	for _, text := range s.Target {
		t, err := workload.ParseTarget(text)
		if err != nil {
			return usageError{fmt.Errorf("--target: %w", err)}
		}
		o.Targets = append(o.Targets, t)
	}
	if s.Targets != "" {
		f, err := os.Open(s.Targets)
		if err != nil {
			return usageError{fmt.Errorf("--targets: %w", err)}
		}
		defer func() { _ = f.Close() }()
		read, err := workload.ReadTargets(f, os.ReadFile)
		if err != nil {
			return usageError{fmt.Errorf("--targets: %s: %w", s.Targets, err)}
		}
		for i := range read {
			read[i].Source = "targets: " + s.Targets
		}
		o.Targets = append(o.Targets, read...)
	}
	if s.Body != "" && len(o.Targets) == 0 {
		return usageError{errors.New("--body: it is that of a --target, and there is none")}
	}
	for i := range o.Targets {
		if o.Targets[i].Body == nil {
			o.Targets[i].Body = body
		}
	}
	return nil
}

// load are the flags that say what is sent.
type load struct {
	target          `embed:""`
	sent            `embed:""`
	Arrivals        workload.Arrivals     `default:"poisson" help:"How requests are spread over time: poisson or constant."`
	Mix             workload.Mix          `default:"put=50,get=50" help:"Weights of put, get, delete and scan."`
	Keys            uint64                `default:"100000" help:"How many keys there are."`
	KeyDistribution workload.Distribution `default:"uniform" help:"How keys are chosen: uniform, zipf, sequential or latest."`
	ValueSize       workload.Sizes        `default:"100" help:"Bytes of a value, or a range such as 64-4096."`
	ScanLimit       int                   `default:"100" help:"Entries that a scan asks for."`
	Priority        workload.Priorities   `placeholder:"PRIORITY" help:"Spillway-Priority to send: 0 to 7, or weights such as 0=10,3=90."`
	Clients         workload.Clients      `placeholder:"WEIGHTS" help:"Spillway-Client to send, by weights such as greedy=95,other*19=5."`
	SLO             time.Duration         `name:"slo" default:"100ms" help:"Latency within which an answer is good."`
	Timeout         time.Duration         `default:"10s" help:"When a client gives up, counted from the scheduled time."`
	TimeoutHeader   bool                  `help:"Tell the service the time-out, in Spillway-Timeout-Ms."`
	Seed            uint64                `default:"1" help:"Runs with the same seed send the same requests."`
	Admin           string                `placeholder:"URL" help:"The service's admin URL: adds its CPU per request, and profiles."`
	AdminToken      string                `placeholder:"TOKEN" help:"Bearer token of the admin URL."`
}

// options returns the options that the flags stand for.
func (l *load) options() (workload.Options, error) {
	o := l.target.options()
	o.Arrivals, o.Mix, o.Keys, o.Distribution, o.ValueSize, o.ScanLimit = l.Arrivals, l.Mix, l.Keys, l.KeyDistribution, l.ValueSize, l.ScanLimit
	o.Priority, o.Clients = l.Priority, l.Clients
	o.SLO, o.Timeout, o.TimeoutHeader, o.Seed = l.SLO, l.Timeout, l.TimeoutHeader, l.Seed
	o.Admin, o.AdminToken = l.Admin, l.AdminToken
	err := l.add(&o)
	// Targets that all say where they are need no default.
	if isPath := func(t workload.Target) bool { return strings.HasPrefix(t.URL, "/") }; l.URL == "" && len(o.Targets) > 0 && !slices.ContainsFunc(o.Targets, isPath) {
		o.URL = ""
	}
	return o, err
}

func (t *target) options() workload.Options {
	o := workload.Options{URL: cmp.Or(t.URL, defaultURL), Connections: t.Connections}
	o.Loops = cmp.Or(t.Loops, o.WithDefaults().Loops)
	t.carry(&o)
	return o
}

// check reports what is wrong with options that come from flags, where a zero is
// a bad value and not a default.
func check(o *workload.Options) error {
	if err := generator.Check(o); err != nil {
		return usageError{fmt.Errorf("--%w", err)}
	}
	return nil
}

// rate is requests a second; "max" is 0, a closed loop.
type rate float64

func (r *rate) UnmarshalText(text []byte) error {
	if string(text) == "max" {
		*r = 0
		return nil
	}
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(value > 0 && value <= 1e7) {
		return fmt.Errorf("%q is not a number of requests a second, above 0 and at most 10000000, or max", text)
	}
	*r = rate(value)
	return nil
}

// checkOutput finds out before a long run whether its results can be written.
func checkOutput(flag, path string) error {
	if path == "" || path == stdout {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return usageError{fmt.Errorf("%s: %s is a folder", flag, path)}
	case err == nil && !info.Mode().IsRegular():
		return nil // a device or a pipe is written to as it is
	}
	trial, err := os.CreateTemp(filepath.Dir(path), ".loadtest-*")
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		return usageError{fmt.Errorf("%s: %s: %w", flag, filepath.Dir(path), cause.Err)}
	} else if err != nil {
		return err
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}
