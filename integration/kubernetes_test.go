//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// kubernetesSchemas is a module that holds the schemas which Kubernetes servers
// publish, in the version that follows. Of the module nothing is built.
const (
	kubernetesSchemas = "sigs.k8s.io/kubectl-validate@v0.0.4"
	kubernetesVersion = "1.30"
)

// schema is one of OpenAPI 3, as far as those of Kubernetes go.
type schema struct {
	Ref                  string `json:"$ref"`
	AllOf, OneOf         []*schema
	Type                 string
	Properties           map[string]*schema
	AdditionalProperties *schema
	Items                *schema
	Required             []string
	Kinds                []struct{ Version, Kind string } `json:"x-kubernetes-group-version-kind"`
}

// schemas are those of a group of kinds, by their names.
type schemas map[string]*schema

// check returns what keeps a value from being one of a schema: fields that are not
// known, missing, or of another type.
func (all schemas) check(s *schema, v any, where string) (wrong []string) {
	if s.Ref != "" {
		return all.check(all[strings.TrimPrefix(s.Ref, "#/components/schemas/")], v, where)
	}
	for _, part := range s.AllOf {
		wrong = append(wrong, all.check(part, v, where)...)
	}
	if len(s.OneOf) > 0 && !slices.ContainsFunc(s.OneOf, func(one *schema) bool { return all.check(one, v, where) == nil }) {
		return append(wrong, fmt.Sprintf("%s: %v is of no type that it may have", where, v))
	}
	fits := true
	switch s.Type {
	case "object":
		var fields map[string]any
		if fields, fits = v.(map[string]any); !fits {
			break
		}
		for _, name := range s.Required {
			if _, there := fields[name]; !there {
				wrong = append(wrong, where+": "+name+" is missing")
			}
		}
		for name, value := range fields {
			at := where + "." + name
			switch property, known := s.Properties[name]; {
			case known:
				wrong = append(wrong, all.check(property, value, at)...)
			case s.AdditionalProperties != nil:
				wrong = append(wrong, all.check(s.AdditionalProperties, value, at)...)
			case s.Properties != nil: // without any, all may be there
				wrong = append(wrong, at+": there is no such field")
			}
		}
	case "array":
		var items []any
		items, fits = v.([]any)
		for i, item := range items {
			wrong = append(wrong, all.check(s.Items, item, fmt.Sprintf("%s[%d]", where, i))...)
		}
	case "string":
		_, fits = v.(string)
	case "boolean":
		_, fits = v.(bool)
	case "integer":
		switch v.(type) {
		case int64, uint64:
		default:
			fits = false
		}
	case "number":
		switch v.(type) {
		case int64, uint64, float64:
		default:
			fits = false
		}
	}
	if !fits {
		wrong = append(wrong, fmt.Sprintf("%s: %v is no %s", where, v, s.Type))
	}
	return wrong
}

// checkManifests returns what is wrong with the objects in a YAML text, by the
// schemas in a folder.
func checkManifests(folder, text string) (wrong []string, err error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for n := 0; ; n++ {
		var object map[string]any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return wrong, nil
		} else if err != nil {
			return nil, err
		}
		group, _ := object["apiVersion"].(string)
		kind, _ := object["kind"].(string)
		path := filepath.Join(folder, "apis", group+".json")
		if !strings.Contains(group, "/") {
			path = filepath.Join(folder, "api", group+".json")
		}
		published, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("the API %q: %w", group, err)
		}
		var document struct{ Components struct{ Schemas schemas } }
		if err := json.Unmarshal(published, &document); err != nil {
			return nil, err
		}
		var of *schema
		for _, s := range document.Components.Schemas {
			for _, k := range s.Kinds {
				if k.Kind == kind && k.Version == filepath.Base(group) {
					of = s
				}
			}
		}
		if of == nil {
			return nil, fmt.Errorf("the API %q has no kind %q", group, kind)
		}
		wrong = append(wrong, document.Components.Schemas.check(of, object, kind)...)
	}
}

// kubernetesSchemaFolder returns where the schemas are.
func kubernetesSchemaFolder(t *testing.T) string {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", kubernetesSchemas)
	download.Dir = t.TempDir() // of no module
	said, err := download.Output()
	require.NoError(t, err, "%s", said)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(said, &module))
	return filepath.Join(module.Dir, "pkg", "openapiclient", "builtins", kubernetesVersion)
}

// The manifests are what a Kubernetes server takes, and a slip in one is found.
func TestKubernetes_Schemas(t *testing.T) {
	t.Parallel()
	folder := kubernetesSchemaFolder(t)
	manifests := make(map[string]string)
	for _, name := range []string{"namespace", "deployment", "services", "availability", "networkpolicy", "schema", "embedded"} {
		text, err := os.ReadFile("../deploy/kubernetes/" + name + ".yaml")
		require.NoError(t, err)
		wrong, err := checkManifests(folder, string(text))
		require.NoError(t, err, name)
		require.Empty(t, wrong, name)
		manifests[name] = string(text)
	}
	for _, slip := range []struct{ file, old, new, says string }{
		{"namespace", "kind: Namespace", "kind: Namespaces", ""},
		{"deployment", "apps/v1", "apps/v2", ""},
		{"deployment", "  selector:\n", "  select:\n", "Deployment.spec: selector is missing"},
		{"deployment", "name: data, containerPort:", "name: data, containerPrt:", "containers[0].ports[0].containerPrt: there is no such field"},
		{"deployment", "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 45s", "45s is no integer"},
		{"deployment", "runAsNonRoot: true", "runAsNonRoot: 1", "1 is no boolean"},
		{"deployment", "port: admin}", "port: [admin]}", "of no type that it may have"},
		{"services", "clusterIP: None", "clusterIP: [None]", "is no string"},
		{"availability", "maxReplicas: 10", "maxReplica: 10", "maxReplicas is missing"},
		{"availability", "averageValue: 20m}", "averageValue: [20m]}", "of no type that it may have"},
		{"networkpolicy", "podSelector:", "podsSelector:", "podsSelector: there is no such field"},
		{"schema", "backoffLimit: 20", "backoffLimit: twenty", "twenty is no integer"},
		{"embedded", "accessModes: [ReadWriteOncePod]", "accessModes: ReadWriteOncePod", "is no array"},
	} {
		text := strings.Replace(manifests[slip.file], slip.old, slip.new, 1)
		require.NotEqual(t, manifests[slip.file], text, slip.new)
		wrong, err := checkManifests(folder, text)
		if slip.says == "" {
			require.Error(t, err, slip.new)
			continue
		}
		require.NoError(t, err, slip.new)
		require.Contains(t, strings.Join(wrong, "\n"), slip.says)
	}
}

