// Command versus measures the service beside what a user would run instead, and
// writes the table. make peers builds everything and runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/peers"
	"github.com/spillway-go/spillway/loadtest/peers/versus"
	"github.com/spillway-go/spillway/loadtest/workload"
	"github.com/spillway-go/spillway/strategies"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "versus:", err)
		os.Exit(1)
	}
}

// settings are the flags, and the question that they ask.
type settings struct {
	versus.Setup
	question string
	out      string
	how      lab.PairOptions // how much is measured
}

func parse(args []string, stderr io.Writer) (s settings, err error) {
	f := flag.NewFlagSet("versus", flag.ContinueOnError)
	f.SetOutput(stderr)
	names := func(name, usage string, into *[]string) {
		f.Func(name, usage, func(text string) error {
			*into = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
			return nil
		})
	}
	f.StringVar(&s.Service, "service", "bin/spillway", "the service's `binary`")
	f.StringVar(&s.Peer, "peer", "bin/peer", "the peers' `binary`")
	f.StringVar(&s.Java, "java", "bin/java", "the `folder` of the server in Java, for -vary=systems")
	names("strategies", "the service's strategies, by commas or spaces; by default fifo, sync and mpmc, and with -pairs all", &s.Strategies)
	names("peers", "the peers, likewise; by default all, with -pairs bare and plain", &s.Peers)
	f.StringVar(&s.out, "out", "reports/peers", "where the table (.md) and the figures (.json) go, without the ending; with -vary reports/peers-NAME by default")
	pairs := f.Int("pairs", 0, "answer the goals instead: CPU per request of every strategy, in so many `rounds` over 64 connections")
	f.StringVar(&s.Other, "against", "", "compare two builds instead: another `binary` of the service, beside which that of -service is measured, over 64 connections")
	vary := f.String("vary", "", "answer a question instead, by its `name`: how costs change with one thing, of "+strings.Join(versus.Questions(), ", "))
	large := workload.ByteCount(10e9)
	f.TextVar(&large, "large", large, "how many `bytes` the large store of -vary=store holds; the small one has a tenth, 100 MB at most")
	f.IntVar(&s.how.Rounds, "rounds", lab.ProofRuns, "how often everything is measured; less than 4 can prove nothing")
	f.IntVar(&s.how.Passes, "passes", 1, "how often each is sent as much as it can serve, in each round; with -pairs and -against 3 by default")
	f.Uint64Var(&s.Keys, "keys", 1_000_000, "how many values of 100 bytes the store holds")
	f.BoolVar(&s.Quick, "quick", false, "one short round over a small store: shows that all works, and measures nothing")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("%q is no flag", f.Arg(0))
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	s.question, s.how.Requests, s.how.Duration = "peers", 30_000, 1500*time.Millisecond
	switch {
	case *vary != "":
		for _, other := range []string{"pairs", "against", "strategies", "peers"} {
			if given[other] {
				return s, fmt.Errorf("-vary says itself who is sent what: choose it or -%s", other)
			}
		}
		if !slices.Contains(versus.Questions(), *vary) {
			return s, fmt.Errorf("there is no question %q, choose of %s", *vary, strings.Join(versus.Questions(), ", "))
		}
		s.question = *vary
		if !given["out"] {
			s.out = "reports/peers-" + *vary
		}
	case *pairs > 0 && s.Other != "":
		return s, errors.New("-pairs is of the service beside its peers, -against beside another build: choose one")
	case *pairs > 0:
		s.question, s.how.Rounds = "pairs", *pairs
	case s.Other != "":
		s.question = "against"
	}
	if (s.question == "pairs" || s.question == "against") && !given["passes"] {
		s.how.Passes = 3
	}
	if s.question == "systems" && !given["keys"] {
		s.Keys = workload.MaxTargets // each is a target of those that speak HTTP in their own way
	}
	if s.Quick {
		s.how.Rounds, s.Keys, s.how.Requests, s.how.Duration = 1, 10_000, 2_000, 200*time.Millisecond
		if !given["large"] {
			large = 20e6
		}
	}
	s.Large = uint64(large)
	const leastLarge = 100_000 // of which a tenth holds some values
	if large < leastLarge {
		return s, fmt.Errorf("large: %v is less than %v", large, workload.ByteCount(leastLarge))
	}
	if s.how.Rounds < 1 || s.how.Passes < 1 || s.Keys < 1 {
		return s, errors.New("rounds, passes and keys must be more than 0")
	}
	if s.question == "systems" && s.Keys > workload.MaxTargets {
		return s, fmt.Errorf("keys: of the systems each is a target of its own, at most %d", workload.MaxTargets)
	}
	for _, name := range s.Peers {
		if !slices.Contains(peers.Names, name) {
			return s, fmt.Errorf("there is no peer %q, choose of %s", name, strings.Join(peers.Names, ", "))
		}
	}
	for _, name := range s.Strategies {
		if _, err := strategies.Lookup(name); err != nil {
			return s, err
		}
	}
	return s, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	q, err := versus.Ask(s.question, s.Setup)
	if err != nil {
		return err
	}
	o := s.how
	o.Contestants, o.Loads, o.Filler, o.Keys, o.Dir = q.Contestants, q.Loads, s.Service, s.Keys, s.out+"-stores"
	o.Progress = func(next string) { _, _ = fmt.Fprintln(stderr, next) }
	if err := os.MkdirAll(filepath.Dir(s.out), 0o755); err != nil {
		return err
	}
	found, err := lab.Pair(ctx, o)
	if found == nil || found.Rounds() == 0 {
		return err
	}
	found.Command = strings.Join(append([]string{"bin/versus"}, args...), " ")
	if said, err := exec.CommandContext(ctx, s.Service, "--version").Output(); err == nil {
		found.Version = strings.TrimSpace(string(said))
	}
	return errors.Join(err, save(q, found, s.out, stdout))
}

// save writes what was found into its files, and the table to stdout.
func save(q *versus.Question, found *lab.Comparison, out string, stdout io.Writer) error {
	var b strings.Builder
	if err := q.Write(&b, found); err != nil {
		return err
	}
	figures, err := json.MarshalIndent(found, "", "\t")
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, b.String())
	return errors.Join(err,
		os.WriteFile(out+".md", []byte(b.String()), 0o644),
		os.WriteFile(out+".json", append(figures, '\n'), 0o644))
}
