package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/result"
)

// figures are what a rival did in a row: of each measure, by its key, the median of the rounds. One that is not there is
// none; of good answers there are also the least and the most of the rounds.
type figures map[string]float64

// sample is what was measured of a rival in one phase of a cell.
type sample struct {
	u *upstream
	l *load
	c *cell
	*result.Result
}

// The measures by which rivals are judged.
const good, failed, ofClass = "good_rps", "failed_percent", "class_good_percent"

// measures are the tables of the report, each of a figure of all rivals. A figure is infinite where there is none.
var measures = []struct {
	key, title, format, none string
	of                       func(*sample) float64
}{
	{good, "Good answers a second, within the objective", "%.1f", "", func(s *sample) float64 { return s.CompletedGoodRPS }},
	{"served_p99_ms", "p99 of what was served, ms", "%.0f", "", func(s *sample) float64 { return s.ServedLatency.P99 }},
	{failed, "Failed, of all requests", "%.1f%%", "", func(s *sample) float64 { return 100 * (1 - float64(s.Served())/float64(max(1, s.Requests))) }},
	{"seconds_to_protect", "Time to protect, s", "%.1f", "never", (*sample).protected},
	{"cpu_us_per_answer", "CPU of the proxy, µs an answer", "%.0f", "", func(s *sample) float64 {
		if s.ServerCPUMicros == nil || s.c.MemoryBytes == 0 {
			return math.Inf(1)
		}
		return *s.ServerCPUMicros
	}},
	{"memory_mib", "Memory of the proxy, MiB", "%.0f", "", func(s *sample) float64 { return float64(s.c.MemoryBytes) / (1 << 20) }},
	{"others_cpu_percent", "Processor time that others took of the machine meanwhile", "%.0f%%", "", func(s *sample) float64 { return 100 * s.c.Others }},
	{ofClass, "Good of the class that matters, in loads with classes", "%.0f%%", "", func(s *sample) float64 {
		if s.l.of == "" {
			return math.Inf(1)
		}
		return s.Shares[s.l.of].GoodPercent()
	}},
}

// row is a load before an upstream, cold or warm.
type row struct {
	Upstream string             `json:"upstream"`
	Load     string             `json:"load"`
	Phase    string             `json:"phase"`
	Capacity float64            `json:"capacity_rps"`
	Offered  float64            `json:"offered_rps"`
	Seconds  float64            `json:"seconds"`
	Rivals   map[string]figures `json:"rivals"`
	// Behind says where Spillway is, by the rules; empty where it is not.
	Behind []string `json:"behind"`
}

// whole is the report.
type whole struct {
	Machine machine.Machine `json:"machine"`
	Builds  []string        `json:"spillway_builds"`
	// Versions are those of programs, Missing those that are not installed.
	Versions map[string]string `json:"versions"`
	Missing  []string          `json:"missing"`
	// NotRun are loads of an upstream, and under which others were measured the rivals that were not.
	NotRun []string `json:"not_run"`
	// Broken are runs that ended early.
	Broken []string `json:"broken"`
	Rows   []row    `json:"rows"`
}

func (b *bench) report() error {
	w, err := b.collect()
	if err != nil {
		return err
	}
	if err := result.SaveJSON(filepath.Join(b.dir, "report.json"), w); err != nil {
		return err
	}
	file := filepath.Join(b.dir, "report.md")
	fmt.Println("see", file)
	return result.WriteFile(file, w.markdown)
}

