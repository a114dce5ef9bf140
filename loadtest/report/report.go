// Package report shows what the load lab has measured: as one HTML page that
// opens offline in any browser ([HTML]), and as Markdown ([Markdown]).
//
// The page is assembled, like porcupine's, from files that are kept apart in
// assets/, and carries its figures as JSON. A content security policy that names
// the hashes of its one style and its one script keeps everything else from
// running and every request from leaving it, whatever a label may hold.
// The charts are SVG drawn by that script, without a library: so they print, can
// be read by a screen reader and the keyboard, and have the size of the window.
// With #svg=TITLE behind its address the page becomes the charts of that title, as
// an SVG for other pages: docs/figures.sh makes those of the docs.
//
// # What is shown of several repetitions
//
// Figures are medians with the smallest and the largest value. Percentile
// curves are those of all repetitions' histograms together, attributions those of
// all their profiles. What changes over time is shown of the one repetition whose goodput is the median: an average over
// repetitions would hide stalls.
//
// # How large it gets
//
// A curve has at most 12 points for each of its decades, and what changes over time
// at most maxMoments points.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/result"
)

// Input is what a report shows. Its parts are shown in this order.
type Input struct {
	Comparisons []*Comparison
	Saturations []*Saturation
	Runs        []*Run
}

// Comparison is a comparison with the results of its runs.
type Comparison struct {
	*lab.Comparison
	// Runs has the runs of each of the comparison's groups.
	Runs [][]*Run
	// Notes say what could not be read.
	Notes []string
}

// Saturation is a search for the breaking point.
type Saturation struct {
	*lab.Saturation
	Name string
}

// Run is the result of one run.
type Run struct {
	*result.Result
	Name string
}

// Load reads what is at the paths: results of run, of saturate, or folders of
// compare. Of a folder it is enough that its comparison.json can be read:
// results that cannot are noted in the report.
func Load(paths ...string) (*Input, error) {
	in := new(Input)
	for _, path := range paths {
		if err := in.load(path); err != nil {
			return nil, err
		}
	}
	return in, nil
}

func (in *Input) load(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err := in.loadComparison(path)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: has no comparison.json: name a folder that loadtest compare or simulate has written, or a file of run or saturate", path)
		}
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: neither a file nor a folder", path)
	}
	// Fields that only one of the forms has.
	var form struct {
		Saturation *float64         `json:"breaking_point_rps"`
		Run        *string          `json:"latency_hdr"`
		Comparison *json.RawMessage `json:"groups"`
	}
	if err := result.LoadJSON(path, &form); err != nil {
		return err
	}
	switch {
	case form.Saturation != nil:
		s := &Saturation{new(lab.Saturation), filepath.Base(path)}
		in.Saturations = append(in.Saturations, s)
		return result.LoadJSON(path, s.Saturation)
	case form.Run != nil:
		r, err := loadRun(path)
		if err != nil {
			return err
		}
		in.Runs = append(in.Runs, r)
	case form.Comparison != nil:
		return in.loadComparison(filepath.Dir(path))
	default:
		return fmt.Errorf("%s: holds no result of loadtest run, saturate or compare", path)
	}
	return nil
}

func (in *Input) loadComparison(dir string) error {
	found, err := lab.LoadComparison(dir)
	if err != nil {
		return err
	}
	c := &Comparison{Comparison: found, Runs: make([][]*Run, len(found.Groups))}
	for i, g := range found.Groups {
		for _, name := range g.Runs {
			r, err := loadRun(filepath.Join(dir, name))
			if err != nil {
				c.Notes = append(c.Notes, fmt.Sprintf("a run of %s is missing from the charts: %v", g.Label, err))
				continue
			}
			c.Runs[i] = append(c.Runs[i], r)
		}
	}
	in.Comparisons = append(in.Comparisons, c)
	return nil
}

func loadRun(path string) (*Run, error) {
	r, err := result.Load(path)
	if err != nil {
		return nil, err
	}
	return &Run{Result: r, Name: filepath.Base(path)}, nil
}
