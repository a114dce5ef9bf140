package lab

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"spillway/loadtest"
	"spillway/loadtest/scenario"
)

// Server is a process of the service, or of what is compared with it: anything
// that takes its addresses and its data folder from the service's environment
// variables, logs in JSON where it listens, answers /readyz and /metrics on its
// admin plane and ends on SIGTERM. All methods are safe for concurrent use.
type Server struct{ service *service }

// StartServer starts the binary on free ports of the loopback interface, with
// its store in dir and env added to the environment, and returns when it is
// ready. The caller must stop it.
func StartServer(ctx context.Context, binary, dir string, env []string) (*Server, error) {
	s, err := startService(ctx, binary, dir, env)
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// URL returns that of the data plane.
func (s *Server) URL() string { return s.service.data }

// Admin returns the URL of the admin plane.
func (s *Server) Admin() string { return s.service.admin }

// Death returns nil while the process lives, and otherwise how it has ended.
func (s *Server) Death() error { return s.service.death() }

// CPU returns the processor time that the process has used so far, in all its
// threads, to the nanosecond. Asking costs the process nothing.
func (s *Server) CPU() (time.Duration, error) {
	if err := s.service.death(); err != nil {
		return 0, err
	}
	return processCPU(s.service.process.Pid)
}

// Mallocs returns how many objects the process has allocated so far, those for
// the answer to this question included.
func (s *Server) Mallocs(ctx context.Context) (float64, error) {
	const metric = "go_memstats_mallocs_total"
	series, err := s.Metrics(ctx, metric)
	if err != nil {
		return 0, err
	}
	n, ok := series[metric]
	if !ok {
		return 0, fmt.Errorf("there is no %s", metric)
	}
	return n, nil
}

// Metrics returns the series of the metrics of these names, or of all without
// names, by their own names and labels as they stand in the text. What is no
// finite number is left out.
func (s *Server) Metrics(ctx context.Context, names ...string) (map[string]float64, error) {
	text, err := s.service.get(ctx, "/metrics?"+url.Values{"name[]": names}.Encode())
	if err != nil {
		return nil, err
	}
	return parseMetrics(string(text)), nil
}

// parseMetrics reads the text format of Prometheus without time stamps.
func parseMetrics(text string) map[string]float64 {
	series := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if value, err := strconv.ParseFloat(line[at+1:], 64); err == nil && !math.IsNaN(value) && !math.IsInf(value, 0) {
			series[line[:at]] = value
		}
	}
	return series
}

// Stop ends the process gracefully, or after 15 seconds by force, which is an
// error.
func (s *Server) Stop() error { return s.service.stop(stopPatience) }

// FillStore makes a store in dir, which must not be there, with that many values
// of the generator's default size under the keys from 0 on, by way of the
// service's binary. It ends when the store has nothing more to compact.
func FillStore(ctx context.Context, binary, dir string, keys uint64) error {
	sizes := loadtest.Options{}.WithDefaults().ValueSize
	l := &comparing{
		o: CompareOptions{Binary: binary, Progress: func(Progress) {}, Run: loadtest.Run},
		s: &scenario.Scenario{Seed: 1},
		c: new(Comparison),
	}
	return l.fill(ctx, dir, filling{keys: keys, sizes: sizes})
}

// CloneStore makes a copy of a store that no process has open. Tables are
// linked, which takes next to no time and space, where the file system can.
func CloneStore(from, to string) error { return cloneStore(from, to) }

// Summarize returns the median of the values, of which there must be at least
// one, and their spread.
func Summarize(values []float64) Summary { return summary(values) }