// collect reads all cells that there are.
func (b *bench) collect() (*whole, error) {
	w := &whole{Machine: machine.This(), Versions: map[string]string{}}
	programs := map[string][]string{"envoy": {"--version"}, "haproxy": {"-v"}, "nginx": {"-v"}, "caddy": {"version"}, "gunicorn": {"--version"},
		"php": {"--version"}, "node": {"--version"}, "xpyd-sim": nil}
	for program, flags := range programs {
		if !installed(program) {
			w.Missing = append(w.Missing, program)
		} else if flags != nil {
			said, _ := exec.Command(program, flags...).CombinedOutput()
			line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
			if found := version.FindAllString(line, -1); found != nil {
				w.Versions[program] = found[len(found)-1] // after the path, which Envoy tells too
			}
		}
	}
	slices.Sort(w.Missing)
	for _, u := range upstreams {
		var none []string // loads without a cell
		for _, l := range loads {
			before := len(w.Rows)
			without, err := b.rows(w, u, l)
			if err != nil {
				return nil, err
			}
			if len(w.Rows) == before && without != nil {
				none = append(none, l.id())
			} else if without != nil {
				w.NotRun = append(w.NotRun, fmt.Sprintf("%s, %s: %s", u.name, l.id(), strings.Join(without, ", ")))
			}
		}
		if none != nil {
			w.NotRun = append(w.NotRun, fmt.Sprintf("%s, all rivals: %s", u.name, strings.Join(none, ", ")))
		}
	}
	return w, nil
}

var version = regexp.MustCompile(`\d+\.\d+\.\d+`)

// rows adds those of a load before an upstream, and returns the rivals that were not measured in them.
func (b *bench) rows(w *whole, u *upstream, l *load) (without []string, err error) {
	phases := [2]row{{Phase: "cold"}, {Phase: "warm"}}
	for p := range phases {
		phases[p].Upstream, phases[p].Load, phases[p].Rivals = u.name, l.id(), map[string]figures{}
	}
	for _, r := range rivals {
		if !l.fits(u, r) {
			continue
		}
		found, _ := filepath.Glob(filepath.Join(b.dir, cells, fmt.Sprintf("%s,%s,%s,*.json", u.name, l.id(), r.name)))
		if found == nil {
			without = append(without, r.name)
			continue
		}
		var rounds [2][]*sample
		for _, file := range found {
			var c cell
			if err := result.LoadJSON(file, &c); err != nil {
				return nil, err
			}
			if !slices.Contains(w.Builds, c.Build) {
				w.Builds = append(w.Builds, c.Build)
			}
			for p, measured := range []*result.Result{c.Cold, c.Warm} {
				of := &phases[p]
				if measured.Partial != "" {
					w.Broken = append(w.Broken, fmt.Sprintf("%s, %s: %s", filepath.Base(file), of.Phase, measured.Partial))
				}
				of.Capacity, of.Offered, of.Seconds = c.Capacity, measured.OfferedRPS, measured.Seconds
				rounds[p] = append(rounds[p], &sample{u, l, &c, measured})
			}
		}
		for p := range phases {
			phases[p].Rivals[r.name] = median(rounds[p])
		}
	}
	for p := range phases {
		if r := &phases[p]; len(r.Rivals) > 0 {
			r.Behind = r.judge(l)
			w.Rows = append(w.Rows, *r)
		}
	}
	return without, nil
}

// protected returns how many seconds after its onset a load is answered as it should be.
func (s *sample) protected() float64 {
	onset, capacity := 0., s.c.Capacity
	if s.l.profile != "" {
		onset = s.Seconds * spikeAfter
	}
	if n := len(s.u.steps); n > 0 {
		onset = s.Seconds * float64(n-1) / float64(n)
		capacity *= float64(s.u.steps[n-1]) / float64(s.u.places)
	}
	first := int(math.Ceil(onset/s.TimelineStep - 1e-9))
	second := int(math.Ceil(1/s.TimelineStep - 1e-9))
	for i := first; i+second <= len(s.Timeline); i++ {
		offered, good := 0., 0.
		for _, t := range s.Timeline[i : i+second] {
			offered += float64(t.Offered)
			good += float64(t.Good)
		}
		if good >= 0.9*min(offered, capacity*float64(second)*s.TimelineStep) {
			return float64(i-first) * s.TimelineStep
		}
	}
	return math.Inf(1)
}

// median returns the figures of all rounds.
func median(rounds []*sample) figures {
	f := figures{"rounds": float64(len(rounds))}
	for _, m := range measures {
		var values []float64
		for _, s := range rounds {
			values = append(values, m.of(s))
		}
		s := lab.Spread(values)
		if !math.IsInf(s.Median, 1) {
			f[m.key] = s.Median
		}
		if m.key == good {
			f["good_rps_least"], f["good_rps_most"] = s.Low, s.High
		}
	}
	return f
}

