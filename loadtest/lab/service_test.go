package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/observe"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

// ask sends a request to a fake service, which may die of it.
func ask(url string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err == nil {
		_ = answer.Body.Close()
	}
	return err
}

func TestService_StartsWithWhatIsAskedForAlone(t *testing.T) {
	// Not parallel: it changes the environment.
	t.Setenv("SPILLWAY_STRATEGY", "lifo")
	t.Setenv("SPILLWAY_WORKERS", "7")
	c := scenario.Combination{Strategy: "fifo", Capacity: 64, Sync: "interval:10ms", StoreDelay: "exp:4ms", StoreParallel: 8}
	dir := t.TempDir()
	s, err := startService(t.Context(), fakeBinary(t, serves), dir, settings(&c, 200*time.Millisecond))
	require.NoError(t, err)
	body, err := observe.Get(t.Context(), s.admin, "/environment")
	require.NoError(t, err)
	var got []string
	require.NoError(t, json.Unmarshal(body, &got))
	require.ElementsMatch(t, []string{
		"SPILLWAY_STRATEGY=fifo", "SPILLWAY_QUEUE_CAPACITY=64", "SPILLWAY_SYNC=interval:10ms",
		"SPILLWAY_SLO=200ms", "SPILLWAY_STORE_DELAY=exp:4ms", "SPILLWAY_STORE_PARALLEL=8",
		"SPILLWAY_LISTEN=127.0.0.1:0", "SPILLWAY_ADMIN_LISTEN=127.0.0.1:0", "SPILLWAY_DATA_DIR=" + dir,
		"SPILLWAY_LOG_LEVEL=info", "SPILLWAY_LOG_FORMAT=json",
	}, got)
	require.NoError(t, s.death())
	require.NoError(t, s.stop(time.Minute))
	require.FileExists(t, filepath.Join(dir, "000001.sst"))
}

// It is told within which time answers are good, unless that is another question.
func TestSettings_TellTheObjective(t *testing.T) {
	t.Parallel()
	for objective, want := range map[string][]string{
		"":             {"SPILLWAY_STRATEGY=auto", "SPILLWAY_SLO=1.5s"},
		"50ms":         {"SPILLWAY_STRATEGY=auto", "SPILLWAY_SLO=50ms"},
		"none":         {"SPILLWAY_STRATEGY=auto", "SPILLWAY_SLO=none"},
		scenario.Unset: {"SPILLWAY_STRATEGY=auto"},
	} {
		require.Equal(t, want, settings(&scenario.Combination{Strategy: "auto", Objective: objective}, 1500*time.Millisecond))
	}
}

func TestService_SaysWhyItEnded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind, say string
		die       bool
		patience  time.Duration
	}{
		{serves, "the service died (exit status 3), its last log line: listening", true, time.Minute},
		{panics, "the service died (exit status 3), its last log line: panic: something is wrong", true, time.Minute},
		{stopsBadly, "the service did not stop cleanly (exit status 1), its last log line: listening", false, time.Minute},
		{neverStops, "the service did not stop within 50ms, its last log line: listening", false, 50 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			s, err := startService(t.Context(), fakeBinary(t, tt.kind), t.TempDir(), nil)
			require.NoError(t, err)
			ctx, release := s.while(t.Context())
			defer release()
			if tt.die {
				require.Error(t, ask(s.data+"/die"))
				<-ctx.Done()
				require.EqualError(t, context.Cause(ctx), tt.say)
			}
			require.EqualError(t, s.stop(tt.patience), tt.say)
		})
	}

	_, err := startService(t.Context(), fakeBinary(t, refuses), t.TempDir(), nil)
	require.EqualError(t, err, "the service did not start (exit status 2), its last log line: spillway: SPILLWAY_WORKERS: -1 is not at least 1")
	_, err = startService(t.Context(), filepath.Join(t.TempDir(), "absent"), t.TempDir(), nil)
	require.ErrorContains(t, err, "start the service: ")
}

func TestServiceLog_KeepsWhatMatters(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text, last string
	}{
		{"nothing", "", ", it logged nothing"},
		{"plain lines, the last empty", "one\ntwo\n\n", ", its last log line: two"},
		{"records", `{"msg":"cannot write","err":"disk full"}` + "\n", ", its last log line: cannot write: disk full"},
		{"a panic and its stack", "{\"msg\":\"x\"}\nfatal error: out of memory\ngoroutine 1\n", ", its last log line: fatal error: out of memory"},
		{"a long line", strings.Repeat("x", 3*longestLine) + "\n", ", its last log line: " + strings.Repeat("x", longestLine)},
	}
	for _, tt := range tests {
		// However the text is cut into pieces.
		for _, size := range []int{1, 7, 1 << 20} {
			l := new(serviceLog)
			for rest := []byte(tt.text); len(rest) > 0; {
				n, err := l.Write(rest[:min(size, len(rest))])
				require.NoError(t, err)
				rest = rest[n:]
			}
			require.Equal(t, tt.last, l.last(), "%s, in pieces of %d", tt.name, size)
		}
	}
	l := new(serviceLog)
	_, _ = fmt.Fprintln(l, `{"msg":"listening","plane":"data","addr":"127.0.0.1:1"}`)
	require.Equal(t, "http://127.0.0.1:1", l.address("data"))
	require.Empty(t, l.address("admin"))
}
