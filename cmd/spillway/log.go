package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spillway-go/spillway/internal/config"
)

// lastLines is how long the end of the process waits for who reads its log.
const lastLines = time.Second

// newLogger returns a logger, and its level, which may change.
func newLogger(c *config.Config, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(c.LogLevel)) // has been checked
	return slog.New(logHandler(c, w, level)), level
}

func logHandler(c *config.Config, w io.Writer, level slog.Leveler) slog.Handler {
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.NewJSONHandler(w, options)
	}
	return slog.NewTextHandler(w, options)
}

// reportMissing writes to w itself that lines are missing from the log.
func reportMissing(c *config.Config, w io.Writer, lines uint64) error {
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "log lines were dropped here, stderr was read too slowly", 0)
	r.AddAttrs(slog.Uint64("lines", lines))
	return logHandler(c, w, slog.LevelWarn).Handle(context.Background(), r)
}
