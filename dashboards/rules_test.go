package dashboards

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

func rules(t *testing.T) []RuleGroup {
	t.Helper()
	groups, err := Rules()
	require.NoError(t, err)
	require.NotEmpty(t, groups)
	return groups
}

func parse(t *testing.T, file string, into any) {
	t.Helper()
	text, err := Files.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), file)
}

func TestRules(t *testing.T) {
	t.Parallel()
	known := exported(t)
	runbook, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	recording := regexp.MustCompile(`^instance:spillway_[a-z_]+:(ratio_)?rate[0-9]+[mhd]$`)
	for _, g := range rules(t) {
		for _, r := range g.Rules {
			if r.Record != "" {
				require.Regexp(t, recording, r.Record)
			}
			requireReadRight(t, r.Expr, known) // in order: a rule reads what is recorded above it
			if r.Record != "" {
				known[r.Record] = nil
				continue
			}
			require.Regexp(t, `^Spillway[A-Z][A-Za-z]+$`, r.Alert)
			require.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.GreaterOrEqual(t, strings.Count(r.Annotations["description"]+" ", ". "), 2,
				"%s: the description says what it means for users", r.Alert)
			require.Equal(t, `{{ or $externalLabels.runbook "docs/operations.md" }}#`+strings.ToLower(r.Alert), r.Annotations["runbook_url"], r.Alert)
			require.Regexp(t, `(?m)^#+ `+r.Alert+`$`, string(runbook), "the runbook has no such heading")
		}
	}
}

// Every alert is seen to fire, and seen not to, by promtool.
func TestRules_Tested(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name   string `yaml:"alertname"`
				Expect []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	parse(t, "prometheus/rules_test.yml", &file)
	fires, rests := make(map[string]bool), make(map[string]bool)
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Expect) > 0 {
				fires[a.Name] = true
			} else {
				rests[a.Name] = true
			}
		}
	}
	for _, g := range rules(t) {
		for _, r := range g.Rules {
			if r.Alert != "" {
				require.True(t, fires[r.Alert], "%s does not fire in rules_test.yml", r.Alert)
				require.True(t, rests[r.Alert], "%s does not rest in rules_test.yml", r.Alert)
			}
		}
	}
}

// What must agree between the files.
func TestProvisioning(t *testing.T) {
	t.Parallel()
	var prometheus struct {
		Global struct {
			Interval string `yaml:"scrape_interval"`
		}
		Scrapes []struct {
			Job string `yaml:"job_name"`
		} `yaml:"scrape_configs"`
	}
	parse(t, "prometheus/prometheus.yml", &prometheus)
	var sources struct {
		DataSources []struct {
			UID, Type string
			JSONData  struct {
				Interval string `yaml:"timeInterval"`
			} `yaml:"jsonData"`
		} `yaml:"datasources"`
	}
	parse(t, "grafana/provisioning/datasources/prometheus.yaml", &sources)
	require.Len(t, sources.DataSources, 1)
	source := sources.DataSources[0]
	require.NotEmpty(t, source.UID, "without a pinned uid, links break when Grafana is set up anew")
	require.Equal(t, "prometheus", source.Type)
	require.Equal(t, prometheus.Global.Interval, source.JSONData.Interval, "from it Grafana reckons $__rate_interval")

	require.Len(t, prometheus.Scrapes, 1)
	named := regexp.MustCompile(`\bjob="([^"]*)"`)
	for _, g := range rules(t) {
		for _, r := range g.Rules {
			for _, found := range named.FindAllStringSubmatch(r.Expr, -1) {
				require.Equal(t, prometheus.Scrapes[0].Job, found[1], "%s%s", r.Alert, r.Record)
			}
		}
	}
}
