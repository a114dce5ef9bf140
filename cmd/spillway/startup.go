package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/internal/tuning"
	"github.com/spillway-go/spillway/strategies"
)

// sayStart logs in one line what runs, and where to look at it.
func (s *service) sayStart(version, admin string) {
	c, status := s.config(), s.dispatcher.Gauge()
	attrs := []slog.Attr{
		slog.String("version", version),
		slog.String("strategy", status.Strategy), slog.Any("workers", c.Workers.Shown()), slog.Int("capacity", status.Capacity),
		slog.String("store", c.Store),
	}
	if c.Store == config.StoreCassandra {
		attrs = append(attrs, slog.String("hosts", c.CassandraHosts), slog.String("keyspace", c.CassandraKeyspace))
	} else {
		attrs = append(attrs, slog.String("data", c.DataDir), slog.String("sync", c.Sync.String()))
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "serving", append(attrs, slog.String("console", consoleAt(c, admin)))...)
}

// sayListening logs where the planes listen.
func sayListening(log *slog.Logger, addresses map[string]string) {
	for _, plane := range []string{"admin", "data"} {
		log.Info("listening", "plane", plane, "addr", addresses[plane])
	}
}

// consoleAt returns the URL of the console on an admin plane that listens there.
func consoleAt(c *config.Config, admin string) string {
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	where, _ := reachable(admin) // it has a port
	return scheme + "://" + where + "/"
}

// effective returns the configuration that is in force, for /config, and where each value is
// from. What is tuned may have been changed by PUT /strategy.
func effective(inv *config.Invocation, now tuning.Settings, addresses map[string]string) any {
	settings, from := inv.Redacted(), map[string]string{}
	for name := range settings {
		from[name] = cmp.Or(inv.From[name], "default")
	}
	active, _ := strategies.Lookup(now.Strategy)
	for name, shown := range map[string]any{
		"SPILLWAY_STRATEGY": now.Strategy, "SPILLWAY_MODE": now.Mode, "SPILLWAY_WORKERS": config.Workers(now.Workers).Shown(),
		"SPILLWAY_QUEUE_CAPACITY": active.CapacityOr(now.Capacity), "SPILLWAY_SLO": strategies.FormatObjective(now.Objective),
	} {
		settings[name] = shown
	}
	if inv.Command == config.Proxy {
		settings["SPILLWAY_UPSTREAM"] = now.Upstreams
	}
	for _, name := range differing(now, tuned(inv)) {
		from["SPILLWAY_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = "PUT /strategy"
	}
	return struct {
		Addresses map[string]string `json:"addresses"`
		Settings  map[string]any    `json:"settings"`
		From      map[string]string `json:"from"`
	}{addresses, settings, from}
}

// cannotListen explains why a plane cannot have its address, and which variable
// changes that.
func cannotListen(err error, plane, variable, address string) error {
	if failed, ok := errors.AsType[*net.OpError](err); !ok || failed.Op != "listen" {
		return err
	}
	why := err.Error()
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		why = "it is in use, perhaps by another spillway"
	case errors.Is(err, syscall.EACCES):
		why = "this user may not have that port; those below 1024 take CAP_NET_BIND_SERVICE"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		why = "that is no address of this machine"
	}
	return fmt.Errorf("the %s plane cannot listen on %s: %s; %s chooses another address", plane, address, why, variable)
}

// cannotUse explains why a data folder cannot be used, if somebody else uses it, or
// rights are missing: in a container that is the owner of the volume.
func cannotUse(err error, dir string) error {
	if errors.Is(err, datadir.ErrInUse) {
		return fmt.Errorf("the data folder %s: %w; stop that one, or set SPILLWAY_DATA_DIR to another folder", dir, datadir.ErrInUse)
	}
	if !errors.Is(err, fs.ErrPermission) || os.Getuid() < 0 {
		return err
	}
	return fmt.Errorf("the data folder %s must belong to the user that the service runs as, uid %d: chown it, or set SPILLWAY_DATA_DIR to another one (%w)",
		dir, os.Getuid(), err)
}