// discovery is how a Prometheus in a cluster finds pods.
var discovery = regexp.MustCompile(`(?m)^    kubernetes_sd_configs:\n(?:      .*\n)+`)

// What the autoscaler goes by is made of metrics that the service has, and is what
// it is meant to be.
func TestKubernetes_Autoscaling(t *testing.T) {
	t.Parallel()
	const folder = "../deploy/kubernetes"
	promtool := tool(t, "promtool")
	text, err := os.ReadFile(filepath.Join(folder, "prometheus-adapter.yaml"))
	require.NoError(t, err)
	var adapter struct {
		Rules []struct {
			SeriesQuery  string `yaml:"seriesQuery"`
			Name         struct{ As string }
			MetricsQuery string `yaml:"metricsQuery"`
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &adapter))

	s := start(t, raced)
	m := s.metrics()
	s.stop()
	ask := strings.NewReplacer("<<.GroupBy>>", "pod", "<<.LabelMatchers>>", `namespace="spillway",pod=~"a|b|idle"`)
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for _, r := range adapter.Rules {
		for _, name := range regexp.MustCompile(`spillway_\w+`).FindAllString(r.SeriesQuery+r.MetricsQuery, -1) {
			there := false
			for series := range m {
				there = there || series == name || strings.HasPrefix(series, name+"{")
			}
			require.True(t, there, "the service has no %s", name)
		}
		rules = append(rules, rule{r.Name.As, ask.Replace(r.MetricsQuery)})
	}

	// Pod a runs 100 requests a second that wait 40 ms each, under two strategies,
	// with 6 of 8 workers busy; b runs as many at once, idle none.
	series := func(pod, name, labels, values string) string {
		return fmt.Sprintf("      - {series: 'spillway_%s{namespace=\"spillway\",pod=%q%s}', values: '%s'}\n", name, pod, labels, values)
	}
	input := series("a", "queue_wait_seconds_sum", `,strategy="x"`, "0+60x10") + series("a", "queue_wait_seconds_count", `,strategy="x"`, "0+1500x10") +
		series("a", "queue_wait_seconds_sum", `,strategy="y"`, "0+180x10") + series("a", "queue_wait_seconds_count", `,strategy="y"`, "0+4500x10") +
		series("a", "workers", `,strategy="x"`, "8x10") + series("a", "workers_busy", `,strategy="x"`, "6x10") +
		series("b", "queue_wait_seconds_sum", `,strategy="x"`, "5x10") + series("b", "queue_wait_seconds_count", `,strategy="x"`, "0+6000x10") +
		series("b", "workers", `,strategy="x"`, "8x10") + series("b", "workers_busy", `,strategy="x"`, "0x10") +
		series("idle", "queue_wait_seconds_sum", `,strategy="x"`, "3x10") + series("idle", "queue_wait_seconds_count", `,strategy="x"`, "100x10") +
		series("idle", "workers", `,strategy="x"`, "0x10") + series("idle", "workers_busy", `,strategy="x"`, "0x10") +
		// Another namespace does not count.
		`      - {series: 'spillway_workers{namespace="other",pod="a"}', values: '8x10'}` + "\n"
	want := func(metric, a, b, idle string) string {
		return fmt.Sprintf("      - expr: %[1]s\n        eval_time: 5m\n        exp_samples:\n"+
			"          - {labels: '%[1]s{pod=\"a\"}', value: %[2]s}\n"+
			"          - {labels: '%[1]s{pod=\"b\"}', value: %[3]s}\n"+
			"          - {labels: '%[1]s{pod=\"idle\"}', value: %[4]s}\n", metric, a, b, idle)
	}
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	recording, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "adapter", "rules": rules}}})
	require.NoError(t, err)
	test := "rule_files: [" + write("rules.yml", string(recording)) + "]\ntests:\n  - interval: 1m\n    input_series:\n" + input + "    promql_expr_test:\n" +
		want("spillway_queue_wait_mean_seconds", "0.04", "0", "0") + want("spillway_workers_busy_ratio", "0.75", "0", "0")
	out, err := exec.Command(promtool, "test", "rules", write("test.yml", test)).CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, test)

	for _, path := range []string{"../deploy/kubernetes/prometheus.yaml", "../deploy/cluster/prometheus.yml"} {
		config, err := os.ReadFile(path)
		require.NoError(t, err)
		// Where the rules are in a container, and what Debian's promtool is built
		// without.
		here := strings.Replace(string(config), "/etc/prometheus/rules.yml", write("rules.yml", string(recording)), 1)
		here = discovery.ReplaceAllString(here, "    static_configs: [{targets: [pod]}]\n")
		out, err := exec.Command(promtool, "check", "config", write("prometheus.yml", here)).CombinedOutput()
		require.NoError(t, err, "%s: %s", path, out)
	}
}
