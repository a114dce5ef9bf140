package versus

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// OtherBuild names the contestant that is the same as the one of this name, but
// of the other of two builds of the service.
func OtherBuild(name string) string { return name + "-other" }

// WriteBuilds writes, for each contestant of which the other build was measured
// as well, the ratio of the two under each closed loop. There must be at least one
// round.
func (r *Result) WriteBuilds(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| load | | CPU a request, other build | this build | requests/s, other build | this build |\n|---|---|---|---|---|---|\n")
	for at, load := range r.Loads {
		if load.Rate > 0 {
			continue
		}
		title := load.String()
		for c, name := range r.Contestants {
			other := slices.Index(r.Contestants, OtherBuild(name))
			if other < 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", title, name,
				r.cell(at, other, other, cpu), r.cell(at, c, other, cpu), r.cell(at, other, other, rate), r.cell(at, c, other, rate))
			title = ""
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
