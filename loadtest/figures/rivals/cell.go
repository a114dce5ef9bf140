package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
)

// cell is what was measured of a rival before an upstream under a load.
type cell struct {
	Upstream string  `json:"upstream"`
	Load     string  `json:"load"`
	Rival    string  `json:"rival"`
	Round    int     `json:"round"`
	Capacity float64 `json:"capacity_rps"`
	Build    string  `json:"spillway_build"`
	// MemoryBytes is the sum of the rival's processes' largest resident sizes, 0 of nothing.
	MemoryBytes int64 `json:"memory_bytes"`
	// Others is the part of the machine's processor time that who has nothing to do with it took meanwhile, 0 to 1.
	Others float64        `json:"others_cpu"`
	Cold   *result.Result `json:"cold"`
	Warm   *result.Result `json:"warm"`
}

// bench measures cells, and keeps them in a folder.
type bench struct {
	dir    string
	self   string // this program
	build  string // that of Spillway
	window time.Duration
}

// cells is the folder of the cells in that of the bench.
const cells = "cells"

func (b *bench) file(u *upstream, l *load, r *rival, round int) string {
	return filepath.Join(b.dir, cells, fmt.Sprintf("%s,%s,%s,%d.json", u.name, l.id(), r.name, round))
}

// measure measures a cell.
func (b *bench) measure(ctx context.Context, u *upstream, l *load, r *rival, round int) (err error) {
	dir, err := os.MkdirTemp("", "rivals-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	command, err := lab.Start(ctx, func(port string) (string, error) {
		return render(u.file, u.command, setting{Port: port, Dir: dir, File: filepath.Join(dir, u.file), Self: b.self})
	})
	if err != nil {
		return err
	}
	defer command.Kill()
	c := cell{Upstream: u.name, Load: l.id(), Rival: r.name, Round: round, Capacity: u.capacity, Build: b.build}
	o := l.options(u, b.window)
	direct := "http://127.0.0.1:" + command.Port()
	t := u.target()
	if err := u.await(ctx, func(ctx context.Context) error { return ask(ctx, t.Method, direct+t.URL, t.Body) }); err != nil {
		return err
	}
	http.DefaultClient.CloseIdleConnections()
	front := command
	if r.command != "" {
		front, err = lab.Start(ctx, func(port string) (string, error) {
			return render(r.file, r.command, r.setting(u, port, command.Port(), dir))
		})
		if err != nil {
			return err
		}
		defer front.Kill()
		o.ServerCPU = front.CPU
	}
	o.URL = "http://127.0.0.1:" + front.Port()
	begin, others := time.Now(), othersCPU(command, front)
	for i, phase := range []**result.Result{&c.Cold, &c.Warm} {
		o.Seed, o.Warmup = uint64(2*round+i), time.Duration(i)*time.Second
		stepped := make(chan error, 1)
		stepping, end := context.WithCancel(ctx)
		go func() { stepped <- u.step(stepping, direct, o.Duration) }()
		*phase, err = generator.Run(ctx, o)
		end()
		if err = cmp.Or(err, <-stepped); err != nil {
			return err
		}
		if (*phase).Partial != "" && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	c.Others = (othersCPU(command, front) - others).Seconds() / time.Since(begin).Seconds() / float64(runtime.NumCPU())
	if front != command {
		for _, id := range front.Processes() {
			c.MemoryBytes += largest(id)
		}
	}
	return result.SaveJSON(b.file(u, l, r, round), c)
}

// await waits until the upstream does as many requests at once as it should: its port takes connections as soon as the
// first of its processes has started.
func (u *upstream) await(ctx context.Context, ask func(context.Context) error) error {
	const longest = 30 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("%s does not do %d requests at once in less than %v, for %v", u.name, u.places, 2*u.takes, longest))
	defer cancel()
	answers := make(chan error)
	for ctx.Err() == nil {
		begin, err := time.Now(), error(nil)
		for range u.places {
			go func() { answers <- ask(ctx) }()
		}
		for range u.places {
			err = cmp.Or(err, <-answers)
		}
		if err == nil && time.Since(begin) < 2*u.takes {
			return nil
		}
	}
	return context.Cause(ctx)
}

// ask sends a request, and returns an error unless it is answered with 200.
func ask(ctx context.Context, method, url string, body []byte) error {
	q, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json") // to a body
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, a.Body); err != nil {
		return cmp.Or(a.Body.Close(), err)
	}
	if err := a.Body.Close(); err != nil || a.StatusCode != http.StatusOK {
		return cmp.Or(err, fmt.Errorf("%s answered %s", q.URL, a.Status))
	}
	return nil
}

// step has the upstream's capacity change during a window, until ctx ends.
func (u *upstream) step(ctx context.Context, url string, window time.Duration) error {
	for i, n := range u.steps {
		if i > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(window / time.Duration(len(u.steps))):
			}
		}
		if err := ask(ctx, http.MethodPut, url+"/places?n="+strconv.Itoa(n), nil); err != nil {
			return err
		}
	}
	return nil
}

// othersCPU returns the processor time that all but we, an upstream and what is in front of it have used so far, in steps
// of 10 ms; time that a hypervisor gave to another machine is theirs. It is 0 where it cannot be told.
func othersCPU(upstream, front *lab.Command) time.Duration {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	var all time.Duration
	for i, word := range strings.Fields(line) {
		if ticks, err := strconv.ParseInt(word, 10, 64); err == nil && i != 4 && i != 5 && i <= 8 { // neither idle nor waiting, guests once
			all += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	if all == 0 {
		return 0
	}
	var ours syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ours) // it does not fail for oneself
	all -= time.Duration(ours.Utime.Nano() + ours.Stime.Nano())
	for _, c := range slices.Compact([]*lab.Command{upstream, front}) { // they are one where there is no rival
		used, _ := c.CPU()
		all -= used
	}
	return all
}

// largest returns the largest resident size of a process so far, in bytes; 0 if it has gone.
func largest(id int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "VmHWM:" {
			kilobytes, _ := strconv.ParseInt(words[1], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}
