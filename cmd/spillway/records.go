package main

import (
	"github.com/spillway-go/spillway/internal/accesslog"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/served"
)

// records are what is kept of each request. A nil one keeps nothing.
type records struct {
	access *accesslog.Log // nil for none
}

func (s *settings) openRecords(m *metrics.Metrics) *records {
	r := new(records)
	if mode := s.config().AccessLog; mode != "off" {
		r.access = accesslog.Open(s.stdout, mode == "all", m.Outcome)
	}
	return r
}

// served returns who is told of each request, nil for nobody.
func (r *records) served() func(*served.Request) {
	if r.access == nil {
		return nil
	}
	return r.access.Add
}

// accessDropped returns who counts the lines that were dropped, nil without an access log.
func (r *records) accessDropped() func() uint64 {
	if r.access == nil {
		return nil
	}
	return r.access.Dropped
}

// close writes what is left, if who takes it does so soon.
func (r *records) close() {
	if r != nil && r.access != nil {
		r.access.Close(lastLines)
	}
}
