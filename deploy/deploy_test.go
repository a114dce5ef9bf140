// Package deploy_test checks that the files here agree with each other and with
// the service. The tests of integration run them.
package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/config"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// documents are those of a YAML file.
func documents(t *testing.T, path string) (all []any) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(read(t, path)))
	for {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, path)
		all = append(all, document)
	}
}

// at returns what stands under a path of names, and of numbers in lists, nil for
// nothing.
func at(v any, path ...any) any {
	for _, step := range path {
		switch node := v.(type) {
		case map[string]any:
			v = node[step.(string)]
		case []any:
			v = node[step.(int)]
		default:
			return nil
		}
	}
	return v
}

func list(v any, path ...any) []any {
	all, _ := at(v, path...).([]any)
	return all
}

// object returns the one of a kind and name in a file of deploy/kubernetes.
func object(t *testing.T, file, kind, name string) any {
	t.Helper()
	for _, document := range documents(t, filepath.Join("kubernetes", file)) {
		if at(document, "kind") == kind && at(document, "metadata", "name") == name {
			return document
		}
	}
	require.Fail(t, "there is no "+kind+" "+name, file)
	return nil
}

// settings returns the configuration that variables make, none of which may be
// unknown, or have a bad value.
func settings(t *testing.T, env []string) config.Config {
	t.Helper()
	invocation, err := config.Parse(config.Input{Env: env, Machine: config.Machine{CPUs: 2, Memory: 1 << 30}})
	require.NoError(t, err)
	require.Empty(t, invocation.Warnings)
	return invocation.Config
}

// kubernetesEnv is what a pod of the Deployment starts with.
func kubernetesEnv(t *testing.T) (env []string) {
	t.Helper()
	for line := range strings.Lines(read(t, "kubernetes/spillway.env")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			env = append(env, line)
		}
	}
	return append(env, containerEnv(container(t))...)
}

// containerEnv is what a container sets by itself. What is secret is no value.
func containerEnv(container any) (env []string) {
	for _, variable := range list(container, "env") {
		value := at(variable, "value")
		if value == nil {
			value = "secret"
		}
		env = append(env, fmt.Sprintf("%s=%s", at(variable, "name"), value))
	}
	return env
}

func pod(t *testing.T) any {
	t.Helper()
	return at(object(t, "deployment.yaml", "Deployment", "spillway"), "spec", "template", "spec")
}

func container(t *testing.T) any {
	t.Helper()
	return at(pod(t), "containers", 0)
}

// composed are the services of a Compose file, each with the defaults of its
// variables.
func composed(t *testing.T, path string) map[string]any {
	t.Helper()
	text := regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAllString(read(t, path), "$1")
	var file struct{ Services map[string]any }
	require.NoError(t, yaml.Unmarshal([]byte(text), &file))
	return file.Services
}

func composedEnv(service any) (env []string) {
	variables, _ := at(service, "environment").(map[string]any)
	for name, value := range variables {
		env = append(env, fmt.Sprint(name, "=", value))
	}
	return env
}

func duration(t *testing.T, v any) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(fmt.Sprint(v))
	require.NoError(t, err)
	return d
}

// theStore is how long the service waits for its store after the drain, before it
// gives up.
const theStore = 10 * time.Second

// Every variable that a file sets is a setting with a good value, and whoever
// stops the service waits until it has.
func TestSettings(t *testing.T) {
	t.Parallel()
	unit := read(t, "spillway.service")
	var unitEnv []string
	for _, found := range regexp.MustCompile(`(?m)^Environment=(SPILLWAY_.*)`).FindAllStringSubmatch(unit, -1) {
		unitEnv = append(unitEnv, found[1])
	}
	alone := composed(t, "../compose.yaml")["spillway"]
	one, two := composed(t, "cluster/compose.yaml")["spillway-1"], composed(t, "cluster/compose.yaml")["spillway-2"]
	embedded := at(object(t, "embedded.yaml", "StatefulSet", "spillway"), "spec", "template", "spec")
	for _, file := range []struct {
		name  string
		env   []string
		grace time.Duration
	}{
		{"spillway.service", unitEnv, duration(t, regexp.MustCompile(`(?m)^TimeoutStopSec=(.*)`).FindStringSubmatch(unit)[1])},
		{"compose.yaml", composedEnv(alone), duration(t, at(alone, "stop_grace_period"))},
		{"cluster/compose.yaml", composedEnv(one), duration(t, at(one, "stop_grace_period"))},
		{"cluster/compose.yaml, the other replica", composedEnv(two), duration(t, at(two, "stop_grace_period"))},
		{"kubernetes", kubernetesEnv(t), duration(t, fmt.Sprint(at(pod(t), "terminationGracePeriodSeconds"), "s"))},
		{"kubernetes/embedded.yaml", containerEnv(at(embedded, "containers", 0)), duration(t, fmt.Sprint(at(embedded, "terminationGracePeriodSeconds"), "s"))},
	} {
		t.Run(file.name, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, file.env)
			c := settings(t, file.env)
			require.GreaterOrEqual(t, file.grace, c.DrainDelay+c.DrainTimeout+theStore)
		})
	}
}

