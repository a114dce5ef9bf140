package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rivals:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("rivals", flag.ExitOnError)
	upstreamList := flags.String("upstreams", "", "names of upstreams, all by default: "+names(upstreams, func(u *upstream) string { return u.name }))
	loadList := flags.String("loads", "", "names of loads, all by default: "+names(loads, (*load).id))
	rivalList := flags.String("rivals", "", "names of rivals, all by default: "+names(rivals, func(r *rival) string { return r.name }))
	rounds := flags.Int("rounds", 1, "how many there are")
	window := flags.Duration("window", 4*time.Second, "how long each load is sent, cold and then warm")
	dir := flags.String("out", "reports/rivals", "the folder of the results")
	address := flags.String("serve", "", "be an upstream that listens there, of -places, each of which -takes a time")
	places := flags.Int("places", 8, "with -serve")
	takes := flags.Duration("takes", 50*time.Millisecond, "with -serve")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *address != "" {
		return serve(ctx, *address, *places, *takes)
	}
	us, e1 := chosen("-upstreams", *upstreamList, upstreams, func(u *upstream) string { return u.name })
	ls, e2 := chosen("-loads", *loadList, loads, (*load).id)
	rs, e3 := chosen("-rivals", *rivalList, rivals, func(r *rival) string { return r.name })
	if err := errors.Join(e1, e2, e3); err != nil {
		return err
	}
	if *rounds < 1 || *window < 2*time.Second {
		return fmt.Errorf("-rounds %d -window %v: at least one round, of windows of 2s", *rounds, *window)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	build, err := exec.CommandContext(ctx, "bin/spillway", "--version").Output()
	if err != nil {
		return fmt.Errorf("bin/spillway --version: %w; make build makes it", err)
	}
	us = slices.DeleteFunc(us, func(u *upstream) bool { return leftOut(u.name, u.needs) })
	rs = slices.DeleteFunc(rs, func(r *rival) bool { return leftOut(r.name, r.needs) })
	b := &bench{dir: *dir, self: self, build: strings.TrimSpace(string(build)), window: *window}
	if err := os.MkdirAll(filepath.Join(b.dir, cells), 0o755); err != nil {
		return err
	}
	failed := b.all(ctx, us, ls, rs, *rounds)
	return errors.Join(failed, b.report())
}

// all measures what is not in the folder yet. One that fails keeps no other from being measured.
func (b *bench) all(ctx context.Context, us []*upstream, ls []*load, rs []*rival, rounds int) (failed error) {
	for _, u := range us {
		for round := range rounds {
			for _, l := range ls {
				for _, r := range rs {
					_, err := os.Stat(b.file(u, l, r, round))
					if !l.fits(u, r) || !errors.Is(err, fs.ErrNotExist) {
						continue
					}
					name := fmt.Sprintf("%s, %s, %s, round %d", u.name, l.id(), r.name, round)
					if ctx.Err() != nil {
						return errors.Join(failed, ctx.Err())
					}
					if err := b.measure(ctx, u, l, r, round); err != nil {
						failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
						continue
					}
					fmt.Println(name)
				}
			}
		}
	}
	return failed
}

// leftOut tells whether what is called so has to be left out for want of a program, and says so.
func leftOut(name, program string) bool {
	if installed(program) {
		return false
	}
	fmt.Printf("%s is left out: %s is not installed\n", name, program)
	return true
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return program == "" || err == nil
}

func names[T any](table []T, name func(T) string) string {
	var all []string
	for _, row := range table {
		all = append(all, name(row))
	}
	return strings.Join(all, ", ")
}
