package config

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfig_FitDescriptors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit               uint64
		connections, tables int
		warned              bool
	}{
		"no limit":                    {math.MaxUint64, 1000, 8192, false},
		"plenty":                      {1 << 20, 1000, 8192, false},
		"enough, fewer tables":        {2770, 1000, 1000, false},
		"just enough":                 {512 + 2 + 256 + 128 + 1000, 1000, 128, false},
		"one too few":                 {512 + 2 + 256 + 128 + 999, 999, 128, true},
		"what a shell has by default": {1024, 126, 128, true},
		"one connection":              {512 + 2 + 256 + 128 + 1, 1, 128, true},
		"none":                        {512 + 2 + 256 + 128, 0, 0, false},
		"nothing":                     {0, 0, 0, false},
	} {
		c := Config{AcceptLoops: 2, MaxConnections: 1000, AdminMaxConnections: 256}
		tables, warning, err := c.FitDescriptors(tt.limit)
		if tt.connections == 0 {
			require.ErrorContains(t, err, "ulimit -n", name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, tt.connections, c.MaxConnections, name)
		require.Equal(t, tt.tables, tables, name)
		require.Equal(t, tt.warned, warning != "", name)
		if tt.warned {
			require.Contains(t, warning, "SPILLWAY_MAX_CONNECTIONS is lowered from 1000 to", name)
		}
		require.LessOrEqual(t, uint64(512+2+256+c.MaxConnections+tables), tt.limit, name)
	}
}
