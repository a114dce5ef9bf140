//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Connections to either plane, far more than there are descriptors, leave those of
// the other plane and of the store alone.
func TestAbuse_Descriptors(t *testing.T) {
	t.Parallel()
	binary, err := plain()
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "few")
	require.NoError(t, writeProgram(script, "#!/bin/sh\nulimit -n 1024\nexec "+binary+" \"$@\"\n"))
	s := start(t, func() (string, error) { return script, nil }, "SPILLWAY_ADMIN_MAX_CONNECTIONS=50", "SPILLWAY_ACCEPT_LOOPS=2", "SPILLWAY_IDLE_TIMEOUT=1h")
	const connections = 1024 - 512 - 2 - 50 - 128
	require.Contains(t, s.stderr.String(), fmt.Sprintf("SPILLWAY_MAX_CONNECTIONS is lowered from 16384 to %d", connections))
	require.Contains(t, s.request(http.MethodGet, s.adminURL("/config"), "").body, fmt.Sprintf(`"SPILLWAY_MAX_CONNECTIONS":%d,`, connections))

	good := s.dial()
	good.mustPut(t, "k", "v")
	var held []*client
	// The test's own connection to the admin plane, which must not have been idle for too
	// long: there will be no other.
	use := func(i int) {
		if i%100 == 0 {
			require.Equal(t, http.StatusOK, s.ready())
		}
	}
	hold := func(addr, target string) {
		for i := range 1200 {
			use(i)
			c, err := dial(addr)
			if err != nil {
				continue // the kernel's queue is full
			}
			t.Cleanup(c.close)
			_ = c.send(http.MethodGet, target, "")
			held = append(held, c)
		}
	}
	hold(s.admin, "/healthz")
	hold(s.data, entity("k"))
	s.eventually("the planes are full", func() bool { return s.metrics().sum("spillway_connections") == connections })
	for i := range 300 { // over the connection that is there
		use(i)
		good.mustPut(t, fmt.Sprint("k", i), "v")
	}
	require.Equal(t, http.StatusOK, s.ready())
	a := s.request(http.MethodPost, s.adminURL("/backup"), fmt.Sprintf(`{"dir":%q}`, filepath.Join(t.TempDir(), "backup")))
	require.Equal(t, http.StatusOK, a.status, "the store has descriptors: %s", a.body)
	require.NotContains(t, s.stderr.String(), "too many open files")
	for _, c := range held {
		c.close()
	}
	s.stop()
}
