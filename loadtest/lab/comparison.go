package lab

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/result"
	"github.com/spillway-go/spillway/loadtest/scenario"
	"github.com/spillway-go/spillway/loadtest/workload"
)

// Comparison is what a comparison found, and the form of its comparison.json.
// The results of the single runs lie beside it.
type Comparison struct {
	Scenario scenario.Scenario `json:"scenario"`
	Machine  machine.Machine   `json:"machine"`
	// Command is how to repeat it.
	Command string `json:"command"`
	Version string `json:"version"`       // of the service, as `spillway --version` says
	Lab     string `json:"lab,omitempty"` // of the program that measured
	// Binary is the SHA-256 of the service's binary, which tells two builds
	// apart that say the same version.
	Binary string `json:"binary_sha256"`
	// Services are the commands by which services are started, by name.
	Services map[string]string `json:"services,omitempty"`
	// Good are the status codes that serve, if it does not depend on the operation.
	Good     workload.Codes `json:"good,omitempty"`
	Started  time.Time      `json:"started"`
	Finished time.Time      `json:"finished"`
	// Partial says why not every run was made; empty if all were.
	Partial string `json:"partial,omitempty"`
	// Capacity is what the "x" of relative rates stands for, in requests a
	// second, by load (see Group.Load).
	Capacity map[string]float64 `json:"capacity_rps,omitempty"`
	// Order says in which order the groups were run: for each repetition, their
	// indices.
	Order [][]int `json:"order"`
	// Groups are in the order of the scenario's combinations.
	Groups []Group `json:"groups"`
}

// Group is all runs of one combination.
type Group struct {
	Combination scenario.Combination `json:"combination"`
	// Label tells the combination apart from the others of its scenario, by the
	// settings in which they differ: "lifo, 64 waiting, 0.9x".
	Label string `json:"label"`
	// Workload names the load alone, without the service's settings: groups of
	// one workload may be compared. Load is the same without the rate.
	Workload string `json:"workload"`
	Load     string `json:"load"`
	// Runs are the files of the single results, relative to comparison.json, in
	// the order of the repetitions. Partial results are not among them.
	Runs []string `json:"runs"`
	// Metrics has a summary for each of the names in Metrics that was measured:
	// figures of the server need its admin plane, and served latencies need
	// requests that were served.
	Metrics map[string]Summary `json:"metrics"`
	// Shares are those of the runs, summed up: see result.Result.
	Shares map[string]result.Share `json:"shares,omitempty"`
}

// Summary is the median of a metric over the runs of a group, and its spread.
type Summary struct {
	Median float64 `json:"median"`
	// Low and High are the smallest and the largest.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Values are in the order of the repetitions. Repetitions says which, counted from
	// 0, if they are not those from the first on: of some there may be no run yet, or
	// the figure was not measured, see Group.Metrics.
	Values      []float64 `json:"values"`
	Repetitions []int     `json:"repetitions,omitempty"`
}

// repetition returns that of the nth value.
func (s *Summary) repetition(n int) int {
	if n < len(s.Repetitions) {
		return s.Repetitions[n]
	}
	return n
}

// of returns the value of a repetition; false if there is none.
func (s *Summary) of(repetition int) (float64, bool) {
	at := repetition
	if len(s.Repetitions) > 0 {
		at = slices.Index(s.Repetitions, repetition)
	}
	if at < 0 || at >= len(s.Values) {
		return 0, false
	}
	return s.Values[at], true
}

// comparisonFile is the name of a comparison's file in its folder.
const comparisonFile = "comparison.json"

// LoadComparison reads the comparison that is in a folder.
func LoadComparison(dir string) (*Comparison, error) {
	c := new(Comparison)
	if err := result.LoadJSON(filepath.Join(dir, comparisonFile), c); err != nil {
		return nil, err
	}
	for _, g := range c.Groups {
		for _, run := range g.Runs {
			if !filepath.IsLocal(run) {
				return nil, fmt.Errorf("%s: %q is not a file of that folder", filepath.Join(dir, comparisonFile), run)
			}
		}
	}
	return c, nil
}
