package result

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// Result is what one run measured, and the form of `--json`. Counts and
// latencies are of the requests whose scheduled time lies in the measured
// window; each of them is counted exactly once: under the code of its answer, or
// under the kind of its error.
type Result struct {
	Command string    `json:"command,omitempty"`
	URL     string    `json:"url"`
	Started time.Time `json:"started"`
	// Seconds is the length of the measured window.
	Seconds float64 `json:"seconds"`
	// Partial says why the window ended before its time; empty if it did not.
	Partial string `json:"partial,omitempty"`
	Seed    uint64 `json:"seed"`
	// Keys and ValueSize are those of the load.
	Keys      uint64         `json:"keys,omitempty"`
	ValueSize workload.Sizes `json:"value_size,omitzero"`
	// Machine is that of the generator.
	Machine *machine.Machine `json:"machine,omitempty"`

	// TargetRPS is the rate that was asked for, 0 for a closed loop; OfferedRPS
	// the rate of the requests that were scheduled in the window; CompletedRPS
	// that of the answers that came during the window, whenever their requests
	// were scheduled.
	TargetRPS    float64 `json:"target_rps"`
	OfferedRPS   float64 `json:"offered_rps"`
	CompletedRPS float64 `json:"completed_rps"`
	// ServedRPS is the part of CompletedRPS that serves: the codes of Good, or, if that
	// is empty, 2xx, 304, and 404 to a get.
	ServedRPS float64 `json:"served_rps"`
	// GoodputRPS is of the requests that were scheduled in the window, and served within the
	// SLO; CompletedGoodRPS the part of ServedRPS that is within it. In a short window they
	// differ by what waits at its ends.
	GoodputRPS       float64 `json:"goodput_rps"`
	CompletedGoodRPS float64 `json:"completed_good_rps"`
	// SentGoodputRPS is the part of ServedRPS that is within the SLO by a clock that begins
	// when a request is first sent, about when it arrives at the service: what it waits for
	// a connection before does not count.
	SentGoodputRPS float64 `json:"sent_goodput_rps"`
	SLOMillis      float64 `json:"slo_ms"`

	Requests   int64               `json:"requests"`
	Operations map[string]int64    `json:"operations"`
	Status     map[string]int64    `json:"status"`
	Shed       map[string]int64    `json:"shed"`
	Errors     map[ErrorKind]int64 `json:"errors"`
	// Good are the status codes that serve, if it does not depend on the operation.
	Good workload.Codes `json:"good,omitempty"`
	// Targets has the figures of each target, if targets were sent, in their order;
	// from the fifty-first on they are together, as "other targets".
	Targets []TargetResult `json:"targets,omitempty"`
	// Misses is how many gets found no value: 404.
	Misses int64 `json:"misses"`
	// Retries counts the retries of these requests, nil if clients do not retry. Each
	// request counts once, by how its last attempt ended.
	Retries *int64 `json:"retries,omitempty"`

	// Latency is of all requests, from the scheduled time. A request that was given up
	// counts until its timeout, or that of its last attempt. ServedLatency is of served
	// requests.
	Latency       Percentiles `json:"latency_ms"`
	ServedLatency Percentiles `json:"served_latency_ms"`
	// UncorrectedLatency counts from the moment at which a request was first sent, as a
	// generator reports it that a stalled server slows down.
	UncorrectedLatency Percentiles `json:"uncorrected_latency_ms"`
	// ConnectionWait is how long a request waited for one of its client's own connections
	// after its scheduled time. It is part of Latency, and not of UncorrectedLatency; a closed
	// loop has none. Waited counts the requests that did, or gave up before one was free.
	ConnectionWait Percentiles `json:"connection_wait_ms"`
	Waited         int64       `json:"waited_for_connection"`
	// Connections is how many there were to each server.
	Connections int `json:"connections,omitempty"`
	// Lateness is how long after its scheduled time a request was sent although
	// a connection was free: the generator's own error.
	Lateness Percentiles `json:"generator_lateness_ms"`
	// LatencyHDR and ServedHDR are the histograms, in microseconds, in HdrHistogram's V2
	// compressed form, base64.
	LatencyHDR string `json:"latency_hdr"`
	ServedHDR  string `json:"served_latency_hdr"`

	// Timeline divides the window into intervals of TimelineStep seconds.
	TimelineStep float64    `json:"timeline_step_s"`
	Timeline     []Interval `json:"timeline"`

	// Shares has what each kind of clients ("client other"), each priority
	// ("priority 0") and, if there are several, each operation ("get") asked for and
	// got.
	Shares map[string]Share `json:"shares,omitempty"`

	ClientCPUMicros float64 `json:"client_cpu_us_per_request"`
	// Engine is what carried the load, Protocols how many answers came in each version
	// of HTTP, since the start of the run.
	Engine    workload.Engine  `json:"engine,omitempty"`
	Protocols map[string]int64 `json:"protocols,omitempty"`

	// What follows is there with an admin URL only.

	// Unseen says why something of it is missing.
	Unseen string `json:"unseen,omitempty"`

	// ServerCPUMicros is the server's CPU time per answer, refusals included, and
	// ServerCPUServedMicros per served request.
	ServerCPUMicros       *float64 `json:"server_cpu_us_per_request"`
	ServerCPUServedMicros *float64 `json:"server_cpu_us_per_served_request"`
	// Strategy, Workers and Capacity are those of the start of the window;
	// Capacity is nil for a queue without bound.
	Strategy string `json:"strategy,omitempty"`
	Workers  int    `json:"workers,omitempty"`
	Capacity *int   `json:"capacity,omitempty"`
	// CPUByPart says on which part of the service the CPU time went that was sampled.
	CPUByPart profiles.Costs `json:"cpu_by_part_ns,omitempty"`
	// ProfileFiles names the pprof file of each kind, relative to the JSON file.
	ProfileFiles map[profiles.Kind]string `json:"profile_files,omitempty"`

	// Profiles are the pprof files themselves; Save writes them beside the JSON.
	Profiles map[profiles.Kind][]byte `json:"-"`
}

