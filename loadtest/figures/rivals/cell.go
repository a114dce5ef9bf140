package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/workload"
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
	MemoryBytes int64          `json:"memory_bytes"`
	Cold        *result.Result `json:"cold"`
	Warm        *result.Result `json:"warm"`
}

// bench measures cells, and keeps them in a folder.
type bench struct {
	dir    string
	self   string // this program
	build  string // that of Spillway
	window time.Duration
}

func (b *bench) file(u *upstream, l *load, r *rival, round int) string {
	return filepath.Join(b.dir, "cells", fmt.Sprintf("%s,%s,%s,%d.json", u.name, l.id(), r.name, round))
}

// start starts an upstream, with its files in dir.
func (b *bench) start(ctx context.Context, u *upstream, dir string) (*lab.Command, error) {
	file := filepath.Join(dir, u.file)
	if u.file != "" {
		text, err := files.ReadFile("files/" + u.file)
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	return lab.Start(ctx, func(port string) (string, error) {
		return strings.NewReplacer("{port}", port, "{dir}", dir, "{file}", file, "{self}", b.self).Replace(u.command), nil
	})
}

// capacity returns what the upstream alone can do, which is measured once.
func (b *bench) capacity(ctx context.Context, u *upstream) (capacity float64, err error) {
	file := filepath.Join(b.dir, u.name+".json")
	if err := read(file, &capacity); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return capacity, err
	}
	dir, err := os.MkdirTemp("", "rivals-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	command, err := b.start(ctx, u, dir)
	if err != nil {
		return 0, err
	}
	defer command.Kill()
	o := workload.Options{URL: "http://127.0.0.1:" + command.Port(), Connections: 64, Warmup: time.Second, Duration: 3 * time.Second,
		SLO: u.objective, Targets: []workload.Target{u.target()}}
	var served []float64
	for range 3 {
		r, err := generator.Run(ctx, o)
		if err != nil || r.Partial != "" {
			return 0, cmp.Or(err, errors.New("capacity of "+u.name+": "+r.Partial))
		}
		served = append(served, r.ServedRPS)
	}
	slices.Sort(served)
	capacity = served[1]
	for u.open {
		o.Rate, o.Duration = capacity, 15*time.Second
		r, err := generator.Run(ctx, o)
		if err != nil || r.Partial != "" {
			return 0, cmp.Or(err, errors.New("capacity of "+u.name+": "+r.Partial))
		}
		if r.GoodputRPS >= 0.95*r.OfferedRPS {
			break
		}
		capacity *= 0.9
	}
	return capacity, save(file, capacity)
}

// measure measures a cell.
func (b *bench) measure(ctx context.Context, u *upstream, l *load, r *rival, round int, capacity float64) (err error) {
	dir, err := os.MkdirTemp("", "rivals-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	command, err := b.start(ctx, u, dir)
	if err != nil {
		return err
	}
	defer command.Kill()
	c := cell{Upstream: u.name, Load: l.id(), Rival: r.name, Round: round, Capacity: capacity, Build: b.build}
	o := l.options(u, capacity, b.window)
	direct := "http://127.0.0.1:" + command.Port()
	front := command
	if r.command != "" {
		front, err = lab.Start(ctx, func(port string) (string, error) { return r.render(r.setting(u, port, command.Port(), dir)) })
		if err != nil {
			return err
		}
		defer front.Kill()
		o.ServerCPU = front.CPU
	}
	o.URL = "http://127.0.0.1:" + front.Port()
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
	if front != command {
		for _, id := range front.Processes() {
			c.MemoryBytes += largest(id)
		}
	}
	return save(b.file(u, l, r, round), c)
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
		q, err := http.NewRequestWithContext(ctx, http.MethodPut, url+"/places?n="+strconv.Itoa(n), http.NoBody)
		if err != nil {
			return err
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			return err
		}
		if err := a.Body.Close(); err != nil || a.StatusCode != http.StatusOK {
			return cmp.Or(err, fmt.Errorf("%s answered %s", q.URL, a.Status))
		}
	}
	return nil
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

func save(file string, what any) error {
	text, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return result.WriteFile(file, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

func read(file string, what any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, what); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
