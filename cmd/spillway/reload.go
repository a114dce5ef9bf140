package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/internal/tuning"
)

// settings are the configuration in force, which SIGHUP has read again.
type settings struct {
	now atomic.Pointer[config.Invocation]
	// in is what it was read from at the start.
	in config.Input
	// hangup tells of SIGHUP; nil if there is no file.
	hangup <-chan os.Signal
	stdout io.Writer // of the access log
	level  *slog.LevelVar
	log    *slog.Logger
	failed atomic.Bool // the last reload
}

func (s *settings) config() *config.Config { return &s.now.Load().Config }

// follow reloads the configuration at each SIGHUP until ctx ends. A disk that hangs keeps
// nothing but the next reload waiting. Apply makes all that can change live that of the
// invocation, or nothing, and returns what tune does.
func (s *settings) follow(ctx context.Context, apply func(*config.Invocation) (undone []string, err error)) {
	for {
		select {
		case <-s.hangup:
			err := s.reload(apply)
			s.failed.Store(err != nil)
			if err != nil {
				s.log.Error("the configuration was not reloaded, nothing has changed", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *settings) reload(apply func(*config.Invocation) (undone []string, err error)) error {
	in := s.in
	in.NoEmptyFile = !s.now.Load().Empty
	next, err := config.Parse(in)
	if err != nil {
		return err
	}
	_, warning, err := next.Config.FitDescriptors(maxDescriptors())
	if err != nil {
		return err
	}
	merged, live, fixed := s.now.Load().Reload(&next)
	undone, err := apply(&merged)
	if err != nil {
		return err
	}
	s.now.Store(&merged)
	c := &merged.Config
	_ = s.level.UnmarshalText([]byte(c.LogLevel)) // has been checked
	for _, w := range append(merged.Warnings, warning) {
		if w != "" {
			s.log.Warn(w)
		}
	}
	live = append(live, undone...)
	slices.Sort(live)
	changed := cmp.Or(strings.Join(slices.Compact(live), ","), "nothing") // which is the name of no setting
	s.log.Info("configuration reloaded", "file", c.ConfigFile, "changed", changed)
	if len(undone) > 0 {
		s.log.Warn("what PUT /strategy had set is undone", "settings", strings.Join(undone, ","))
	}
	if len(fixed) > 0 {
		s.log.Warn("these settings change with a restart only, and stay as they were", "settings", strings.Join(fixed, ","))
	}
	return nil
}

// tuned is what of the configuration a tuner changes.
func tuned(inv *config.Invocation) tuning.Settings {
	c := &inv.Config
	s := tuning.Settings{
		Strategy: c.Strategy, Mode: c.Mode, Workers: int(c.Workers), Capacity: c.QueueCapacity, Objective: time.Duration(c.SLO),
	}
	if inv.Command == config.Proxy {
		s.Upstreams = inv.Proxy.Upstream
	}
	return s
}

// differing returns the flags of the settings in which a and b differ, sorted.
func differing(a, b tuning.Settings) (names []string) {
	for name, differ := range map[string]bool{
		"mode": a.Mode != b.Mode, "queue-capacity": a.Capacity != b.Capacity, "slo": a.Objective != b.Objective,
		"strategy": a.Strategy != b.Strategy, "upstream": a.Upstreams != b.Upstreams, "workers": a.Workers != b.Workers,
	} {
		if differ {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// tune makes those settings the ones in force, whatever was asked for by PUT /strategy, and returns the flags of those
// that it had set to something else.
func (s *settings) tune(t *tuning.Tuner, inv *config.Invocation) (undone []string, err error) {
	former, next := tuned(s.now.Load()), tuned(inv)
	err = t.Change(func(now *tuning.Settings) {
		put := differing(*now, former)
		undone = slices.DeleteFunc(differing(*now, next), func(name string) bool { return !slices.Contains(put, name) })
		*now = next
	})
	if refusal, ok := errors.AsType[tuning.Refusal](err); ok {
		return nil, refusal.Unwrap()
	}
	return undone, err
}
