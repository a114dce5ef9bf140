// Package scenarios holds the scenario files that come with Spillway: the
// questions of the studies it grew out of. Package scenario describes their form.
package scenarios

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/loadtest/scenario"
)

// FS holds the files, each named after its scenario.
//
//go:embed *.yaml
var FS embed.FS

const ending = ".yaml"

// Names returns the names of the scenarios, sorted.
func Names() []string {
	files, _ := FS.ReadDir(".") // cannot fail
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(f.Name(), ending)
	}
	slices.Sort(names) // files are sorted with their ending
	return names
}

// Open returns the scenario of that name, over which settings may be written as in
// [scenario.Load]. If there is none the error lists the names.
func Open(name string, over ...scenario.Settings) (*scenario.Scenario, error) {
	data, err := FS.ReadFile(name + ending)
	if err != nil {
		return nil, fmt.Errorf("no scenario is named %q: the names are %s", name, strings.Join(Names(), ", "))
	}
	return scenario.Parse(name+ending, data, over...)
}
