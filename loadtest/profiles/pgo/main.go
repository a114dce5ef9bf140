// Command pgo merges recorded CPU profiles into one for the compiler, which says
// nothing of the machine that they were recorded on:
//
//	go run ./loadtest/profiles/pgo default.pgo PROFILE...
package main

import (
	"fmt"
	"os"

	"github.com/google/pprof/profile"

	"github.com/spillway-go/spillway/loadtest/profiles"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pgo FILE PROFILE...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pgo:", err)
		os.Exit(1)
	}
}

func run(to string, from []string) error {
	var all []*profile.Profile
	for _, path := range from {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		p, err := profiles.Parse(b)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, p)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return err
	}
	for _, m := range merged.Mapping {
		m.File, m.BuildID = "spillway", ""
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	if err := merged.Write(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
