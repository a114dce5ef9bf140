//go:build integration

package integration

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// helm is the path of Helm's own program, of the module in deploy/tools.
var helm = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "-C", "../deploy/tools", "tool", "-n", "helm").Output()
	return strings.TrimSpace(string(out)), err
})

func runHelm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := helm()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Each form of the chart passes Helm's strict lint, and is rendered to what a Kubernetes server
// takes; its configuration is right, what refers to something finds it, and what stops a pod
// waits until the service has stopped.
func TestChart(t *testing.T) {
	t.Parallel()
	schemas := kubernetesSchemaFolder(t)
	examples, err := filepath.Glob("../deploy/chart/examples/*.yaml")
	require.NoError(t, err)
	require.Len(t, examples, 4)
	kinds := map[string]map[string]int{
		"proxy.yaml":     {"Deployment": 1, "ConfigMap": 1, "Service": 2, "PodDisruptionBudget": 1, "HorizontalPodAutoscaler": 1, "NetworkPolicy": 1},
		"sidecar.yaml":   {"Deployment": 1, "ConfigMap": 1, "Service": 2, "PodDisruptionBudget": 1, "NetworkPolicy": 1},
		"cassandra.yaml": {"Deployment": 1, "ConfigMap": 1, "Service": 2, "PodDisruptionBudget": 1, "NetworkPolicy": 1, "Job": 1},
		"disk.yaml":      {"StatefulSet": 1, "ConfigMap": 1, "Service": 2, "NetworkPolicy": 1},
	}
	for _, example := range examples {
		name := filepath.Base(example)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := runHelm(t, "lint", "--strict", "../deploy/chart", "-f", example)
			require.NoError(t, err, out)
			rendered, err := runHelm(t, "template", "shop", "../deploy/chart", "-f", example)
			require.NoError(t, err, rendered)
			wrong, err := checkManifests(schemas, rendered)
			require.NoError(t, err)
			require.Empty(t, wrong)

			found, objects := map[string]int{}, map[string]any{}
			decoder := yaml.NewDecoder(strings.NewReader(rendered))
			for {
				var object map[string]any
				if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
					break
				} else {
					require.NoError(t, err)
				}
				found[object["kind"].(string)]++
				objects[object["kind"].(string)] = object
			}
			require.Equal(t, kinds[name], found)

			// The program takes the file, without a warning.
			file := filepath.Join(t.TempDir(), "spillway.yaml")
			content := dig(objects["ConfigMap"], "data", "spillway.yaml").(string)
			require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
			checked := run(t, plain, []string{"SPILLWAY_CACHE_BYTES="}, "config", "check", file)
			require.Equal(t, 0, checked.code, "%s\n%s", checked.stderr, content)
			require.Empty(t, checked.stderr, content)
			proxy := name == "proxy.yaml" || name == "sidecar.yaml"
			require.Equal(t, proxy, strings.Contains(checked.stdout, "of the proxy"))

			workload := objects["Deployment"]
			if workload == nil {
				workload = objects["StatefulSet"]
			}
			pod := dig(workload, "spec", "template")
			labels := dig(pod, "metadata", "labels")
			require.NotEmpty(t, labels)
			for _, selector := range []any{
				dig(workload, "spec", "selector", "matchLabels"), dig(objects["Service"], "spec", "selector"), dig(objects["NetworkPolicy"], "spec", "podSelector", "matchLabels"),
			} {
				require.Equal(t, labels, selector)
			}
			containers := dig(pod, "spec", "containers").([]any)
			spillway := containers[len(containers)-1]
			require.Equal(t, proxy, dig(spillway, "args") != nil)
			require.Equal(t, "shop", dig(dig(pod, "spec", "volumes").([]any)[0], "configMap", "name"))
			require.Equal(t, true, dig(spillway, "securityContext", "readOnlyRootFilesystem"))
			require.EqualValues(t, 45, dig(pod, "spec", "terminationGracePeriodSeconds"), "longer than 10 s and 15 s of the drain, and 10 s for the store")
			for _, want := range []string{`drain-delay: "10s"`, `drain-timeout: "15s"`, `log-format: "json"`} {
				require.Contains(t, content, want)
			}
		})
	}
}

// What cannot work is refused before anything is made.
func TestChart_Bad(t *testing.T) {
	t.Parallel()
	for values, says := range map[string]string{
		"mode=prxy":                      "mode",
		"mode=proxy":                     "mode proxy needs config.upstream",
		"mode=sidecar":                   "mode sidecar needs app.image",
		"mode=cassandra":                 "mode cassandra needs config.cassandra-hosts",
		"mode=disk,replica=3":            "replica",
		"mode=disk,config.max_keys=3":    "max_keys",
		"mode=disk,service.port=0":       "port",
		"mode=disk,config.a.b=c":         "config",
		"mode=disk,image.pullPolicy=Now": "pullPolicy",
	} {
		out, err := runHelm(t, "template", "shop", "../deploy/chart", "--set", values)
		require.Error(t, err, values)
		require.Contains(t, out, says, values)
	}
	// Numbers keep their digits, and lists stay lists.
	out, err := runHelm(t, "template", "shop", "../deploy/chart", "--set", "mode=disk,config.max-value-bytes=104857600,config.cors-origins={https://a.example,https://b.example}")
	require.NoError(t, err, out)
	require.Contains(t, out, "max-value-bytes: 104857600\n")
	require.Contains(t, out, `cors-origins: ["https://a.example","https://b.example"]`)
}

// dig returns what stands under a path of names, nil for nothing.
func dig(v any, path ...string) any {
	for _, name := range path {
		fields, _ := v.(map[string]any)
		v = fields[name]
	}
	return v
}
