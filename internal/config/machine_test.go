package config

import (
	"math"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	const (
		gib     = int64(1 << 30)
		noLimit = int64(math.MaxInt64)
		meminfo = "MemTotal:        8388608 kB\nMemFree:          222764 kB\n"
	)
	for _, tt := range []struct {
		name  string
		files map[string]string
		limit int64
		want  int64
	}{
		{"nothing is known", nil, noLimit, unknownMemory},
		{"only the limit is known", nil, 3 * gib, 3 * gib},
		{"the machine's memory", map[string]string{"proc/meminfo": meminfo}, noLimit, 8 * gib},
		{"a limit lower than the memory", map[string]string{"proc/meminfo": meminfo}, 5 * gib, 5 * gib},
		{"a limit higher than the memory", map[string]string{"proc/meminfo": meminfo}, 50 * gib, 8 * gib},
		{"a control group, version 2, of a container", map[string]string{
			"proc/meminfo":             meminfo,
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/memory.max": "1073741824\n",
		}, noLimit, gib},
		{"a control group without a limit", map[string]string{
			"proc/meminfo":             meminfo,
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/memory.max": "max\n",
		}, noLimit, 8 * gib},
		{"the limit of a parent", map[string]string{
			"proc/meminfo":                                 meminfo,
			"proc/self/cgroup":                             "0::/app.slice/a.service\n",
			"sys/fs/cgroup/app.slice/memory.max":           "2147483648\n",
			"sys/fs/cgroup/app.slice/a.service/memory.max": "max\n",
		}, noLimit, 2 * gib},
		{"version 1, the path of the host", map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": "9:cpu,cpuacct:/docker/abc\n8:memory:/docker/abc\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "3221225472\n",
		}, noLimit, 3 * gib},
		{"version 1 without a limit says so with a huge one", map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": "8:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, noLimit, 8 * gib},
		{"a path that leaves the folder", map[string]string{
			"proc/meminfo":             meminfo,
			"proc/self/cgroup":         "0::/../../etc\n",
			"sys/fs/cgroup/memory.max": "1073741824\n",
		}, noLimit, gib},
		{"nonsense", map[string]string{
			"proc/meminfo":             "MemTotal: lots kB\n",
			"proc/self/cgroup":         "0\n\n:::\n0::/\n",
			"sys/fs/cgroup/memory.max": "-5\n",
		}, noLimit, unknownMemory},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := fstest.MapFS{}
			for name, content := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(content)}
			}
			require.Equal(t, tt.want, Memory(root, tt.limit))
		})
	}
}

func TestInSockets(t *testing.T) {
	t.Parallel()
	const stat = "anon 4096\nsock 1234\nsock_other 5\n"
	for what, row := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"a container":                     {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.stat": stat}, 1234},
		"a group":                         {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.stat": stat}, 1234},
		"a path of the host":              {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/memory.stat": stat}, 1234},
		"version 1":                       {map[string]string{"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.stat": stat}, 0},
		"nothing of sockets":              {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.stat": "anon 1\n"}, 0},
		"another system, without a group": {nil, 0},
	} {
		files := fstest.MapFS{}
		for name, content := range row.files {
			files[name] = &fstest.MapFile{Data: []byte(content)}
		}
		require.Equal(t, row.want, InSockets(files), what)
	}
}
