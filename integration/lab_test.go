//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/profiles"
	loadresult "github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
)

func TestLab_ComparesRealServices(t *testing.T) {
	t.Parallel()
	binary, err := plain()
	require.NoError(t, err)
	dir := t.TempDir()
	s := scenario.Scenario{
		Name: "small", Duration: 1200 * time.Millisecond, Warmup: 200 * time.Millisecond, Timeout: patience, Repetitions: 1, Seed: 1,
		Combinations: []scenario.Combination{
			{Strategy: "sync", Connections: 8, Mix: "get=80,scan=20", Keys: 2000, Rate: "0.1x"},
			// More keys are in the store than are read.
			{Strategy: "lifo", Workers: 3, Capacity: 17, Sync: "never", Connections: 8, Mix: "put=10,get=90", Keys: 500, Fill: 200_000, Rate: "2000"},
		},
	}
	c, err := lab.Compare(t.Context(), s, lab.CompareOptions{Binary: binary, Dir: dir})
	require.NoError(t, err)
	require.Empty(t, c.Partial)
	require.Len(t, c.Capacity, 1)
	require.Contains(t, c.Version, "spillway")
	for i, g := range c.Groups {
		r, err := loadresult.Load(filepath.Join(dir, g.Runs[0]))
		require.NoError(t, err)
		require.Equal(t, g.Combination.Strategy, r.Strategy)
		require.Empty(t, r.Errors)
		require.NotContains(t, r.Status, "404", "every key is found")
		require.Positive(t, *r.ServerCPUMicros)
		require.NotEmpty(t, r.CPUByPart)
		for _, kind := range profiles.Kinds {
			require.FileExists(t, filepath.Join(dir, "runs", r.ProfileFiles[kind]))
		}
		if i == 0 {
			require.InEpsilon(t, 0.1*c.Capacity[g.Load], r.TargetRPS, 1e-9)
			continue
		}
		require.Equal(t, 2000.0, r.TargetRPS)
		require.Equal(t, 3, r.Workers)
		require.Equal(t, 17, *r.Capacity)
	}
	require.NoDirExists(t, filepath.Join(dir, "stores"))
}

// compareForEver starts a comparison that does not end by itself, and returns
// its process and that of the service of its first run.
func compareForEver(t *testing.T, dir string) (p *labProcess, service int) {
	t.Helper()
	binary, err := plain()
	require.NoError(t, err)
	p = startLab(t, "compare", "--binary", binary, "--out", dir, "--strategies=fifo,lifo", "--rates=200",
		"--keys=1000", "--repetitions=1", "--duration=1h", "--warmup=0s")
	filled := func() bool {
		stores, err := filepath.Glob(filepath.Join(dir, "stores", "filled-*"))
		require.NoError(t, err)
		return len(stores) == 1
	}
	p.eventually("the service of the first run is there", func() bool {
		children := childrenOf(t, p.cmd.Process.Pid)
		if !filled() || len(children) != 1 {
			return false
		}
		service = children[0]
		return true
	})
	return p, service
}

// childrenOf lists the processes that a process has started.
func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has gone
		}
		for _, field := range strings.Fields(string(content)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			children = append(children, child)
		}
	}
	return children
}

func TestLab_KeepsAComparisonWhoseServiceDies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, service := compareForEver(t, dir)
	require.NoError(t, syscall.Kill(service, syscall.SIGKILL))
	require.Equal(t, 1, p.wait(), p.output)
	require.Equal(t, 1, strings.Count(p.output.String(), "\n"), p.output)
	require.Contains(t, p.output.String(), "(signal: killed)")
	c, err := lab.LoadComparison(dir)
	require.NoError(t, err)
	require.Contains(t, c.Partial, "run 1 of 2")
	require.Contains(t, c.Partial, "(signal: killed)")
}

func TestLab_LeavesNoServiceBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, service := compareForEver(t, dir)
	require.NoError(t, p.cmd.Process.Kill())
	<-p.exited
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", service))
		if err != nil {
			return true
		}
		// The state follows the name, which is in brackets.
		_, state, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(state, "Z")
	}, patience, 5*time.Millisecond)
	// What is there says that it is not all.
	c, err := lab.LoadComparison(dir)
	require.NoError(t, err)
	require.Equal(t, "0 of 2 runs have been made", c.Partial)
}
