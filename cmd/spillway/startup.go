package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"syscall"

	"github.com/spillway-go/spillway/internal/admin"
	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/internal/datadir"
	"github.com/spillway-go/spillway/strategies"
)

// sayStart logs in one line what runs, and where to look at it.
func (s *service) sayStart(version, admin string) {
	c, status := s.config, s.dispatcher.Status()
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

// effective returns the configuration that is in force, for /config: strategy, mode and
// objective may have been changed.
func effective(settings map[string]any, d admin.Dispatcher, capacity int, addresses map[string]string) any {
	status := d.Status()
	active, _ := strategies.Lookup(status.Strategy)
	settings["SPILLWAY_MODE"] = admin.Mode(status)
	settings["SPILLWAY_SLO"] = strategies.FormatObjective(d.Objective().State().Set)
	settings["SPILLWAY_STRATEGY"] = active.Name
	settings["SPILLWAY_QUEUE_CAPACITY"] = active.CapacityOr(capacity)
	return struct {
		Addresses map[string]string `json:"addresses"`
		Settings  map[string]any    `json:"settings"`
	}{addresses, settings}
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
