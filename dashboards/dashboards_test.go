package dashboards

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

func load(t *testing.T) []Dashboard {
	t.Helper()
	all, err := Load()
	require.NoError(t, err)
	require.Len(t, all, 4)
	return all
}

func TestDashboards_Unique(t *testing.T) {
	t.Parallel()
	uids, titles := make(map[string]string), make(map[string]string)
	for _, d := range load(t) {
		require.Empty(t, uids[d.UID], "%s: uid %s is taken", d.File, d.UID)
		require.Empty(t, titles[d.Title], "%s: title %s is taken", d.File, d.Title)
		uids[d.UID], titles[d.Title] = d.File, d.File
		require.Regexp(t, `^spillway-[a-z-]+$`, d.UID, d.File)
		require.NotEmpty(t, d.Title, d.File)
		require.NotEmpty(t, d.Description, d.File)

		ids := make(map[int]string)
		for _, p := range d.Panels {
			require.Positive(t, p.ID, p.Title)
			require.Empty(t, ids[p.ID], "%s: %s: id %d is taken", d.File, p.Title, p.ID)
			ids[p.ID] = p.Title
		}
	}
}

func TestDashboards_Panels(t *testing.T) {
	t.Parallel()
	for _, d := range load(t) {
		for _, p := range d.Panels {
			where := d.File + ": " + p.Title
			require.NotEmpty(t, p.Title, "%s: panel %d", d.File, p.ID)
			if p.Type == "row" {
				require.Empty(t, p.Panels, "%s: rows are unfolded, so that one sees all there is", where)
				continue
			}
			require.NotEmpty(t, p.FieldConfig.Defaults.Unit, "%s: unit", where)
			require.GreaterOrEqual(t, strings.Count(p.Description+" ", ". "), 2,
				"%s: the description says what the panel shows, and what to do when it looks bad", where)
			require.NotEmpty(t, p.Targets, where)
			refs := make(map[string]bool)
			for _, target := range p.Targets {
				require.False(t, refs[target.RefID], "%s: refId %s is taken", where, target.RefID)
				refs[target.RefID] = true
				if target.Format != "table" {
					require.NotEmpty(t, target.LegendFormat, "%s: legend of %s", where, target.RefID)
				}
			}
			if p.Type == "heatmap" {
				require.Equal(t, "heatmap", p.Targets[0].Format, where)
			}
			if p.Repeat != "" {
				require.True(t, slices.ContainsFunc(d.Templating.List, func(v Variable) bool { return v.Name == p.Repeat }), where)
			}
		}
	}
}

func TestDashboards_Layout(t *testing.T) {
	t.Parallel()
	for _, d := range load(t) {
		taken := make(map[[2]int]string)
		for _, p := range d.Panels {
			g := p.GridPos
			where := fmt.Sprintf("%s: %s at %+v", d.File, p.Title, g)
			require.True(t, g.X >= 0 && g.Y >= 0 && g.W > 0 && g.H > 0 && g.X+g.W <= 24, where)
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					require.Empty(t, taken[[2]int{x, y}], "%s overlaps", where)
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// A data source that is written into a panel is missing everywhere else, and
// the panel is empty.
func TestDashboards_DataSource(t *testing.T) {
	t.Parallel()
	for _, d := range load(t) {
		text, err := Files.ReadFile("grafana/" + d.File)
		require.NoError(t, err)
		var whole any
		require.NoError(t, json.Unmarshal(text, &whole))
		count := 0
		walk(whole, func(key string, value any) {
			if key == "datasource" {
				count++
				require.Equal(t, map[string]any{"type": "prometheus", "uid": "${datasource}"}, value, d.File)
			}
		})
		asked := len(d.Annotations.List) + len(d.Templating.List) - 1
		for _, p := range d.Panels {
			if p.Type != "row" {
				asked += 1 + len(p.Targets)
			}
		}
		require.Equal(t, asked, count, "%s: every panel, target, annotation and variable names the data source", d.File)
	}
}

// walk visits all values of all objects.
func walk(v any, visit func(key string, value any)) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			visit(key, value)
			walk(value, visit)
		}
	case []any:
		for _, value := range v {
			walk(value, visit)
		}
	}
}