// The balancer knows that a replica is about to stop before it does, and is what
// ends idle connections.
func TestCluster_Times(t *testing.T) {
	t.Parallel()
	c := settings(t, composedEnv(composed(t, "cluster/compose.yaml")["spillway-1"]))
	balancer := read(t, "cluster/haproxy.cfg")
	value := func(name string) time.Duration {
		found := regexp.MustCompile(name + `\s+(\d+m?s)\b`).FindStringSubmatch(balancer)
		require.NotNil(t, found, name)
		return duration(t, found[1])
	}
	falls, err := strconv.Atoi(regexp.MustCompile(`fall (\d+)`).FindStringSubmatch(balancer)[1])
	require.NoError(t, err)
	notices := value("default-server inter") + time.Duration(falls-1)*value("fastinter")
	require.Greater(t, c.DrainDelay, 3*notices, "a check can be late")
	require.Less(t, value("timeout http-keep-alive"), c.IdleTimeout)
	require.Equal(t, c.ReadTimeout, value("timeout http-request"))
	require.Greater(t, c.DrainTimeout, 5*time.Second, "what an operation of the store may take")
}

// What is not there by one name is there by none: kustomization.yaml has every
// object but the schema, which goes before it, and those that stand for
// themselves.
func TestKubernetes_Files(t *testing.T) {
	t.Parallel()
	kustomization := documents(t, "kubernetes/kustomization.yaml")[0]
	named := []string{"kustomization.yaml", "schema.yaml", "embedded.yaml", "prometheus.yaml", "prometheus-adapter.yaml"}
	for _, file := range list(kustomization, "resources") {
		named = append(named, file.(string))
	}
	paths, err := fs.Glob(os.DirFS("kubernetes"), "*.yaml")
	require.NoError(t, err)
	require.ElementsMatch(t, paths, named)
	require.Equal(t, at(kustomization, "namespace"), at(documents(t, "kubernetes/namespace.yaml")[0], "metadata", "name"))
	require.Equal(t, at(kustomization, "namespace"), at(object(t, "schema.yaml", "Job", "spillway-schema"), "metadata", "namespace"))
	require.Equal(t, at(kustomization, "images", 0, "name"), at(container(t), "image"))
	require.Equal(t, at(kustomization, "configMapGenerator", 0, "name"), at(container(t), "envFrom", 0, "configMapRef", "name"))
}

// What an object names is there: pods by their labels, ports by their names, the
// autoscaler's target, and its metrics.
func TestKubernetes_References(t *testing.T) {
	t.Parallel()
	deployment := object(t, "deployment.yaml", "Deployment", "spillway")
	labels := at(deployment, "spec", "template", "metadata", "labels")
	ports := make(map[any]any)
	for _, port := range list(container(t), "ports") {
		ports[at(port, "name")] = at(port, "containerPort")
	}
	data, admin := object(t, "services.yaml", "Service", "spillway"), object(t, "services.yaml", "Service", "spillway-admin")
	budget := object(t, "availability.yaml", "PodDisruptionBudget", "spillway")
	policy := object(t, "networkpolicy.yaml", "NetworkPolicy", "spillway")
	for what, selector := range map[string]any{
		"deployment":       at(deployment, "spec", "selector", "matchLabels"),
		"spread over host": at(pod(t), "topologySpreadConstraints", 0, "labelSelector", "matchLabels"),
		"spread over zone": at(pod(t), "topologySpreadConstraints", 1, "labelSelector", "matchLabels"),
		"service":          at(data, "spec", "selector"),
		"admin service":    at(admin, "spec", "selector"),
		"budget":           at(budget, "spec", "selector", "matchLabels"),
		"policy":           at(policy, "spec", "podSelector", "matchLabels"),
	} {
		require.NotEmpty(t, selector, what)
		require.Equal(t, labels, selector, what)
	}
	for what, port := range map[string]any{
		"service":         at(data, "spec", "ports", 0, "targetPort"),
		"data of policy":  at(policy, "spec", "ingress", 0, "ports", 0, "port"),
		"admin service":   at(admin, "spec", "ports", 0, "targetPort"),
		"admin of policy": at(policy, "spec", "ingress", 1, "ports", 0, "port"),
		"startup":         at(container(t), "startupProbe", "httpGet", "port"),
		"readiness":       at(container(t), "readinessProbe", "httpGet", "port"),
		"liveness":        at(container(t), "livenessProbe", "httpGet", "port"),
	} {
		require.Contains(t, ports, port, what)
	}
	require.Nil(t, at(policy, "spec", "ingress", 0, "from"))
	require.NotEmpty(t, at(policy, "spec", "ingress", 1, "from"), "the admin plane is not for all")

	scaler := object(t, "availability.yaml", "HorizontalPodAutoscaler", "spillway")
	for _, field := range []string{"apiVersion", "kind"} {
		require.Equal(t, at(deployment, field), at(scaler, "spec", "scaleTargetRef", field))
	}
	require.Equal(t, at(deployment, "metadata", "name"), at(scaler, "spec", "scaleTargetRef", "name"))
	require.Nil(t, at(deployment, "spec", "replicas"), "the number would be set back whenever the file is applied")
	var scales, adapted []any
	for _, metric := range list(scaler, "spec", "metrics") {
		if name := at(metric, "pods", "metric", "name"); name != nil {
			scales = append(scales, name)
		}
	}
	for _, rule := range list(documents(t, "kubernetes/prometheus-adapter.yaml")[0], "rules") {
		adapted = append(adapted, at(rule, "name", "as"))
	}
	require.NotEmpty(t, scales)
	require.ElementsMatch(t, scales, adapted)
}