// same is what is left of a figure that counts as no less.
const same = 0.98

// judge returns where Spillway is behind, by the rules.
func (r *row) judge(l *load) (behind []string) {
	for _, of := range []struct{ key, what string }{{good, ""}, {ofClass, " in " + l.of}} {
		for _, ours := range rivals {
			f, ok := r.Rivals[ours.name]
			if !ok || !ours.ours || ours.only != "" {
				continue
			}
			for _, told := range []bool{false, true} { // of others
				best, most := "", 0.
				for _, other := range rivals {
					if !other.ours && other.told == told && r.Rivals[other.name][of.key] > most {
						best, most = other.name, r.Rivals[other.name][of.key]
					}
				}
				if (told || !ours.told) && f[of.key] < same*most {
					behind = append(behind, fmt.Sprintf("%s: %.2f of %s%s", short(ours.name), f[of.key]/most, best, of.what))
				}
			}
		}
	}
	if l.multiple >= 1 || l.profile != "" || l.steps {
		return behind
	}
	for _, other := range rivals {
		if f, ok := r.Rivals[other.name]; other.ours || !ok || f[failed] > 0 {
			continue
		}
		for _, ours := range rivals {
			if f := r.Rivals[ours.name]; ours.ours && f[failed] > 0 {
				behind = append(behind, fmt.Sprintf("%s: fails %.2f%% below the capacity, %s none", short(ours.name), f[failed], other.name))
			}
		}
		break
	}
	return behind
}

// short is what the name of one of ours says of it.
func short(name string) string { return strings.TrimPrefix(name, "spillway-") }

func (w *whole) markdown(out io.Writer) error {
	p := func(format string, what ...any) { _, _ = fmt.Fprintf(out, format, what...) } // into memory
	p("# The proxy beside others\n\n%d CPUs (%s), %s, %s.\n\nSpillway: %s. ", w.Machine.CPUs, w.Machine.CPU, w.Machine.Kernel, w.Machine.Go, strings.Join(w.Builds, "; "))
	if len(w.Builds) > 1 {
		p("**These are several builds: run all again in another folder.** ")
	}
	for _, program := range slices.Sorted(maps.Keys(w.Versions)) {
		p("%s: %s. ", program, w.Versions[program])
	}
	p("\n\nThe rules are those of `loadtest/figures/rivals/doc.go`. Settings of each:\n\n")
	for _, r := range rivals {
		if r.docs != nil {
			p("- %s: %s\n", r.name, strings.Join(r.docs, " "))
		}
	}
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			p("\n%s:\n\n- %s\n", title, strings.Join(lines, "\n- "))
		}
	}
	list("Not installed", w.Missing)
	list("Ended early", w.Broken)
	var columns []string
	for _, of := range rivals {
		if slices.ContainsFunc(w.Rows, func(r row) bool { _, ok := r.Rivals[of.name]; return ok }) {
			columns = append(columns, of.name)
		}
	}
	for n, m := range measures {
		last := ""
		if n == 0 {
			last = "behind |"
		}
		var rows strings.Builder
		for _, r := range w.Rows {
			var cells []string
			for _, c := range columns {
				text := ""
				if f, ok := r.Rivals[c]; ok {
					text = m.none
					if v, ok := f[m.key]; ok {
						text = fmt.Sprintf(m.format, v)
					}
				}
				cells = append(cells, text)
			}
			if strings.Join(cells, "") == "" {
				continue // it has no such figure
			}
			if n == 0 {
				cells = append(cells, strings.Join(r.Behind, "; "))
			}
			fmt.Fprintf(&rows, "| %s | %s | %s | %.0f | %.0f | %.0f | %s |\n", r.Upstream, r.Load, r.Phase, r.Seconds, r.Offered, r.Capacity,
				strings.Join(cells, " | "))
		}
		if rows.Len() > 0 {
			p("\n## %s\n\n| upstream | load | | s | offered | capacity | %s |%s\n|%s\n%s", m.title, strings.Join(columns, " | "), last,
				strings.Repeat("---|", 6+len(columns)+len(last)/8), rows.String())
		}
	}
	list("Not run", w.NotRun)
	return nil
}
