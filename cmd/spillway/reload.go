package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
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
// invocation, or nothing.
func (s *settings) follow(ctx context.Context, apply func(*config.Invocation) error) {
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

func (s *settings) reload(apply func(*config.Invocation) error) error {
	next, err := config.Parse(s.in)
	if err != nil {
		return err
	}
	if next.Empty && !s.now.Load().Empty {
		return &config.FileError{File: next.Config.ConfigFile, Reason: "it is empty, perhaps while it is being written; to set nothing, leave a comment in it"}
	}
	_, warning, err := next.Config.FitDescriptors(maxDescriptors())
	if err != nil {
		return err
	}
	merged, live, fixed := s.now.Load().Reload(&next)
	if err = apply(&merged); err != nil {
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
	s.log.Info("configuration reloaded", "file", c.ConfigFile, "changed", strings.Join(live, ","))
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

// tune makes those settings the ones in force, whatever was asked for by PUT /strategy.
func tune(t *tuning.Tuner, inv *config.Invocation) error {
	err := t.Change(func(s *tuning.Settings) { *s = tuned(inv) })
	if refusal, ok := errors.AsType[tuning.Refusal](err); ok {
		return refusal.Unwrap()
	}
	return err
}