// The pod is what the image is made for.
func TestKubernetes_Image(t *testing.T) {
	t.Parallel()
	dockerfile := read(t, "../Dockerfile")
	user := regexp.MustCompile(`(?m)^USER (\d+):(\d+)\n(?:.*\n)*?EXPOSE (\d+) (\d+)$`).FindStringSubmatch(dockerfile[strings.LastIndex(dockerfile, "\nFROM "):])
	require.NotNil(t, user)
	var got []string
	for _, v := range []any{
		at(pod(t), "securityContext", "runAsUser"), at(pod(t), "securityContext", "runAsGroup"),
		at(container(t), "ports", 0, "containerPort"), at(container(t), "ports", 1, "containerPort"),
	} {
		got = append(got, fmt.Sprint(v))
	}
	require.Equal(t, user[1:], got)
	require.Equal(t, false, at(pod(t), "enableServiceLinks"), "SPILLWAY_PORT would be a setting that is not known")

	// The same pod, but for its volume and the number of its kind.
	embedded := at(object(t, "embedded.yaml", "StatefulSet", "spillway"), "spec", "template", "spec")
	for _, field := range []string{"enableServiceLinks", "automountServiceAccountToken"} {
		require.Equal(t, at(pod(t), field), at(embedded, field), field)
	}
	for _, field := range []string{"ports", "readinessProbe", "livenessProbe", "securityContext"} {
		require.Equal(t, at(container(t), field), at(embedded, "containers", 0, field), field)
	}
	require.Equal(t, at(pod(t), "securityContext", "runAsUser"), at(embedded, "securityContext", "fsGroup"))
	require.Equal(t, at(pod(t), "securityContext", "runAsUser"), at(embedded, "securityContext", "runAsUser"))
}

// The scrape job is the one that the alert rules know, and names pods as the
// adapter's rules look for them.
func TestKubernetes_Prometheus(t *testing.T) {
	t.Parallel()
	job := at(documents(t, "kubernetes/prometheus.yaml")[0], "scrape_configs", 0)
	beside := documents(t, "../dashboards/prometheus/prometheus.yml")[0]
	require.Equal(t, at(beside, "scrape_configs", 0, "job_name"), at(job, "job_name"))
	require.Equal(t, at(beside, "scrape_configs", 0, "job_name"), at(documents(t, "cluster/prometheus.yml")[0], "scrape_configs", 0, "job_name"))
	labels := make(map[string]bool)
	for _, relabelling := range list(job, "relabel_configs") {
		if label, ok := at(relabelling, "target_label").(string); ok {
			labels[label] = true
		}
	}
	for _, rule := range list(documents(t, "kubernetes/prometheus-adapter.yaml")[0], "rules") {
		overrides, _ := at(rule, "resources", "overrides").(map[string]any)
		require.Len(t, overrides, 2)
		require.Subset(t, slices.Collect(maps.Keys(labels)), slices.Collect(maps.Keys(overrides)))
	}
	var pods bytes.Buffer
	require.NoError(t, yaml.NewEncoder(&pods).Encode(at(job, "relabel_configs", 0)))
	require.Contains(t, pods.String(), fmt.Sprint(at(object(t, "deployment.yaml", "Deployment", "spillway"), "metadata", "name")))
}
