package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// target are the flags that say where load is sent, and over what.
type target struct {
	URL         string   `default:"http://127.0.0.1:8080" help:"Where the service answers."`
	Header      []string `sep:"none" placeholder:"NAME:VALUE" help:"A header to send with every request; may be repeated."`
	Connections int      `default:"64" help:"Connections that are open at once."`
	Loops       int      `help:"Threads that carry them; by default one for every two CPUs."`
}

// load are the flags that say what is sent.
type load struct {
	target          `embed:""`
	Arrivals        workload.Arrivals     `default:"poisson" help:"How requests are spread over time: poisson or constant."`
	Mix             workload.Mix          `default:"put=50,get=50" help:"Weights of put, get, delete and scan."`
	Keys            uint64                `default:"100000" help:"How many keys there are."`
	KeyDistribution workload.Distribution `default:"uniform" help:"How keys are chosen: uniform, zipf, sequential or latest."`
	ValueSize       workload.Sizes        `default:"100" help:"Bytes of a value, or a range such as 64-4096."`
	ScanLimit       int                   `default:"100" help:"Entries that a scan asks for."`
	Priority        *workload.Priorities  `help:"Spillway-Priority to send: 0 to 7, or weights such as 0=10,3=90."`
	Clients         workload.Clients      `placeholder:"WEIGHTS" help:"Spillway-Client to send, by weights such as greedy=95,other*19=5."`
	SLO             time.Duration         `name:"slo" default:"100ms" help:"Latency within which an answer is good."`
	Timeout         time.Duration         `default:"10s" help:"When a client gives up, counted from the scheduled time."`
	TimeoutHeader   bool                  `help:"Tell the service, in Spillway-Timeout-Ms."`
	Seed            uint64                `default:"1" help:"Runs with the same seed send the same requests."`
	Admin           string                `placeholder:"URL" help:"The service's admin URL: adds its CPU a request, its queue over time, and profiles."`
	AdminToken      string                `placeholder:"TOKEN" help:"Bearer token of the admin URL."`
}

// options returns the options that the flags stand for.
func (l *load) options() workload.Options {
	o := l.target.options()
	o.Arrivals, o.Mix, o.Keys, o.Distribution, o.ValueSize, o.ScanLimit = l.Arrivals, l.Mix, l.Keys, l.KeyDistribution, l.ValueSize, l.ScanLimit
	if l.Priority != nil {
		o.Priority = *l.Priority
	}
	o.Clients = l.Clients
	o.SLO, o.Timeout, o.TimeoutHeader, o.Seed = l.SLO, l.Timeout, l.TimeoutHeader, l.Seed
	o.Admin, o.AdminToken = l.Admin, l.AdminToken
	return o
}

func (t *target) options() workload.Options {
	o := workload.Options{URL: t.URL, Headers: t.Header, Connections: t.Connections, Loops: t.Loops}
	if o.Loops == 0 {
		o.Loops = workload.Options{Connections: t.Connections}.WithDefaults().Loops
	}
	return o
}

// check reports what is wrong with options that come from flags, where a zero is
// a bad value and not a default.
func check(o *workload.Options) error {
	err := generator.Check(o)
	if _, unreachable := errors.AsType[*net.DNSError](err); err == nil || unreachable {
		return err
	}
	return usageError{fmt.Errorf("--%w", err)}
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
	fault := func(path string, err error) error {
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = cause.Err
		}
		return usageError{fmt.Errorf("%s: %s: %w", flag, path, err)}
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fault(path, errors.New("is a folder"))
	case err == nil && !info.Mode().IsRegular():
		return nil // a device or a pipe is written to as it is
	}
	dir := filepath.Dir(path)
	if info, err = os.Stat(dir); err == nil && !info.IsDir() {
		err = errors.New("not a folder")
	}
	if err != nil {
		return fault(dir, err)
	}
	trial, err := os.CreateTemp(dir, ".loadtest-*")
	if err != nil {
		return fault(dir, err)
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}

// plural returns "1 run", "2 runs".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
