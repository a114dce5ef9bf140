package lab

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-go/spillway/loadtest/generator"
	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

// runsFolder is where the results of the single runs are.
const runsFolder = "runs"

// check reports what of the scenario cannot be run.
func (l *comparing) check() error {
	if len(l.s.Combinations) == 0 || l.s.Repetitions < 1 {
		return fmt.Errorf("scenario %s: %d combinations and %d repetitions, want at least one of each",
			l.s.Name, len(l.s.Combinations), l.s.Repetitions)
	}
	for i := range l.groups {
		if err := l.checkCombination(&l.groups[i], &l.s.Combinations[i]); err != nil {
			return fmt.Errorf("scenario %s, combination %d: %s", l.s.Name, i+1, oneLine(err))
		}
	}
	return nil
}

// checkCombination learns what a group needs, and reports what is wrong with it.
func (l *comparing) checkCombination(g *grouping, c *scenario.Combination) error {
	var errs [2]error
	g.load, g.filling, errs[0] = loadOf(c)
	g.rate, errs[1] = parseRate(c.Rate)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if err := l.checkLoad(g, c); err != nil {
		return err
	}
	g.results = make([]*result.Result, l.s.Repetitions)
	simulated := l.o.Simulator != nil
	switch {
	case c.StoreParallel > 0 && (c.StoreDelay == "" || c.StoreDelay == "0") && !simulated:
		return errors.New("store_parallel bounds a delayed store: say store_delay as well, such as exp:4ms")
	case c.Fleet() && !simulated:
		return errors.New("nodes behind a load balancer are only simulated (loadtest simulate)")
	}
	return nil
}

// checkLoad adds what is sent besides to the load of a group, and reports what of that,
// and of the command that starts its service, is wrong.
func (l *comparing) checkLoad(g *grouping, c *scenario.Combination) error {
	name, ok := c.Command()
	command := l.o.Services[name]
	switch {
	case ok && l.o.Simulator != nil:
		return fmt.Errorf("%s: a command is not simulated, only run (loadtest compare)", c.Strategy)
	case ok && command == "":
		return fmt.Errorf("%s: there is no command of that name: say --service '%s=COMMAND'", c.Strategy, name)
	case ok && !strings.Contains(command, port):
		return fmt.Errorf("service: %q does not say where the port goes: {port}", command)
	case !ok && len(l.o.Services) > 0:
		return fmt.Errorf("%s: services that are started by commands are compared with each other alone", c.Strategy)
	}
	from, to := &l.o.Load, &g.load
	to.Targets, to.Headers, to.Good, to.Engine, to.HTTP = from.Targets, from.Headers, from.Good, from.Engine, from.HTTP
	to.CAFile, to.Insecure = from.CAFile, from.Insecure
	if len(to.Targets) == 0 {
		return nil
	}
	trial := to.WithDefaults()
	trial.URL = "http://127.0.0.1:1"
	if ok {
		trial.Targets = withPort(trial.Targets, "1")
	}
	return generator.Check(&trial)
}

// open makes the folder ready: for a new comparison, or to resume the one that
// is in it.
func (l *comparing) open(ctx context.Context) error {
	fresh, err := l.describe(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(l.o.Dir, runsFolder), 0o755); err != nil {
		return err
	}
	unlock, err := lock(l.o.Dir)
	if err != nil {
		return err
	}
	l.unlock = unlock
	if l.o.Restart {
		if err := discard(l.o.Dir); err != nil {
			return err
		}
	}
	before, err := LoadComparison(l.o.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.c = fresh
	case err != nil:
		return fmt.Errorf("%w (--restart discards it)", err)
	default:
		if other := before.differsFrom(fresh); other != "" {
			return fmt.Errorf("%s holds a comparison of another %s: --out chooses another folder, --restart discards what is there", l.o.Dir, other)
		}
		l.resume(before, fresh)
	}

	if before == nil {
		l.c.Machine = machine.This()
	}
	if l.stored() {
		if err := l.openStores(before == nil); err != nil {
			return err
		}
	}
	return l.save(l.progress())
}

