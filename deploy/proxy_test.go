package deploy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/config"
)

// What the files set for the proxy are settings of it with good values: it learns how many
// requests run at once, and at first only observes. It is let stop, and what it forwards to
// is there.
func TestProxy(t *testing.T) {
	t.Parallel()
	services := composed(t, "proxy/compose.yaml")
	sidecar := documents(t, "proxy/sidecar.yaml")
	beside := at(sidecar[0], "spec", "template", "spec")
	container := at(beside, "containers", 1)
	for name, tt := range map[string]struct {
		args     []any
		env      []string
		grace    time.Duration
		upstream string
	}{
		"compose.yaml": {
			list(services["spillway"], "command"), composedEnv(services["spillway"]), duration(t, at(services["spillway"], "stop_grace_period")),
			fmt.Sprintf("http://app:%v", at(services["app"], "expose", 0)),
		},
		"sidecar.yaml": {
			list(container, "args"), containerEnv(container), duration(t, fmt.Sprint(at(beside, "terminationGracePeriodSeconds"), "s")),
			"http://127.0.0.1:3000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, []any{"proxy"}, tt.args)
			invocation, err := config.Parse(config.Input{Args: []string{"proxy"}, Env: tt.env, Machine: config.Machine{CPUs: 2, Memory: 1 << 30}})
			require.NoError(t, err)
			require.Empty(t, invocation.Warnings)
			require.Equal(t, tt.upstream, invocation.Proxy.Upstream)
			require.Equal(t, config.Auto, invocation.Config.Workers)
			require.Equal(t, config.ModeObserve, invocation.Config.Mode)
			require.Equal(t, 10_000, invocation.Config.QueueCapacity, "as docs/proxy.md says of observing")
			require.Greater(t, tt.grace, invocation.Config.DrainDelay+invocation.Config.DrainTimeout)
		})
	}
	require.Equal(t, at(sidecar[1], "spec", "selector"), at(sidecar[0], "spec", "template", "metadata", "labels"))
	require.Equal(t, at(sidecar[1], "spec", "ports", 0, "targetPort"), at(container, "ports", 0, "name"))
}
