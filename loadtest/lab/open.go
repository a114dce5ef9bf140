package lab

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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
	var err error
	if g.load, g.filling, err = loadOf(c); err != nil {
		return err
	}
	if g.load.Rate, g.relative, err = scenario.ParseRate(cmp.Or(c.Rate, "max")); err != nil {
		return fmt.Errorf("rate: %w", err)
	}
	if err := l.checkLoad(g, c); err != nil {
		return err
	}
	g.results = make([]*result.Result, l.s.Repetitions)
	simulated := l.o.Simulator != nil
	switch {
	case c.StoreParallel > 0 && (c.StoreDelay == "" || c.StoreDelay == "0") && !simulated:
		return errors.New("store_parallel bounds a delayed store: say store_delay as well, such as exp:4ms")
	case c.StoreSerial > 0 && !simulated:
		return errors.New("store_serial is only simulated (loadtest simulate)")
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

// ErrTaken is why a comparison does not begin where the results of another one are.
var ErrTaken = errors.New("holds a comparison")

// open makes the folder ready.
func (l *comparing) open(ctx context.Context) (err error) {
	if l.c, err = l.describe(ctx); err != nil {
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
	before, err := results(l.o.Dir)
	switch {
	case err != nil:
		return err
	case len(before) > 0 && !l.o.Restart && l.o.Simulator != nil:
		return fmt.Errorf("%s %w of a real service, or a part of one: --out chooses another folder", l.o.Dir, ErrTaken)
	case len(before) > 0 && !l.o.Restart:
		return fmt.Errorf("%s %w: --out chooses another folder, --restart discards what is there", l.o.Dir, ErrTaken)
	}
	if l.stored() {
		if err := l.openStores(); err != nil {
			return err
		}
	}
	// Nothing goes before it is known that this comparison can be made.
	for _, file := range before {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		return err
	}
	return l.save(l.progress())
}

// openStores makes the folder of the stores.
func (l *comparing) openStores() error {
	l.stores = stores{dir: filepath.Join(l.o.Dir, "stores"), fill: l.fill}
	if err := os.MkdirAll(l.stores.dir, 0o755); err != nil {
		return err
	}
	need, free := l.stores.missingBytes(l.fillings())
	if need > free {
		return fmt.Errorf("%s: stores and runs take about %d MB, and %d MB are free: %d MB are missing",
			l.stores.dir, need>>20, free>>20, (need-free)>>20+1)
	}
	return nil
}

// results returns the files of an earlier comparison, whole or not, and nothing that is not part
// of it.
func results(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, runsFolder, "[0-9][0-9][0-9]-*-r[0-9]*.*"))
	if _, missing := os.Stat(filepath.Join(dir, comparisonFile)); missing == nil {
		files = append(files, filepath.Join(dir, comparisonFile))
	}
	return files, err
}

// describe returns the comparison as it is before its first run.
func (l *comparing) describe(ctx context.Context) (*Comparison, error) {
	c := &Comparison{
		Scenario: *l.s,
		Machine:  machine.This(),
		Command:  l.o.Command,
		Lab:      l.o.Lab,
		Started:  time.Now(),
		Order:    orderOf(len(l.groups), l.s.Repetitions, l.s.Seed),
		Groups:   groupsOf(l.s),
	}
	c.Good = l.groups[0].load.WithDefaults().Good
	if c.Services = l.o.Services; len(c.Services) > 0 {
		return c, nil
	}
	content, err := os.ReadFile(l.o.Binary)
	if err != nil {
		return nil, fmt.Errorf("the service's binary: %w", err)
	}
	c.Binary = fmt.Sprintf("%x", sha256.Sum256(content))
	if l.o.Simulator != nil {
		c.Version = l.o.Simulator.Version()
		return c, nil
	}
	c.Version, err = version(ctx, l.o.Binary)
	return c, err
}

// oneLine returns what an error says, as one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
