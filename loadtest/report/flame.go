package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/spillway-go/spillway/loadtest/profiles"
)

const (
	// frameBudget is how many frames all flame graphs of a page have together:
	// about 20 bytes each.
	frameBudget = 40_000
	// maxFlames is how many groups of a comparison have flame graphs.
	maxFlames = 6
)

// flame is a flame graph.
type flame struct {
	Label string        `json:"label"` // of the group
	Kind  profiles.Kind `json:"kind"`
	Unit  string        `json:"unit"`
	// PerRequest is how many of the profile's unit make one Unit a request.
	PerRequest num   `json:"per"`
	Root       frame `json:"root"`
}

// frame is a frame of a flame graph, a call of a function: in JSON an array of
// its name's index in data.Names, its part's in data.Parts, its value, and the
// frames that it calls.
type frame struct {
	name, part int
	value      int64
	children   []frame
}

func (f frame) MarshalJSON() ([]byte, error) {
	fields := []any{f.name, f.part, f.value}
	for _, c := range f.children {
		fields = append(fields, c)
	}
	return json.Marshal(fields)
}

// flames has the flame graphs of the workload that was sent at the highest rate:
// of each strategy, then of further settings up to maxFlames.
func (s *study) flames(d *data) *figure {
	w, chosen := s.flameGroups()
	if len(chosen) == 0 {
		return nil
	}
	var graphs []*flame
	for _, g := range chosen {
		graphs = append(graphs, d.flamesOf(s.setting[g], s.Runs[g])...)
	}
	caption := flameCaption + " All runs together."
	if w.name != "" {
		caption = "Under " + w.name + ". " + caption
	}
	return d.addFlames(graphs, caption)
}

const flameCaption = "Each box is a function, below the one that called it, as wide as its share; the smallest are left out. " +
	"Choose one to zoom in."

// flameGroups returns the indices of the groups whose flame graphs are shown,
// and their workload.
func (s *study) flameGroups() (most *workload, chosen []int) {
	highest := -1.0
	for i, w := range s.workloads {
		for _, g := range w.groups {
			rate := s.Groups[g].Metrics["offered_rps"].Median
			if hasProfiles(s.Runs[g]) && rate > highest {
				most, highest = &s.workloads[i], rate
			}
		}
	}
	if most == nil {
		return nil, nil
	}
	strategies := map[string]bool{}
	take := func(only bool) {
		for _, g := range most.groups {
			strategy := s.Groups[g].Combination.Strategy
			if len(chosen) == maxFlames || slices.Contains(chosen, g) || !hasProfiles(s.Runs[g]) || only && strategies[strategy] {
				continue
			}
			strategies[strategy] = true
			chosen = append(chosen, g)
		}
	}
	take(true)
	take(false)
	slices.Sort(chosen)
	return most, chosen
}

func hasProfiles(runs []*Run) bool {
	return slices.ContainsFunc(runs, func(r *Run) bool { return len(r.ProfileFiles)+len(r.Profiles) > 0 })
}

func (d *data) addFlames(graphs []*flame, caption string) *figure {
	if len(graphs) == 0 {
		return nil
	}
	key := fmt.Sprintf("f%d", len(d.Flames)+1)
	d.Flames[key] = graphs
	return &figure{Chart: key, Title: "Where it goes", Caption: caption}
}

// flamesOf draws the flame graphs of the runs together, one of each kind.
func (d *data) flamesOf(label string, runs []*Run) (graphs []*flame) {
	for _, kind := range profiles.Kinds {
		var all []*profile.Profile
		requests, attributed := 0.0, true
		for _, r := range runs {
			p, err := r.profile(kind)
			if err != nil {
				d.note("flame graph of %s: %v", label, err)
			}
			if p != nil {
				all, requests = append(all, p), requests+r.answered()
				attributed = attributed && len(r.Attribution) > 0
			}
		}
		if len(all) == 0 {
			continue
		}
		merged, err := profile.Merge(all)
		if err != nil {
			d.note("flame graph of %s: %v", label, err)
			continue
		}
		root := profiles.Flame(merged, kind, attributed)
		if root == nil || root.Value <= 0 {
			continue
		}
		graphs = append(graphs, &flame{
			Label: label, Kind: kind, Unit: costs[kind].unit, PerRequest: num(costs[kind].divisor * max(1, requests)),
			Root: d.frame(root, threshold(root, d.frames)),
		})
	}
	return graphs
}

// profile reads a profile of the run; nil if there is none.
func (r *Run) profile(kind profiles.Kind) (*profile.Profile, error) {
	content, ok := r.Profiles[kind]
	if !ok {
		name, ok := r.ProfileFiles[kind]
		if !ok {
			return nil, nil
		}
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s: %q is not a file of its folder", r.Name, name)
		}
		var err error
		if content, err = os.ReadFile(filepath.Join(r.Dir, name)); err != nil {
			return nil, err
		}
	}
	p, err := profiles.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", r.Name, kind, err)
	}
	return p, nil
}

// threshold returns the value from which on frames are drawn, so that there are
// no more than most. A frame is never smaller than those it calls.
func threshold(root *profiles.Frame, most int) int64 {
	var values []int64
	var walk func(f *profiles.Frame)
	walk = func(f *profiles.Frame) {
		values = append(values, f.Value)
		for _, c := range f.Children {
			walk(c)
		}
	}
	walk(root)
	if len(values) <= most {
		return 1
	}
	slices.SortFunc(values, func(a, b int64) int { return cmp.Compare(b, a) })
	return values[max(0, most-1)] + 1
}

// frame turns a frame, and what it calls from the least value on, into the
// report's form.
func (d *data) frame(from *profiles.Frame, least int64) frame {
	name, known := d.names[from.Name]
	if !known {
		name = len(d.Names)
		d.names[from.Name] = name
		d.Names = append(d.Names, from.Name)
	}
	f := frame{name: name, part: slices.Index(parts, from.Part), value: from.Value}
	if f.part < 0 {
		f.part = len(parts) - 1
	}
	for _, c := range from.Children {
		if c.Value >= least {
			f.children = append(f.children, d.frame(c, least))
		}
	}
	return f
}