func TestDashboards_Variables(t *testing.T) {
	t.Parallel()
	known := exported(t)
	variable := regexp.MustCompile(`\$\{?([a-zA-Z]\w*)`)
	for _, d := range load(t) {
		text, err := Files.ReadFile("grafana/" + d.File)
		require.NoError(t, err)
		var names []string
		for _, v := range d.Templating.List {
			where := d.File + ": variable " + v.Name
			names = append(names, v.Name)
			require.NotEmpty(t, v.Label, where)
			require.NotEmpty(t, v.Description, where)
			require.Regexp(t, `\$\{?`+v.Name+`\b`, string(text), "%s is not used", where)
			if v.Type == "datasource" {
				require.JSONEq(t, `"prometheus"`, string(v.Query), where)
				continue
			}
			require.Equal(t, 2, v.Refresh, "%s is refreshed when the time range changes", where)
			require.True(t, v.Multi && v.IncludeAll, where)
			selector, label, ok := v.LabelValues()
			require.True(t, ok, "%s: %s", where, v.Definition)
			require.Equal(t, v.Name, label, where)
			_, exists := known[named(selector)[0]]
			require.True(t, exists, where)
			var query struct{ Query string }
			require.NoError(t, json.Unmarshal(v.Query, &query), where)
			require.Equal(t, v.Definition, query.Query, where)
		}
		require.Equal(t, []string{"datasource", "job", "instance"}, names[:3], d.File)
		for _, found := range variable.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(found[1], "__") {
				require.Contains(t, names, found[1], d.File)
			}
		}
	}
}

// As Grafana's own tests of its data source have it.
func TestVariable_Interpolate(t *testing.T) {
	t.Parallel()
	v := Variable{Name: "instance", Multi: true, IncludeAll: true}
	for _, test := range []struct {
		values []string
		want   string
	}{
		{[]string{"spillway"}, "spillway"},
		{[]string{"a", "b"}, "(a|b)"},
		{[]string{"127.0.0.1:6060", "[::1]:6060"}, `(127\\.0\\.0\\.1:6060|\\[::1\\]:6060)`},
		{[]string{`a+b\c`}, `a\\+b\\\\c`},
	} {
		require.Equal(t, test.want, v.Interpolate(test.values))
		require.Equal(t, test.want, v.InterpolateAll(test.values))
	}
	v.AllValue = ".+"
	require.Equal(t, ".+", v.InterpolateAll([]string{"a", "b"}))
	require.Equal(t, "(a|b)", v.Interpolate([]string{"a", "b"}))
}

func TestDashboards_Links(t *testing.T) {
	t.Parallel()
	for _, d := range load(t) {
		require.Contains(t, d.Tags, "spillway", d.File)
		require.Equal(t, []Link{{Type: "dashboards", Tags: []string{"spillway"}, KeepTime: true, IncludeVars: true}}, d.Links, d.File)
	}
}

func TestDashboards_Annotations(t *testing.T) {
	t.Parallel()
	for _, d := range load(t) {
		require.True(t, slices.ContainsFunc(d.Annotations.List, func(a Annotation) bool {
			return a.Enable && strings.Contains(a.Expr, "spillway_strategy_switches_total") && strings.Contains(a.TitleFormat, "{{strategy}}")
		}), "%s shows the switches of the strategy", d.File)
		for _, a := range d.Annotations.List {
			require.Equal(t, "60s", a.Step, "%s: %s: a longer step would miss events", d.File, a.Name)
		}
	}
}

// A new strategy appears by itself.
func TestFiles_NameNoStrategy(t *testing.T) {
	t.Parallel()
	// A name that is a reason too may stand where the reasons are explained.
	names := slices.DeleteFunc(strategies.Names(), func(name string) bool {
		return slices.ContainsFunc(strategies.Reasons(), func(r strategies.Reason) bool { return r.String() == name })
	})
	name := regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)\b`)
	err := fs.WalkDir(Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := Files.ReadFile(path)
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			require.NotRegexp(t, name, line, "%s:%d", path, n)
		}
		return err
	})
	require.NoError(t, err)
}

// Whoever sees a reason in the panel finds there what it means.
func TestOverview_ExplainsReasons(t *testing.T) {
	t.Parallel()
	explained := 0
	for _, d := range load(t) {
		for _, p := range d.Panels {
			if d.File != "overview.json" || p.Title != "Sheds by reason" {
				continue
			}
			for _, r := range strategies.Reasons() {
				require.Regexp(t, `\b`+r.String()+`[,:]`, p.Description)
				explained++
			}
		}
	}
	require.Equal(t, len(strategies.Reasons()), explained)
}
