//go:build !race

package judge_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/loadtest/sim"
	"github.com/spillway-go/spillway/loadtest/sim/judge"
)

var update = flag.Bool("update", false, "write the charts anew")

// What the law does in each scenario is as it is drawn. A change of the law shows as a change of
// the drawings:
//
//	go test ./loadtest/sim/judge -run Chart -update
func TestScenario_Chart(t *testing.T) {
	t.Parallel()
	for _, s := range judge.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("testdata", strings.NewReplacer(" ", "-", ",", "").Replace(s.Name)+".txt")
			chart := s.Chart(func() sim.Limiter { return judge.NewLearned() })
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(chart), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), chart)
		})
	}
}
