package main

import (
	"os"
	"time"

	"github.com/spillway-go/spillway/internal/accesslog"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/served"
	"github.com/spillway-go/spillway/internal/tracing"
	"github.com/spillway-go/spillway/internal/version"
)

// records are what is kept of each request.
type records struct {
	access *accesslog.Log   // nil for none
	traces *tracing.Tracing // nil for none
}

// openRecords opens what the settings and OpenTelemetry's variables ask for. Depth returns how
// many requests wait.
func (s *settings) openRecords(service string, epoch time.Time, depth func() int) (*records, error) {
	traces, err := tracing.Open(tracing.Options{
		Env: os.Getenv, Service: service, Version: version.Get().Version, Epoch: epoch, Depth: depth, Log: s.log,
	})
	if err != nil {
		return nil, err
	}
	r := &records{traces: traces}
	if c := s.config(); c.AccessLog != "off" {
		r.access = accesslog.Open(s.stdout, c.AccessLog == "all")
	}
	return r, nil
}

// served returns what each request is passed to, nil for nothing.
func (r *records) served() func(*served.Request) {
	if r.access == nil {
		return nil
	}
	return r.access.Add
}

// tracer returns who begins spans, nil for nobody.
func (r *records) tracer() served.Tracer {
	if r.traces == nil {
		return nil
	}
	return r.traces
}

// watched adds what counts the records that were dropped.
func (r *records) watched(from metrics.Sources) metrics.Sources {
	if r.access != nil {
		from.AccessDropped = r.access.Dropped
	}
	if r.traces != nil {
		from.SpansDropped = r.traces.Dropped
	}
	return from
}

// close writes what is left, if who takes it does so soon. A nil one has nothing.
func (r *records) close() {
	if r == nil {
		return
	}
	if r.access != nil {
		r.access.Close(lastLines)
	}
	if r.traces != nil {
		r.traces.Close(lastLines)
	}
}
