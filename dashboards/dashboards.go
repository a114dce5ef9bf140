// Package dashboards holds what shows and watches a running service: Grafana
// dashboards and their provisioning, the Prometheus configuration, and the
// recording and alert rules. The code here reads them for the tests, here and
// in integration.
package dashboards

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
)

// Files are the folders grafana and prometheus.
//
//go:embed grafana prometheus
var Files embed.FS

// Dashboard is a Grafana dashboard, as far as the tests look at it.
type Dashboard struct {
	File string `json:"-"` // without its folder

	UID, Title, Description string
	Tags                    []string
	Links                   []Link
	Templating              struct{ List []Variable }
	Annotations             struct{ List []Annotation }
	Panels                  []Panel
}

// Link is a link in the head of a dashboard.
type Link struct {
	Type                  string
	Tags                  []string
	KeepTime, IncludeVars bool
}

// Variable is a variable that a reader sets in the head of a dashboard.
type Variable struct {
	Name, Label, Description, Type, Definition string
	Refresh                                    int
	Multi, IncludeAll                          bool
	// AllValue is what All stands for, empty for all values.
	AllValue string
	// Query is a string for a data source, an object otherwise.
	Query json.RawMessage
}

// Annotation is a query whose results are drawn as events.
type Annotation struct {
	Name, Expr, Step, TitleFormat, TextFormat string
	Enable                                    bool
}

// Panel is a panel, or the head of a row.
type Panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Repeat                   string
	Targets                  []Target
	Panels                   []Panel // of a row that is folded up
}

// Target is a query of a panel.
type Target struct {
	RefID, Expr, LegendFormat, Format string
	Instant                           bool
}

// Load reads all dashboards.
func Load() ([]Dashboard, error) {
	files, err := fs.Glob(Files, "grafana/*.json")
	if err != nil {
		return nil, err
	}
	var all []Dashboard
	for _, file := range files {
		text, err := Files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		d := Dashboard{File: path.Base(file)}
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// Query is anything that a dashboard asks Prometheus.
type Query struct {
	// Where names the dashboard and the panel, annotation or variable.
	Where string
	Expr  string
	// Legend is how results are called, with {{label}} for the value of a label.
	Legend string
	// Instant queries are asked for one moment, the others for a range of time.
	Instant bool
	// Event queries are annotations: they have results only where something
	// happened, and are not narrowed to a strategy.
	Event bool
}

// Queries returns the queries of all panels and annotations.
func (d *Dashboard) Queries() []Query {
	var all []Query
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			all = append(all, Query{fmt.Sprintf("%s: %s %s", d.File, p.Title, t.RefID), t.Expr, t.LegendFormat, t.Instant, false})
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, Query{fmt.Sprintf("%s: annotation %s", d.File, a.Name), a.Expr, a.TitleFormat + " " + a.TextFormat, false, true})
	}
	return all
}

// LabelValues returns the series selector and the label that a variable lists
// the values of, from label_values(selector, label).
func (v *Variable) LabelValues() (selector, label string, ok bool) {
	inner, found := strings.CutPrefix(v.Definition, "label_values(")
	inner, closed := strings.CutSuffix(inner, ")")
	i := strings.LastIndex(inner, ", ")
	if !found || !closed || i < 0 {
		return "", "", false
	}
	return inner[:i], inner[i+len(", "):], true
}

// Interpolate returns what Grafana puts in place of the variable in a query of
// the type prometheus when these values are chosen: a regular expression within a
// string of PromQL.
func (v *Variable) Interpolate(values []string) string {
	escaped := make([]string, len(values))
	for i, value := range values {
		// Grafana's prometheusSpecialRegexEscape: a backslash for the expression,
		// written as two in the string.
		escaped[i] = special.ReplaceAllString(strings.ReplaceAll(value, `\`, `\\\\`), `\\$0`)
	}
	if len(escaped) == 1 {
		return escaped[0]
	}
	return "(" + strings.Join(escaped, "|") + ")"
}

// InterpolateAll is Interpolate for All, where values are those that there are.
func (v *Variable) InterpolateAll(values []string) string {
	if v.AllValue != "" {
		return v.AllValue // as it is
	}
	return v.Interpolate(values)
}

// special are the characters that Grafana escapes.
var special = regexp.MustCompile(`[$^*{}\[\]'+?.()|]`)

// RuleGroup is a group of recording and alert rules.
type RuleGroup struct {
	Name  string
	Rules []Rule
}

// Rule is a recording rule, or an alert.
type Rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

// Rules reads the recording and alert rules.
func Rules() ([]RuleGroup, error) {
	text, err := Files.ReadFile("prometheus/rules.yml")
	if err != nil {
		return nil, err
	}
	var file struct{ Groups []RuleGroup }
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("rules.yml: %w", err)
	}
	return file.Groups, nil
}
