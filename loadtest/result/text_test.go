package result

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/profiles"
	"github.com/spillway-go/spillway/loadtest/workload"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestResult_TextIsAsAgreed(t *testing.T) {
	t.Parallel()
	cpu, allocs, allocated, capacity, retries := 21.53, 3.25, 512.4, 256, int64(450)
	full := &Result{
		URL: "http://127.0.0.1:8080", Seconds: 10, Seed: 7,
		TargetRPS: 20_000, OfferedRPS: 20_012.3, CompletedRPS: 19_998.1, GoodputRPS: 19_400.5, SLOMillis: 100,
		Requests:   200_123,
		Operations: map[string]int64{"put": 100_061, "get": 90_051, "scan": 10_011},
		Status:     map[string]int64{"201": 99_000, "200": 95_000, "404": 4000, "503": 2050, "504": 50},
		Shed:       map[string]int64{"full": 2050, "expired": 50},
		Errors:     map[ErrorKind]int64{ErrorTimeout: 20, ErrorReset: 3, ErrorConnect: 0},
		Latency:    Percentiles{1.204, 0.512, 2.313, 14.207, 88.511, 121.343, 10_002.431, 200_123},
		ServedLatency: Percentiles{
			1.195, 0.511, 2.301, 14.103, 80.447, 119.295, 130.111, 99_999,
		},
		UncorrectedLatency: Percentiles{1.101, 0.498, 2.203, 11.103, 60.511, 101.375, 9_998.335, 200_100},
		Lateness:           Percentiles{0.003, 0.001, 0.004, 0.041, 0.211, 0.911, 1.203, 0},
		ClientCPUMicros:    5.21,
		ServerCPUMicros:    &cpu, ServerAllocs: &allocs, ServerAllocated: &allocated,
		Strategy: "fifo", Workers: 4, Capacity: &capacity,
		Attribution: []profiles.Attribution{
			{Kind: profiles.CPU, Unit: "nanoseconds", Total: 1100, Parts: map[profiles.Part]int64{
				profiles.Network: 550, profiles.Queue: 50, profiles.Work: 300, profiles.Other: 100, profiles.Admin: 100,
			}},
			{Kind: profiles.Allocs, Unit: "bytes", Parts: map[profiles.Part]int64{}},
		},
	}
	late := *full
	late.Attribution, late.ServerCPUMicros, late.Capacity, late.Strategy = nil, nil, nil, "unbounded"
	late.Lateness.P99, late.Lateness.Max, late.OfferedRPS, late.GoodputRPS, late.Seconds = 3.1, 5.2, 21_000, 19_400, 4.2
	late.Waited, late.Connections, late.ConnectionWait = 186_301, 64, Percentiles{P50: 9400.31, Count: 200_100}
	late.Partial = "interrupted 4.2 s after its start"
	for name, r := range map[string]*Result{
		"full": full,
		"late": &late,
		"closed": {
			URL: "http://localhost:80", Seconds: 1, OfferedRPS: 900, CompletedRPS: 900, GoodputRPS: 900, SLOMillis: 0.5,
			Requests: 900, Retries: &retries, Operations: map[string]int64{"get": 900}, Status: map[string]int64{"503": 900}, Shed: map[string]int64{"full": 900},
			Latency: Percentiles{1, 1, 1, 1, 1, 1, 1, 900}, UncorrectedLatency: Percentiles{1, 1, 1, 1, 1, 1, 1, 900}, ClientCPUMicros: 4,
		},
		"missing": {
			URL: "http://localhost:80", Seconds: 1, TargetRPS: 1000, OfferedRPS: 1000, CompletedRPS: 1000, GoodputRPS: 1000, SLOMillis: 100,
			Keys: 100_000, ValueSize: workload.Sizes{Min: 100, Max: 200}, Requests: 1000, Operations: map[string]int64{"get": 800, "put": 200},
			Misses: 401, Status: map[string]int64{"200": 399, "404": 401, "201": 200},
			Latency: Percentiles{1, 1, 1, 1, 1, 1, 1, 1000}, ServedLatency: Percentiles{1, 1, 1, 1, 1, 1, 1, 19},
			UncorrectedLatency: Percentiles{1, 1, 1, 1, 1, 1, 1, 0}, ClientCPUMicros: 4,
		},
		"nothing": {URL: "http://localhost:80", TargetRPS: 1000, SLOMillis: 100, Partial: "interrupted 0.0 s after its start"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			require.NoError(t, r.WriteText(&out))
			for line := range strings.Lines(out.String()) {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
				require.Equal(t, strings.TrimRight(line, " \n")+"\n", line, "blanks at the end")
			}
			golden := filepath.Join("testdata", "text", name+".txt")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
				require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), out.String(), "if this is better, run: go test ./loadtest/result -run Text -update")
		})
	}
}

// However many codes and reasons there are, no line gets longer.
func TestResult_TextBreaksLongLists(t *testing.T) {
	t.Parallel()
	r := &Result{Status: map[string]int64{}, Latency: Percentiles{Max: 1}, Lateness: Percentiles{P99: time.Hour.Seconds()}}
	for status := 200; status < 260; status++ {
		r.Status[string(rune('0'+status/100))+string(rune('0'+status/10%10))+string(rune('0'+status%10))] = 1_000_000
	}
	var out bytes.Buffer
	require.NoError(t, r.WriteText(&out))
	require.Equal(t, 60, strings.Count(out.String(), " 1000000"))
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len(line), 81, line)
	}
}
