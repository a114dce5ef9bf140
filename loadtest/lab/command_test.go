package lab

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// commandScenario compares services at a rate and at half of what the first can do.
func commandScenario(t *testing.T, services ...string) scenario.Scenario {
	t.Helper()
	s, err := scenario.New("commands", "Commands", "Which?", scenario.Settings{
		"strategy": services, "rate": {"100", "0.5x"}, "connections": {"4"},
	})
	require.NoError(t, err)
	s.Duration, s.Warmup, s.Repetitions = 200*time.Millisecond, 0, 1
	return *s
}

func TestCompare_StartsCommands(t *testing.T) {
	t.Parallel()
	binary := fakeBinary(t, anything)
	o := CompareOptions{
		Services: map[string]string{"plain": binary + " {port}", "shell": "sleep 100 & " + binary + " {port}"},
		Load: workload.Options{Headers: []string{"X-A: b"}, Targets: []workload.Target{
			{Method: "GET", URL: "/x"}, {Method: "GET", URL: "http://127.0.0.1:{port}/y", Weight: 2},
		}},
		Dir: t.TempDir(),
	}
	s := commandScenario(t, "service:plain", "service:shell")
	c, err := Compare(t.Context(), s, o)
	require.NoError(t, err)
	require.Empty(t, c.Partial)
	require.Equal(t, o.Services, c.Services)
	require.Len(t, c.Groups, 4)
	require.Positive(t, c.Capacity["4 connections"])
	for i, label := range []string{"plain, 100/s", "plain, 0.5x", "shell, 100/s", "shell, 0.5x"} {
		g := c.Groups[i]
		require.Equal(t, label, g.Label)
		require.Len(t, g.Runs, 1)
		r, err := result.Load(filepath.Join(o.Dir, g.Runs[0]))
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"200": r.Requests}, r.Status)
		require.Len(t, r.Targets, 2)
		require.Equal(t, "GET /x", r.Targets[0].Target)
		require.Equal(t, "GET http://127.0.0.1:{port}/y", r.Targets[1].Target, "the same in every run")
		if runtime.GOOS == "linux" {
			require.Positive(t, *r.ServerCPUMicros, "of all that the command has started")
		}
	}
	_, err = os.Stat(filepath.Join(o.Dir, "stores"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A service of the key-value protocol is filled before it is measured, whoever it is.
func TestCompare_FillsServices(t *testing.T) {
	t.Parallel()
	filled := uint64(0)
	c, err := Compare(t.Context(), commandScenario(t, "service:a"), CompareOptions{
		Services: map[string]string{"a": fakeBinary(t, anything) + " {port}"}, Dir: t.TempDir(),
		Run: func(_ context.Context, o workload.Options) (*result.Result, error) {
			r := &result.Result{Seconds: 1, Requests: 100, Status: map[string]int64{"200": 100}}
			if o.Count > 0 {
				filled = o.Count
				require.Equal(t, workload.Mix{Put: 1}, o.Mix)
				r.Status = map[string]int64{"201": int64(o.Count)}
				return r, nil
			}
			require.Equal(t, o.WithDefaults().Keys, filled)
			require.NotNil(t, o.ServerCPU)
			filled = 0
			return r, nil
		},
	})
	require.NoError(t, err)
	require.Empty(t, c.Partial)
}

func TestCompare_SaysWhatIsWrongWithCommands(t *testing.T) {
	t.Parallel()
	target := []workload.Target{{Method: "GET", URL: "/"}}
	for name, tt := range map[string]struct {
		services map[string]string
		targets  []workload.Target
		asks     []string
		says     string
	}{
		"no port":    {map[string]string{"a": "true"}, target, []string{"service:a"}, `service: "true" does not say where the port goes: {port}`},
		"no command": {nil, target, []string{"service:a"}, "service:a: there is no command of that name: say --service 'a=COMMAND'"},
		"a strategy": {map[string]string{"a": "true {port}"}, target, []string{"service:a", "fifo"}, "fifo: services that are started by commands are compared with each other alone"},
		"a target": {map[string]string{"a": "true {port}"}, []workload.Target{{Method: "GET", URL: "ftp://a/"}}, []string{"service:a"},
			"the URL is neither"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Compare(t.Context(), commandScenario(t, tt.asks...), CompareOptions{
				Services: tt.services, Load: workload.Options{Targets: tt.targets}, Dir: filepath.Join(t.TempDir(), "out"),
			})
			require.ErrorContains(t, err, tt.says)
		})
	}
	// That a service does not start is found out when it is first run.
	c, err := Compare(t.Context(), commandScenario(t, "service:a"), CompareOptions{
		Services: map[string]string{"a": "echo no such module >&2; exit 3 # {port}"}, Load: workload.Options{Targets: target}, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	require.Contains(t, c.Partial, "the service did not start (exit status 3), its last log line: no such module")
}

// A command that is started by itself says where it listens, and ends with what it has started.
func TestStart(t *testing.T) {
	t.Parallel()
	binary := fakeBinary(t, anything)
	c, err := Start(t.Context(), func(port string) (string, error) { return "sleep 100 & exec " + binary + " " + port, nil })
	require.NoError(t, err)
	resp, err := http.Get("http://127.0.0.1:" + c.Port() + "/there")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	if runtime.GOOS == "linux" {
		cpu, err := c.CPU()
		require.NoError(t, err)
		require.Positive(t, cpu)
		require.Len(t, c.Processes(), 2)
	}
	c.Kill()
	_, err = c.CPU()
	require.ErrorContains(t, err, "the service died")

	fault := errors.New("no such folder")
	_, err = Start(t.Context(), func(string) (string, error) { return "", fault })
	require.ErrorIs(t, err, fault)
	_, err = Start(t.Context(), func(string) (string, error) { return "echo no such module >&2; exit 3", nil })
	require.ErrorContains(t, err, "the service did not start (exit status 3), its last log line: no such module")
}
