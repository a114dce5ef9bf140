package observe

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/loadtest/workload"
)

const (
	// askTimeout is for an answer other than a profile. The service may be
	// overloaded on purpose.
	askTimeout = 5 * time.Second
	// maxAnswer is the largest answer that is read, in bytes.
	maxAnswer = 64 << 20
)

// The metrics that are read.
const (
	cpuMetric   = "process_cpu_seconds_total"
	startMetric = "process_start_time_seconds"
	storeMetric = "spillway_store_read_amplification" // which only a service over Pebble has
)

var metricsPath = "/metrics?" + url.Values{"name[]": {cpuMetric, startMetric, storeMetric}}.Encode()

// plane asks the admin plane of a service.
type plane struct {
	url    string // without a slash at its end
	token  string
	client http.Client
}

func newPlane(adminURL, token string, trusted *tls.Config) (*plane, error) {
	u, err := url.Parse(adminURL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the admin plane's URL is %q, want http://host:port", workload.Redacted(adminURL))
	}
	return &plane{
		url:   strings.TrimRight(u.Scheme+"://"+u.Host+u.Path, "/"),
		token: token,
		client: http.Client{Transport: &http.Transport{
			Proxy: nil, // the figures are of the service, over the shortest way
			// Compressing would be work for the service.
			DisableCompression: true,
			TLSClientConfig:    trusted,
		}},
	}, nil
}

// Get returns what an admin plane answers to one request.
func Get(ctx context.Context, adminURL, path string) ([]byte, error) {
	p, err := newPlane(adminURL, "", nil)
	if err != nil {
		return nil, err
	}
	defer p.client.CloseIdleConnections()
	return p.ask(ctx, path)
}

// ask is get with the time that any answer but a profile has.
func (p *plane) ask(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("no answer within %v", askTimeout))
	defer cancel()
	return p.get(ctx, path)
}

// get returns the body of an answer of 200.
func (p *plane) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, p.fault(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, p.fault(ctx, err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return body, nil
	case http.StatusUnauthorized:
		return nil, fmt.Errorf("the admin plane at %s wants a bearer token, and not the one given", p.url)
	default:
		path, _, _ = strings.Cut(path, "?")
		return nil, fmt.Errorf("the admin plane at %s answers %s to GET %s: %.200s", p.url, resp.Status, path, firstLine(body))
	}
}

// fault tells of an answer that did not come.
func (p *plane) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err // without the method and the URL
	}
	return fmt.Errorf("the admin plane at %s: %w", p.url, err)
}

// firstLine returns what an answer that is an error says: its first line, or
// the detail of a problem of RFC 9457.
func firstLine(body []byte) string {
	var problem struct{ Detail string }
	if json.Unmarshal(body, &problem) == nil && problem.Detail != "" {
		return problem.Detail
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	return line
}

// Status is what GET /strategy tells. Capacity is nil for a queue without bound.
type Status struct {
	Strategy string `json:"strategy"`
	Workers  int    `json:"workers"`
	Capacity *int   `json:"capacity"`
}

// state asks for both that and a reading.
func (p *plane) state(ctx context.Context) (s Status, r reading, err error) {
	body, err := p.ask(ctx, "/strategy")
	if err != nil {
		return s, r, err
	}
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-" // what a terminal is shown
	if err := json.Unmarshal(body, &s); err != nil || s.Strategy == "" || strings.Trim(s.Strategy, letters) != "" {
		return s, r, fmt.Errorf("what answers at %s is not the admin plane of a Spillway: GET /strategy gives %.60q", p.url, body)
	}
	r, err = p.read(ctx)
	return s, r, err
}

// profile takes a profile over so many seconds.
func (p *plane) profile(ctx context.Context, kind profiles.Kind, seconds int) ([]byte, error) {
	name := string(kind)
	if kind == profiles.CPU {
		name = "profile"
	}
	return p.get(ctx, fmt.Sprintf("/debug/pprof/%s?seconds=%d", name, seconds))
}

// reading is the state of the metrics at a time.
type reading struct {
	at      time.Time
	cpu     float64 // seconds
	started float64 // when the process was, in seconds of the epoch
	pebble  bool
}

func (p *plane) read(ctx context.Context) (reading, error) {
	body, err := p.ask(ctx, metricsPath)
	if err != nil {
		return reading{}, err
	}
	r, err := parseReading(body)
	if err != nil {
		return reading{}, fmt.Errorf("the metrics at %s: %w", p.url, err)
	}
	r.at = time.Now()
	return r, nil
}

// parseReading reads the text format of Prometheus.
func parseReading(text []byte) (r reading, err error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return r, err
	}
	for _, metric := range []struct {
		name string
		into *float64
	}{{cpuMetric, &r.cpu}, {startMetric, &r.started}} {
		family := families[metric.name]
		if family == nil {
			return r, fmt.Errorf("there is no %s", metric.name)
		}
		for _, m := range family.Metric {
			*metric.into += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
		if !(*metric.into >= 0 && *metric.into <= math.MaxInt64) {
			return r, fmt.Errorf("%s is %v", metric.name, *metric.into)
		}
	}
	r.pebble = families[storeMetric] != nil
	return r, nil
}
