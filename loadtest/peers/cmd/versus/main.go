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
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"spillway/loadtest"
	"spillway/loadtest/peers"
	"spillway/loadtest/peers/versus"
	"spillway/strategies"
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

// settings are the flags.
type settings struct {
	service, peer, strategies, peers, out string
	against, vary                         string
	large                                 loadtest.ByteCount
	pairs, rounds, passes                 int
	keys, requests                        uint64
	duration                              time.Duration
	paced, paced1                         float64
	quick                                 bool
}

func parse(args []string, stderr io.Writer) (s settings, err error) {
	f := flag.NewFlagSet("versus", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.service, "service", "bin/spillway", "the service's `binary`")
	f.StringVar(&s.peer, "peer", "bin/peer", "the peers' `binary`")
	f.StringVar(&s.strategies, "strategies", "", "the service's strategies, by commas or spaces; by default fifo, sync and mpmc, and with -pairs all")
	f.StringVar(&s.peers, "peers", "", "the peers, likewise; by default all, with -pairs bare and plain, with -against none")
	f.StringVar(&s.out, "out", "reports/peers", "where the table (.md) and the figures (.json) go, without the ending; with -vary reports/peers-NAME by default")
	f.IntVar(&s.pairs, "pairs", 0, "answer the goals instead: CPU a request of every strategy, in so many `rounds` over 64 connections")
	f.StringVar(&s.against, "against", "", "compare two builds instead: another `binary` of the service, beside which that of -service is measured, over 64 connections")
	f.StringVar(&s.vary, "vary", "", "answer a question instead, by its `name`: how costs change with one thing, of "+strings.Join(versus.Questions(), ", "))
	f.TextVar(&s.large, "large", loadtest.ByteCount(10e9), "how many `bytes` the large store of -vary=store holds; the small one has a tenth, 100 MB at most")
	f.IntVar(&s.rounds, "rounds", 3, "how often everything is measured; with -vary 5 by default")
	f.IntVar(&s.passes, "passes", 1, "how often each is sent as much as it can serve, in each round; with -pairs and -against 3 by default")
	f.Uint64Var(&s.keys, "keys", 1_000_000, "how many values of 100 bytes the store holds")
	f.Uint64Var(&s.requests, "requests", 30_000, "how many requests are sent as fast as they are served; a quarter of it over one connection")
	f.DurationVar(&s.duration, "duration", 1500*time.Millisecond, "how long is sent at a fixed rate")
	f.Float64Var(&s.paced, "rate", 8000, "the fixed rate, in requests a second")
	f.Float64Var(&s.paced1, "rate1", 2000, "the fixed rate over one connection")
	f.BoolVar(&s.quick, "quick", false, "one short round over a small store: shows that all works, and measures nothing")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("%q is no flag", f.Arg(0))
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if s.pairs > 0 && s.against != "" {
		return s, errors.New("-pairs is of the service beside its peers, -against beside another build: choose one")
	}
	if s.vary != "" {
		for _, other := range []string{"pairs", "against", "strategies", "peers", "rate", "rate1", "duration"} {
			if given[other] {
				return s, fmt.Errorf("-vary says itself who is sent what: choose it or -%s", other)
			}
		}
		if !given["rounds"] {
			s.rounds = 5
		}
		if !given["out"] {
			s.out = "reports/peers-" + s.vary
		}
	}
	if s.pairs > 0 {
		s.rounds = s.pairs
	}
	if s.narrow() && !given["passes"] {
		s.passes = 3
	}
	if s.quick {
		s.rounds, s.keys, s.requests, s.duration = 1, 10_000, 2_000, 200*time.Millisecond
		if !given["large"] {
			s.large = 20e6
		}
	}
	const leastLarge = 100_000 // of which a tenth holds some values
	if s.large < leastLarge {
		return s, fmt.Errorf("large: %v is less than %v", s.large, loadtest.ByteCount(leastLarge))
	}
	if s.rounds < 1 || s.passes < 1 || s.keys < 1 || s.requests < 1 || s.duration <= 0 || !(s.paced > 0) || !(s.paced1 > 0) {
		return s, errors.New("rounds, passes, keys, requests, duration and rates must be more than 0")
	}
	return s, nil
}

// narrow says that only what is asked for is measured: CPU a request over 64
// connections.
func (s *settings) narrow() bool { return s.pairs > 0 || s.against != "" }

// list splits at commas and spaces; of nothing it is the default.
func list(text string, byDefault ...string) []string {
	if l := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }); len(l) > 0 {
		return l
	}
	return byDefault
}