// Busy reports whether at times all connections were busy: whether 1% of the requests or
// more waited for one.
func (r *Result) Busy() bool { return r.Waited > 0 && 100*r.Waited >= r.Requests }

// BusyText says so in words, and what to raise.
func (r *Result) BusyText() string {
	share := 100 * float64(r.Waited) / float64(max(1, r.Requests))
	return fmt.Sprintf("All %d connections were busy: %.1f%% of the requests waited for one, %.1f ms at p50. Latency counts that wait, "+
		"latency from sending does not. If clients have more connections than that, raise --connections; if not, the service has to refuse sooner.", r.Connections, share, r.ConnectionWait.P50)
}

// GeneratorLate reports whether the generator was so late itself that part of the
// latency is its own. Beside much longer latencies it does not matter.
func (r *Result) GeneratorLate() bool {
	const maxLateness = 1 // ms
	return r.Lateness.P99 > maxLateness && r.Lateness.P99 > r.Latency.P99/10
}

// Served counts the requests whose answer serves.
func (r *Result) Served() int64 {
	if set, ok := r.Good.Set(); ok && r.Good != "" {
		n := int64(0)
		for code, count := range r.Status {
			if number, err := strconv.Atoi(code); err == nil && number >= 0 && number < len(set) && set[number] {
				n += count
			}
		}
		return n
	}
	n := r.Misses
	for code, count := range r.Status {
		if code[:1] == "2" || code == "304" {
			n += count
		}
	}
	return n
}

// ErrorKind tells apart the ways in which a request gets no answer.
type ErrorKind string

// The kinds of error.
const (
	// ErrorTimeout: no answer within the timeout of the scheduled time, or of the
	// time at which the last attempt was sent.
	ErrorTimeout ErrorKind = "timeout"
	// ErrorUnsent: the timeout passed before a connection was free.
	ErrorUnsent ErrorKind = "unsent"
	// ErrorConnect: the connection could not be opened.
	ErrorConnect ErrorKind = "connect"
	// ErrorReset: the connection was closed or reset before the whole answer.
	ErrorReset ErrorKind = "reset"
	// ErrorUnfinished: the run was cut short before the answer.
	ErrorUnfinished ErrorKind = "unfinished"
	// ErrorProtocol: what came back was no HTTP answer.
	ErrorProtocol ErrorKind = "protocol"
)

// Share is what became of a part of the requests.
type Share struct {
	Requests int64 `json:"requests"`
	Served   int64 `json:"served"`
	// Good were served within the SLO.
	Good int64 `json:"good"`
}

// Add returns the sum of two shares.
func (s Share) Add(t Share) Share {
	return Share{Requests: s.Requests + t.Requests, Served: s.Served + t.Served, Good: s.Good + t.Good}
}

// GoodPercent returns how many of the requests were served within the SLO, 0 to
// 100.
func (s Share) GoodPercent() float64 { return 100 * float64(s.Good) / float64(max(1, s.Requests)) }

// Percentiles are latencies in milliseconds; all 0 if nothing was recorded. Those
// with few latencies beyond them are there too, for programs that want them.
type Percentiles struct {
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99_9"`
	P9999 float64 `json:"p99_99"`
	Max   float64 `json:"max"`
	// Count is how many latencies these are of. See Known.
	Count int64 `json:"count"`
}

// Known reports whether at least ten of the latencies are beyond a percentile. With fewer,
// the percentile is chance, and another run would have another one.
func (p Percentiles) Known(percentile float64) bool {
	return p.Count == 0 || known(percentile, p.Count)
}

// At returns the latency at one of the percentiles of p, such as 99.9, and whether it is
// Known.
func (p Percentiles) At(percentile float64) (ms float64, known bool) {
	at := map[float64]float64{50: p.P50, 90: p.P90, 99: p.P99, 99.9: p.P999, 99.99: p.P9999}
	return at[percentile], p.Known(percentile)
}

func known(percentile float64, count int64) bool {
	const beyond, rounding = 10, 1e-6
	return float64(count)*(100-percentile)/100 >= beyond-rounding
}

// Interval is a part of the measured window. Requests count in the one of their
// scheduled time; Completed counts the answers that came in this one.
type Interval struct {
	Offered   int64   `json:"offered"`
	Completed int64   `json:"completed"`
	Good      int64   `json:"good"`
	Shed      int64   `json:"shed"`
	Errors    int64   `json:"errors"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Max       float64 `json:"max_ms"`
}
