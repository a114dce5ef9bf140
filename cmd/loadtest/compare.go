package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/internal/version"
	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
)

type compareCommand struct {
	comparison `embed:""`
	Service    []string `sep:"none" placeholder:"[NAME=]COMMAND" help:"Start this as the service, in the place of Spillway: any command of the shell, in which {port} is the port to listen on. May be repeated: services are compared with each other."`
	carrier    `embed:""`
	sent       `embed:""`

	Out     string `placeholder:"FOLDER" help:"Folder of the results; by default reports/NAME, or one named after the settings."`
	Restart bool   `help:"Discard the comparison that is there."`
	Binary  string `placeholder:"FILE" help:"The service; by default spillway beside this program, or in the PATH."`
}

// Help is shown by compare --help.
func (*compareCommand) Help() string {
	return "The service is started once for every run, repetitions interleaved. Of an interrupted comparison there is a report of what was run."
}

// Run makes the comparison, and its report.
func (c *compareCommand) Run(ctx context.Context, s *session) error {
	services, names, err := commands(c.Service)
	if err != nil {
		return usageError{err}
	}
	what, err := c.scenario(names)
	if err != nil {
		return usageError{err}
	}
	var send workload.Options
	c.carry(&send)
	if err := c.add(&send); err != nil {
		return err
	}
	var service string
	if len(services) == 0 {
		if service, err = c.spillway(); err != nil {
			return err
		}
	}
	dir := c.Out
	if dir == "" {
		if dir, err = c.folder(what, services, &send); err != nil {
			return err
		}
	}
	return s.compare(ctx, what, lab.CompareOptions{
		Binary: service, Services: services, Load: send, Dir: dir, Restart: c.Restart, Lab: version.Get().String(),
	})
}

// commands reads NAME=COMMAND or COMMAND, and returns the commands by name, and what
// combinations call them, in their order.
func commands(texts []string) (map[string]string, []string, error) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	var called []string
	services := map[string]string{}
	for i, text := range texts {
		name, command, named := strings.Cut(text, "=")
		if !named || name == "" || strings.Trim(name, letters) != "" {
			if name, command = "service", text; len(texts) > 1 {
				name = fmt.Sprintf("service-%d", i+1)
			}
		}
		if strings.TrimSpace(command) == "" || services[name] != "" {
			return nil, nil, fmt.Errorf("--service: %q: want a command, or NAME=COMMAND with a name of its own", text)
		}
		if !strings.Contains(command, "{port}") {
			return nil, nil, fmt.Errorf("--service: %q does not say where the port goes: {port}", command)
		}
		services[name] = command
		called = append(called, "service:"+name)
	}
	return services, called, nil
}

// folder returns where the results go unless it is said: those of other settings
// are elsewhere.
func (c *compareCommand) folder(what *scenario.Scenario, services map[string]string, send *workload.Options) (string, error) {
	name := what.Name
	if c.Scenario == "" || len(c.settings())+len(services)+len(send.Targets) > 0 {
		settings, err := json.Marshal(what)
		if err == nil && len(services)+len(send.Targets) > 0 {
			settings, err = json.Marshal([]any{what, services, send.Targets})
		}
		if err != nil {
			return "", err
		}
		name = fmt.Sprintf("%s-%.4x", name, sha256.Sum256(settings))
	}
	return filepath.Join("reports", name), nil
}

// scenario returns what the flags ask for.
func (c *compareCommand) scenario(services []string) (*scenario.Scenario, error) {
	given, own := c.settings(), scenario.Settings{}
	if len(services) > 0 {
		own["strategy"] = services
	}
	if len(services) > 0 && given["strategy"] != nil {
		return nil, errors.New("--strategies: not together with --service, whose queue is its own")
	}
	if len(c.Target) > 0 || c.Targets != "" {
		for _, s := range scenario.All {
			if slices.Contains([]string{"mix", "keys", "key_distribution", "value_size"}, s.Name) && given[s.Name] != nil {
				return nil, fmt.Errorf("--%s: it has no meaning for targets", s.Flag)
			}
		}
		if len(services)+len(given) == 0 && c.Scenario == "" {
			return nil, errors.New("--target: to what? Give --service 'COMMAND' with {port} in it, or --strategies of Spillway")
		}
	}
	return c.comparison.scenario("compare", own)
}

// spillway returns the path of the service: of what --binary says, otherwise of the one beside
// this program, or in the PATH.
func (c *compareCommand) spillway() (string, error) {
	if c.Binary != "" {
		path, err := exec.LookPath(c.Binary)
		if err != nil {
			return "", usageError{fmt.Errorf("--binary: %w", err)}
		}
		return filepath.Abs(path)
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, candidate := range []string{filepath.Join(filepath.Dir(self), "spillway"), "spillway"} {
		if path, err := exec.LookPath(candidate); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", errors.New("the service is neither beside this program nor in the PATH: make build builds both, or say --binary")
}