// contestants returns the peers and then the strategies. All have the same cache,
// and the service has room for all that can be under way, as the peers have.
func (s *settings) contestants() (all []versus.Contestant, err error) {
	common := []string{"SPILLWAY_SYNC=never", "SPILLWAY_CACHE_BYTES=268435456"}
	names := list(s.peers, peers.Names...)
	chosen := list(s.strategies, "fifo", "sync", "mpmc")
	if s.pairs > 0 {
		names = list(s.peers, "bare", "plain")
		chosen = list(s.strategies, strategies.Names()...)
	}
	if s.against != "" {
		names = list(s.peers)
	}
	for _, name := range names {
		if !slices.Contains(peers.Names, name) {
			return nil, fmt.Errorf("there is no peer %q, choose of %s", name, strings.Join(peers.Names, ", "))
		}
		all = append(all, versus.Contestant{Name: name, Binary: s.peer, Env: append([]string{"SPILLWAY_PEER=" + name}, common...)})
	}
	for _, name := range chosen {
		if _, err := strategies.Lookup(name); err != nil {
			return nil, err
		}
		c := versus.Contestant{Name: name, Binary: s.service, Env: append([]string{
			"SPILLWAY_STRATEGY=" + name, "SPILLWAY_QUEUE_CAPACITY=1024",
		}, common...)}
		if s.against != "" {
			other := c
			other.Name, other.Binary = versus.OtherBuild(name), s.against
			all = append(all, other)
		}
		all = append(all, c)
	}
	return all, nil
}

// loads returns what is sent. All reads come first, while the store is what it
// was.
func (s *settings) loads() (all []versus.Load) {
	for _, op := range []loadtest.Op{loadtest.Get, loadtest.Put} {
		for _, connections := range []int{1, 64, 1024} {
			load := versus.Load{Op: op, Name: strings.ToUpper(op.String()), Connections: connections}
			if !s.narrow() || connections == 64 {
				all = append(all, load)
			}
			if s.narrow() {
				continue
			}
			load.Rate = s.paced
			if connections == 1 {
				load.Rate = s.paced1
			}
			all = append(all, load)
		}
	}
	return all
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	o, write, err := s.options()
	if err != nil {
		return err
	}
	o.Dir, o.Rounds, o.Passes, o.Requests, o.Duration = s.out+"-stores", s.rounds, s.passes, s.requests, s.duration
	o.Progress = func(next string) { _, _ = fmt.Fprintln(stderr, next) }
	if err := os.MkdirAll(filepath.Dir(s.out), 0o755); err != nil {
		return err
	}
	result, err := versus.Run(ctx, o)
	if result == nil || len(result.Rounds) == 0 {
		return err
	}
	return errors.Join(err, s.save(result, write, stdout))
}

// options returns what is measured, and what writes it down.
func (s *settings) options() (o versus.Options, write func(io.Writer, *versus.Result) error, err error) {
	if s.vary == "" {
		contestants, err := s.contestants()
		return versus.Options{Contestants: contestants, Loads: s.loads(), Filler: s.service, Keys: s.keys}, s.write, err
	}
	setup := versus.Setup{Service: s.service, Peer: s.peer, Keys: s.keys, Large: uint64(s.large), Quick: s.quick}
	q, err := versus.Ask(s.vary, setup)
	if err != nil {
		return o, nil, err
	}
	return q.Options(setup), q.Write, nil
}

// write writes the tables that are not of a question.
func (s *settings) write(w io.Writer, r *versus.Result) error {
	base := map[bool]string{false: "*bare*", true: "the other"}[s.narrow()]
	_, err := io.WriteString(w, "# Spillway beside its peers\n\n")
	err = errors.Join(err, r.WriteConditions(w, base))
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	switch {
	case err != nil:
		return err
	case s.pairs > 0:
		return r.WriteGoals(w, peers.Names)
	case s.against != "":
		return r.WriteBuilds(w)
	default:
		return r.WriteTable(w, "bare")
	}
}

// save writes what was measured into its files, and the table to stdout.
func (s *settings) save(r *versus.Result, write func(io.Writer, *versus.Result) error, stdout io.Writer) error {
	var b strings.Builder
	if err := write(&b, r); err != nil {
		return err
	}
	figures, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, b.String())
	return errors.Join(err,
		os.WriteFile(s.out+".md", []byte(b.String()), 0o644),
		os.WriteFile(s.out+".json", append(figures, '\n'), 0o644))
}
