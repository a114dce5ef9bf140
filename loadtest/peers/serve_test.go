package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// getenv is an environment that has these variables alone.
func getenv(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

func TestServe_SaysWhereItListensAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, getenv(map[string]string{
			"SPILLWAY_PEER": "bare", "SPILLWAY_LISTEN": "127.0.0.1:0", "SPILLWAY_ADMIN_LISTEN": "127.0.0.1:0",
		}), write)
	}()
	lines := bufio.NewScanner(read)
	for _, plane := range []string{"admin", "data"} {
		require.True(t, lines.Scan())
		var entry struct{ Msg, Plane, Addr string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &entry))
		require.Equal(t, "listening", entry.Msg)
		require.Equal(t, plane, entry.Plane)
		require.NotEmpty(t, entry.Addr)
	}
	stop()
	require.NoError(t, <-ended)
}

func TestOptions_FromTheEnvironment(t *testing.T) {
	t.Parallel()
	o, err := options(getenv(map[string]string{
		"SPILLWAY_PEER": "limiter", "SPILLWAY_SYNC": "never", "SPILLWAY_CACHE_BYTES": "1000",
		"SPILLWAY_STORE_DELAY": "exp:4ms", "SPILLWAY_WORKERS": "8", "SPILLWAY_DATA_DIR": "elsewhere",
	}))
	require.NoError(t, err)
	require.Equal(t, Options{
		Name: "limiter", Listen: "127.0.0.1:8080", AdminListen: "127.0.0.1:6060",
		Dir: "elsewhere", CacheBytes: 1000, Delay: "exp:4ms", Workers: 8,
	}, o)
	// By default a write is durable, as in the service.
	o, err = options(getenv(nil))
	require.NoError(t, err)
	require.True(t, o.Sync)

	for variable, value := range map[string]string{
		"SPILLWAY_SYNC": "interval:10ms", "SPILLWAY_CACHE_BYTES": "much", "SPILLWAY_WORKERS": "0",
	} {
		_, err := options(getenv(map[string]string{variable: value}))
		require.ErrorContains(t, err, variable)
	}
}
