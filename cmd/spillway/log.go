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

func newLogger(c *config.Config, w io.Writer) *slog.Logger {
	return slog.New(logHandler(c, w))
}

func logHandler(c *config.Config, w io.Writer) slog.Handler {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // has been checked
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
	return logHandler(c, w).Handle(context.Background(), r)
}
