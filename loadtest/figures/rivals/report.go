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

	"github.com/spillway-go/spillway/loadtest/machine"
	"github.com/spillway-go/spillway/loadtest/result"
)

// figures are what a rival did in a row: medians of the rounds.
type figures struct {
	Rounds int `json:"rounds"`
	// Good is a second; Least and Most are those of the rounds.
	Good  float64 `json:"good_rps"`
	Least float64 `json:"good_rps_least"`
	Most  float64 `json:"good_rps_most"`
	P99   float64 `json:"served_p99_ms"`
	// Failed is the part of the requests that was not served, 0 to 1.
	Failed float64 `json:"failed"`
	// Protected is how long it took until good answers were 0.9 of what could be, in seconds; less than 0 is not at all.
	Protected float64 `json:"seconds_to_protect"`
	CPUMicros float64 `json:"cpu_us_per_answer"`
	MemoryMiB float64 `json:"memory_mib"`
	// Others is the part of the machine that others took meanwhile, 0 to 1: the figures are worth less then.
	Others float64 `json:"others_cpu"`
	// ClassGood is the part of a class that is good, in loads with classes, 0 to 1.
	ClassGood float64 `json:"class_good,omitempty"`
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
	if err := save(filepath.Join(b.dir, "report.json"), w); err != nil {
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
	for i := range upstreams {
		u := &upstreams[i]
		var none []string // loads without a cell
		for j := range loads {
			l := &loads[j]
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
	cold := row{Upstream: u.name, Load: l.id(), Phase: "cold", Rivals: map[string]figures{}}
	warm := row{Upstream: u.name, Load: l.id(), Phase: "warm", Rivals: map[string]figures{}}
	for i := range rivals {
		r := &rivals[i]
		if !l.fits(u, r) {
			continue
		}
		found, _ := filepath.Glob(filepath.Join(b.dir, "cells", fmt.Sprintf("%s,%s,%s,*.json", u.name, l.id(), r.name)))
		if found == nil {
			without = append(without, r.name)
			continue
		}
		var colds, warms []figures
		for _, file := range found {
			var c cell
			if err := read(file, &c); err != nil {
				return nil, err
			}
			if !slices.Contains(w.Builds, c.Build) {
				w.Builds = append(w.Builds, c.Build)
			}
			for _, p := range []struct {
				row     *row
				figures *[]figures
				result  *result.Result
			}{{&cold, &colds, c.Cold}, {&warm, &warms, c.Warm}} {
				if p.result.Partial != "" {
					w.Broken = append(w.Broken, fmt.Sprintf("%s, %s: %s", filepath.Base(file), p.row.Phase, p.result.Partial))
				}
				p.row.Capacity, p.row.Offered, p.row.Seconds = c.Capacity, p.result.OfferedRPS, p.result.Seconds
				*p.figures = append(*p.figures, figuresOf(u, l, &c, p.result))
			}
		}
		cold.Rivals[r.name], warm.Rivals[r.name] = median(colds), median(warms)
	}
	if len(cold.Rivals) > 0 {
		for _, r := range []*row{&cold, &warm} {
			r.Behind = r.judge(l)
			w.Rows = append(w.Rows, *r)
		}
	}
	return without, nil
}

func figuresOf(u *upstream, l *load, c *cell, r *result.Result) figures {
	f := figures{
		Rounds: 1, Good: r.GoodputRPS, Least: r.GoodputRPS, Most: r.GoodputRPS, P99: r.ServedLatency.P99, MemoryMiB: float64(c.MemoryBytes) / (1 << 20),
		Failed: 1 - float64(r.Served())/float64(max(1, r.Requests)), Protected: protected(u, l, c.Capacity, r),
		Others: c.Others, ClassGood: r.Shares[l.of].GoodPercent() / 100,
	}
	if r.ServerCPUMicros != nil && c.MemoryBytes > 0 {
		f.CPUMicros = *r.ServerCPUMicros
	}
	return f
}

// protected returns how many seconds after its onset a load is answered as it should be; less than 0 if it never is.
func protected(u *upstream, l *load, capacity float64, r *result.Result) float64 {
	onset := 0.
	if l.profile != "" {
		onset = r.Seconds * spikeAfter
	}
	if n := len(u.steps); n > 0 {
		onset = r.Seconds * float64(n-1) / float64(n)
		capacity *= float64(u.steps[n-1]) / float64(u.places)
	}
	first := int(math.Ceil(onset/r.TimelineStep - 1e-9))
	second := int(math.Ceil(1/r.TimelineStep - 1e-9))
	for i := first; i+second <= len(r.Timeline); i++ {
		offered, good := 0., 0.
		for _, t := range r.Timeline[i : i+second] {
			offered += float64(t.Offered)
			good += float64(t.Good)
		}
		if good >= 0.9*min(offered, capacity*float64(second)*r.TimelineStep) {
			return float64(i-first) * r.TimelineStep
		}
	}
	return -1
}

// never is after all times.
const never = 1e9

// median returns that of each figure.
func median(all []figures) figures {
	of := func(figure func(*figures) float64) float64 {
		var values []float64
		for i := range all {
			values = append(values, figure(&all[i]))
		}
		slices.Sort(values)
		return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	f := figures{
		Rounds: len(all), Least: all[0].Good, Most: all[0].Good,
		Good: of(func(f *figures) float64 { return f.Good }), P99: of(func(f *figures) float64 { return f.P99 }),
		Failed: of(func(f *figures) float64 { return f.Failed }), CPUMicros: of(func(f *figures) float64 { return f.CPUMicros }),
		MemoryMiB: of(func(f *figures) float64 { return f.MemoryMiB }), ClassGood: of(func(f *figures) float64 { return f.ClassGood }),
		Others: of(func(f *figures) float64 { return f.Others }),
		Protected: of(func(f *figures) float64 {
			if f.Protected < 0 {
				return never
			}
			return f.Protected
		}),
	}
	if f.Protected >= never/2 {
		f.Protected = -1
	}
	for i := range all {
		f.Least, f.Most = min(f.Least, all[i].Good), max(f.Most, all[i].Good)
	}
	return f
}

// same is what is left of a figure that counts as no less.
const same = 0.98

// judge returns where Spillway is behind, by the rules.
func (r *row) judge(l *load) (behind []string) {
	// compare adds who of ours has less of a figure than the best of others, told no number or told it.
	compare := func(what string, figure func(figures) float64) {
		for i := range rivals {
			ours := &rivals[i]
			f, ok := r.Rivals[ours.name]
			if !ok || !ours.ours || ours.only != "" {
				continue
			}
			for _, told := range []bool{false, true} {
				best, most := "", 0.
				for j := range rivals {
					if other := &rivals[j]; !other.ours && other.told == told && figure(r.Rivals[other.name]) > most {
						best, most = other.name, figure(r.Rivals[other.name])
					}
				}
				if (told || !ours.told) && figure(f) < same*most {
					behind = append(behind, fmt.Sprintf("%s: %.2f of %s%s", short(ours.name), figure(f)/most, best, what))
				}
			}
		}
	}
	compare("", func(f figures) float64 { return f.Good })
	compare(" in "+l.of, func(f figures) float64 { return f.ClassGood })
	if l.multiple >= 1 || l.profile != "" || l.steps {
		return behind
	}
	for i := range rivals {
		other := &rivals[i]
		if f, ok := r.Rivals[other.name]; other.ours || !ok || f.Failed > 0 {
			continue
		}
		for j := range rivals {
			if f := r.Rivals[rivals[j].name]; rivals[j].ours && f.Failed > 0 {
				behind = append(behind, fmt.Sprintf("%s: fails %.2f%% below the capacity, %s none", short(rivals[j].name), 100*f.Failed, other.name))
			}
		}
		break
	}
	return behind
}

// short is what the name of one of ours says of it.
func short(name string) string { return strings.TrimPrefix(name, "spillway-") }

// tables are those of the report, in each a figure of all rivals.
var tables = []struct {
	title string
	cell  func(figures) string
}{
	{"Good answers a second, within the objective", func(f figures) string { return fmt.Sprintf("%.1f", f.Good) }},
	{"p99 of what was served, ms", func(f figures) string { return fmt.Sprintf("%.0f", f.P99) }},
	{"Failed, of all requests", func(f figures) string { return fmt.Sprintf("%.1f%%", 100*f.Failed) }},
	{"Time to protect, s", func(f figures) string {
		if f.Protected < 0 {
			return "never"
		}
		return fmt.Sprintf("%.1f", f.Protected)
	}},
	{"CPU of the proxy, µs an answer", func(f figures) string { return fmt.Sprintf("%.0f", f.CPUMicros) }},
	{"Memory of the proxy, MiB", func(f figures) string { return fmt.Sprintf("%.0f", f.MemoryMiB) }},
	{"Processor time that others took of the machine meanwhile", func(f figures) string { return fmt.Sprintf("%.0f%%", 100*f.Others) }},
	{"Good of the class that matters, in loads with classes", func(f figures) string {
		if f.ClassGood == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f%%", 100*f.ClassGood)
	}},
}

func (w *whole) markdown(out io.Writer) error {
	p := func(format string, what ...any) { _, _ = fmt.Fprintf(out, format, what...) } // into memory
	p("# The proxy beside others\n\n%d CPUs (%s), Linux %s, %s.\n\nSpillway: %s. ", w.Machine.CPUs, w.Machine.CPU, w.Machine.Kernel, w.Machine.Go, strings.Join(w.Builds, "; "))
	if len(w.Builds) > 1 {
		p("**These are several builds: run all again in another folder.** ")
	}
	for _, program := range slices.Sorted(maps.Keys(w.Versions)) {
		p("%s: %s. ", program, w.Versions[program])
	}
	p("\n\nThe rules are those of `loadtest/figures/rivals/doc.go`. Settings of each:\n\n")
	for i := range rivals {
		if rivals[i].docs != nil {
			p("- %s: %s\n", rivals[i].name, strings.Join(rivals[i].docs, " "))
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
	for i := range rivals {
		if slices.ContainsFunc(w.Rows, func(r row) bool { _, ok := r.Rivals[rivals[i].name]; return ok }) {
			columns = append(columns, rivals[i].name)
		}
	}
	for n, t := range tables {
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
					text = t.cell(f)
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
			p("\n## %s\n\n| upstream | load | | s | offered | capacity | %s |%s\n|%s\n%s", t.title, strings.Join(columns, " | "), last,
				strings.Repeat("---|", 6+len(columns)+len(last)/8), rows.String())
		}
	}
	list("Not run", w.NotRun)
	return nil
}