// openStores makes the folder of the stores, and describes the disk if it has
// not been described before.
func (l *comparing) openStores(fresh bool) error {
	l.stores = stores{dir: filepath.Join(l.o.Dir, "stores"), fill: l.fill}
	if err := os.MkdirAll(l.stores.dir, 0o755); err != nil {
		return err
	}
	need, free := l.stores.missingBytes(l.fillings())
	if need > free && l.done() < l.total() {
		return fmt.Errorf("%s: stores and runs take about %d MB, and %d MB are free: %d MB are missing",
			l.stores.dir, need>>20, free>>20, (need-free)>>20+1)
	}
	if fresh {
		return l.c.Machine.DescribeDisk(l.stores.dir)
	}
	return nil
}

// discard removes an earlier comparison, and nothing that is not part of it.
func discard(dir string) error {
	runs, err := filepath.Glob(filepath.Join(dir, runsFolder, "[0-9][0-9][0-9]-*-r[0-9]*.*"))
	for _, file := range append(runs, filepath.Join(dir, comparisonFile)) {
		if failed := os.Remove(file); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// describe returns the comparison as it is before its first run.
func (l *comparing) describe(ctx context.Context) (*Comparison, error) {
	c := &Comparison{
		Scenario: *l.s,
		Command:  l.o.Command,
		Lab:      l.o.Lab,
		Started:  time.Now(),
		Order:    orderOf(len(l.groups), l.s.Repetitions, l.s.Seed),
		Groups:   groupsOf(l.s),
	}
	var err error
	if len(l.o.Load.Targets) > 0 {
		content, err := json.Marshal(l.o.Load.Targets)
		if err != nil {
			return nil, err
		}
		c.Targets = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	c.Good = l.groups[0].load.WithDefaults().Good
	if c.Services = l.o.Services; len(c.Services) > 0 {
		return c, nil
	}
	if c.Binary, err = digest(l.o.Binary); err != nil {
		return nil, fmt.Errorf("the service's binary: %w", err)
	}
	if l.o.Simulator != nil {
		c.Version = l.o.Simulator.Version()
		return c, nil
	}
	c.Version, err = version(ctx, l.o.Binary)
	return c, err
}

// differsFrom tells what keeps the runs of one comparison from being those of
// the other; empty if nothing does.
func (c *Comparison) differsFrom(other *Comparison) string {
	ours, err := json.Marshal(&c.Scenario)
	theirs, failed := json.Marshal(&other.Scenario)
	switch {
	case err != nil || failed != nil || !bytes.Equal(ours, theirs):
		return "scenario"
	case c.Version != other.Version:
		return fmt.Sprintf("service (%s; this is %s)", c.Version, other.Version)
	case c.Binary != other.Binary:
		return "build of the service"
	case !maps.Equal(c.Services, other.Services):
		return "service"
	case c.Good != other.Good:
		return fmt.Sprintf("set of good codes (%s)", cmp.Or(c.Good, "by operation"))
	case c.Targets != other.Targets:
		return "set of targets"
	}
	return ""
}

// resume takes over what has been measured before. What cannot be read is run
// again.
func (l *comparing) resume(before, fresh *Comparison) {
	l.c = fresh
	fresh.Started, fresh.Machine, fresh.Capacity = before.Started, before.Machine, before.Capacity
	for i := range before.Groups {
		made := map[string]bool{}
		for _, run := range before.Groups[i].Runs {
			made[run] = true
		}
		for repetition := range l.s.Repetitions {
			file := l.file(i, repetition)
			if !made[filepath.ToSlash(file)] {
				continue
			}
			if r, err := result.Load(filepath.Join(l.o.Dir, file)); err == nil && r.Partial == "" {
				l.keep(i, repetition, r)
			}
		}
	}
}

func digest(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}

// oneLine returns what an error says, as one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
