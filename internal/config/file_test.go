package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// withFile is input with the content of spillway.yaml.
func withFile(content string, args ...string) Input {
	in := input(args...)
	in.Env = []string{"SPILLWAY_CONFIG=spillway.yaml"}
	in.ReadFile = func(name string, _ bool) ([]byte, error) {
		if name != "spillway.yaml" {
			return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		}
		return []byte(content), nil
	}
	return in
}

func TestFile_EverySetting(t *testing.T) {
	t.Parallel()
	for _, s := range settings {
		name := strings.TrimPrefix(s.flag, "--")
		if name == "config" || strings.HasSuffix(name, "-file") {
			continue
		}
		want := defaults()
		s.set(&want)
		want.ConfigFile = "spillway.yaml"
		for _, content := range []string{
			fmt.Sprintf("# settings\n%s: %s\n", name, s.value),
			fmt.Sprintf("---\n%s: '%s'\n", name, s.value),
			fmt.Sprintf("%q: [%s]\n", name, `"`+strings.ReplaceAll(s.value, ",", `","`)+`"`),
		} {
			if strings.HasPrefix(content, "#") && strings.ContainsAny(s.value, "[:") { // needs quotes
				continue
			}
			inv, err := Parse(withFile(content))
			require.NoError(t, err, content)
			require.Equal(t, want, inv.Config, content)
			require.Regexp(t, `^spillway\.yaml:[12]$`, inv.From[s.variable])
		}
	}
}

// Flags win over the environment, and that over the file. What is empty is not set.
func TestFile_Order(t *testing.T) {
	t.Parallel()
	in := withFile("workers: 2\nqueue-capacity: 3\nstrategy: lifo\nslo:\nmode: ''\n", "--workers=9")
	in.Env = append(in.Env, "SPILLWAY_WORKERS=8", "SPILLWAY_QUEUE_CAPACITY=7")
	inv, err := Parse(in)
	require.NoError(t, err)
	require.Equal(t, []any{Workers(9), 7, "lifo", Objective(0), "enforce"},
		[]any{inv.Config.Workers, inv.Config.QueueCapacity, inv.Config.Strategy, inv.Config.SLO, inv.Config.Mode})
	require.Equal(t, map[string]string{
		"SPILLWAY_CONFIG": "environment", "SPILLWAY_WORKERS": "flag", "SPILLWAY_QUEUE_CAPACITY": "environment", "SPILLWAY_STRATEGY": "spillway.yaml:3",
	}, inv.From)

	// Of two files the flag's.
	in.Env = append(in.Env, "SPILLWAY_CONFIG=other.yaml")
	in.Args = []string{"--config=spillway.yaml"}
	inv, err = Parse(in)
	require.NoError(t, err)
	require.Equal(t, "lifo", inv.Config.Strategy)

	// A token in a file of its own is from where that file is named.
	in = withFile("admin-token-file: token\n")
	in.ReadFile = func(name string, _ bool) ([]byte, error) {
		return []byte(map[string]string{"token": "t0ken", "spillway.yaml": "admin-token-file: token\n"}[name]), nil
	}
	inv, err = Parse(in)
	require.NoError(t, err)
	require.Equal(t, "t0ken", inv.Config.AdminToken)
	require.Equal(t, "spillway.yaml:1", inv.From["SPILLWAY_ADMIN_TOKEN"])
}

// Whatever is wrong with a file is said in one line, with where and why.
func TestFile_Bad(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"strategy: fifo\nworkers: 0\n":                   `spillway.yaml:2: bad value "0" for SPILLWAY_WORKERS (--workers): want a number from 1 to 65536, or auto`,
		"\n\nslo: soon\n":                                `spillway.yaml:3: bad value "soon" for SPILLWAY_SLO (--slo): want a duration`,
		"strategy: [fifo\n":                              "spillway.yaml:1: it is not valid YAML: ",
		"strategy: fifo\n  workers: 2\n":                 "it is not valid YAML: ",
		"workers: 2\nworkers: 3\n":                       "spillway.yaml:2: ",
		"strateg: fifo\n":                                `spillway.yaml:1: there is no setting "strateg", did you mean strategy?`,
		"workers: 2\nfrobnicate: 1\nzzz: 1\n":            `spillway.yaml:2: there is no setting "frobnicate"`,
		"config: other.yaml\n":                           `spillway.yaml:1: there is no setting "config"`,
		"from: pebble:x\n":                               `there is no setting "from"`,
		"SPILLWAY_WORKERS: 2\n":                          `there is no setting "SPILLWAY_WORKERS"`,
		"queue: {capacity: 3}\n":                         "spillway.yaml:1: the value of queue is none: want one value, or a list of them",
		"fair-weights: {gold: 4}\n":                      "spillway.yaml:1: the value of fair-weights is none: want one value, or a list of them, and pairs as name=value",
		"fair-weights:\n- gold: 4\n":                     "spillway.yaml:1: the value of fair-weights is none: want one value, or a list of them, and pairs as name=value",
		"cors-origins: [[a]]\n":                          "the value of cors-origins is none",
		"strategy: &a fifo\n":                            "the value of strategy is none",
		"- strategy\n":                                   "spillway.yaml:1: want settings by the names of their flags",
		"fifo\n":                                         "spillway.yaml:1: want settings by the names of their flags",
		"workers: 2\n---\nworkers: 3\n":                  "spillway.yaml:3: want settings",
		"admin-token: a b\n":                             `spillway.yaml:1: bad value "(secret)" for SPILLWAY_ADMIN_TOKEN`,
		"pools: split\nworkers: auto\n":                  `spillway.yaml:2: bad value "auto" for SPILLWAY_WORKERS (--workers): want a number, at least 2`,
		"tls-cert: x\n":                                  `spillway.yaml:1: bad value "" for SPILLWAY_TLS_KEY`,
		"sync: never\ntls-key: x\n":                      `spillway.yaml:2: bad value "" for SPILLWAY_TLS_CERT`,
		"\nstore: cassandra\n":                           `spillway.yaml:2: bad value "" for SPILLWAY_CASSANDRA_HOSTS`,
		strings.Repeat("#", MaxFile+1):                   "more bytes than the 65536 that are allowed",
		"mode: observe\n" + strings.Repeat("[", 60_000):  "spillway.yaml:2: more than 100 brackets are open",
		"mode: observe\n" + strings.Repeat("- ", 30_000): "spillway.yaml:2: more than 100 brackets are open, or dashes without a value",
		strings.Repeat("slo:\n-\n", 1_000):               "spillway.yaml:202: more than 100 brackets are open, or dashes without a value",
		"max-value-bytes: 1,5MB\n":                       `spillway.yaml:1: bad value "1,5MB"`,
		"upstream: http://a\nmax-connections: x":         `spillway.yaml:2: bad value "x" for SPILLWAY_MAX_CONNECTIONS`,
	} {
		_, err := Parse(withFile(content))
		requireLine(t, err, want)
		require.NotContains(t, err.Error(), "\n", content)
		_, err = Parse(withFile(content, "config", "check", "spillway.yaml"))
		requireLine(t, err, want)
	}
	in := withFile("")
	in.Env = []string{"SPILLWAY_CONFIG=absent.yaml"}
	_, err := Parse(in)
	requireLine(t, err, `bad value "absent.yaml" for SPILLWAY_CONFIG (--config): want a file that can be read (file does not exist)`)

	// What the environment has is not the file's fault.
	in = withFile("workers: 2\n")
	in.Env = append(in.Env, "SPILLWAY_WORKERS=x")
	_, err = Parse(in)
	require.NotContains(t, err.Error(), "spillway.yaml")

	// Help needs no file.
	inv, err := Parse(withFile("nonsense", "--help"))
	require.NoError(t, err)
	require.Contains(t, inv.Text, "--config=FILE")
}

// The parser takes little memory, whatever is in a file. Other tests wait meanwhile.
func TestFile_Memory(t *testing.T) { //nolint:paralleltest // what it allocates is counted
	for _, piece := range []string{"- ", "[", "{", "? ", "-\n", "slo:\n-\n", "---\n?\n", "- &a ", "- !a ", "'a", "%", "a: b: ", "- [", "\t", "a: [b\n", "? ]\n", "x"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = parseFile("spillway.yaml", []byte(strings.Repeat(piece, MaxFile/len(piece))))
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20), piece)
	}
}

// A file may be shared by the service and the proxy: each says what it ignores.
func TestFile_Ignored(t *testing.T) {
	t.Parallel()
	const content = "upstream: http://a:1\ncache-bytes: 1MiB\nproxy-hold: body\n"
	inv, err := Parse(withFile(content))
	require.NoError(t, err)
	require.Equal(t, []string{
		"spillway.yaml:1: upstream is ignored: the service has no use for it", "spillway.yaml:3: proxy-hold is ignored: the service has no use for it",
	}, inv.Warnings)
	inv, err = Parse(withFile(content, "proxy"))
	require.NoError(t, err)
	require.Equal(t, "body", inv.Proxy.Hold)
	require.Equal(t, []string{"spillway.yaml:2: cache-bytes is ignored: the proxy has no use for it"}, inv.Warnings)
}

func TestFile_Check(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"# the defaults":         "spillway.yaml is right: 0 settings of the service\n",
		"\ufeffworkers: 2\r\n":   "spillway.yaml is right: 1 settings of the service\n",
		"workers: 2\nmode: null": "spillway.yaml is right: 2 settings of the service\n",
		"upstream: http://a:1\n": "spillway.yaml is right: 1 settings of the proxy\n",
	} {
		in := withFile(content, "config", "check", "spillway.yaml")
		in.Env = []string{"SPILLWAY_CONFIG=another.yaml"} // which is not looked at
		inv, err := Parse(in)
		require.NoError(t, err, content)
		require.Equal(t, CheckConfig, inv.Command)
		require.Equal(t, want, inv.Text)
	}
	inv, err := Parse(withFile("upstream: http://a:1\ndata-dir: x\nsync: never\n", "config", "check", "spillway.yaml"))
	require.NoError(t, err)
	require.Len(t, inv.Warnings, 1)
	_, err = Parse(withFile("", "config", "check", "absent.yaml"))
	requireLine(t, err, "absent.yaml", "file does not exist")
}

// A file that a reload refuses for being empty is not right, whoever it is for.
func TestFile_CheckEmpty(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "\n", " \r\n\t"} {
		for _, env := range []string{"", "SPILLWAY_UPSTREAM=http://a:1"} {
			in := withFile(content, "config", "check", "spillway.yaml")
			in.Env = []string{env}
			_, err := Parse(in)
			requireLine(t, err, "spillway.yaml: it is empty, perhaps while it is being written; to set nothing, leave a comment in it")
		}
	}
}

// What can be told without starting is: a proxy without an upstream, and files of TLS that do not fit.
func TestFile_CheckStarts(t *testing.T) {
	t.Parallel()
	cert, key := keyPair(t)
	_, other := keyPair(t)
	files := map[string][]byte{"cert.pem": cert, "key.pem": key, "other.pem": other, "none.pem": nil}
	check := func(content string, env ...string) error {
		in := withFile(content, "config", "check", "spillway.yaml")
		in.Env = env
		settings := in.ReadFile
		in.ReadFile = func(name string, pipe bool) ([]byte, error) {
			if file, ok := files[name]; ok {
				return file, nil
			}
			return settings(name, pipe)
		}
		_, err := Parse(in)
		return err
	}
	for content, want := range map[string]string{
		"slo: 200ms\nproxy-routes: [/a=a]\n":        `spillway.yaml:2: bad value "" for SPILLWAY_UPSTREAM (--upstream): want the service to forward to`,
		"tls-cert: absent.pem\ntls-key: key.pem\n":  `spillway.yaml:1: bad value "absent.pem" for SPILLWAY_TLS_CERT (--tls-cert): want a file that can be read (file does not exist)`,
		"tls-cert: cert.pem\ntls-key: absent.pem\n": `spillway.yaml:2: bad value "absent.pem" for SPILLWAY_TLS_KEY (--tls-key): want a file that can be read (file does not exist)`,
		"tls-cert: cert.pem\ntls-key: other.pem\n":  `spillway.yaml:2: bad value "other.pem" for SPILLWAY_TLS_KEY (--tls-key): want the key of the certificate in cert.pem, both PEM (`,
		"tls-cert: none.pem\ntls-key: key.pem\n":    `spillway.yaml:2: bad value "key.pem" for SPILLWAY_TLS_KEY`,
	} {
		requireLine(t, check(content), want)
	}
	require.NoError(t, check("tls-cert: cert.pem\ntls-key: key.pem\n"))
	require.NoError(t, check("proxy-routes: [/a=a]\n", "SPILLWAY_UPSTREAM=http://a:1"))
	requireLine(t, check("proxy-hold: body\n", "SPILLWAY_UPSTRAEM=http://a:1"), `spillway.yaml:1: bad value`, `unknown environment variable "SPILLWAY_UPSTRAEM"`)
	requireLine(t, check("pools: split\n", "SPILLWAY_TLS_CERT=absent.pem", "SPILLWAY_TLS_KEY=key.pem"), `bad value "absent.pem" for SPILLWAY_TLS_CERT`)
}

// keyPair returns a certificate and its key, both PEM.
func keyPair(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, private.Public(), private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func TestReload(t *testing.T) {
	t.Parallel()
	parsed := func(content string, args ...string) *Invocation {
		inv, err := Parse(withFile(content, args...))
		require.NoError(t, err)
		return &inv
	}
	was := parsed("workers: 2\nlisten: :1\nmode: observe\nmax-key-bytes: 10\n")
	next := parsed("workers: 3\nlisten: :2\nslo: 1s\nsync: never\nlog-level: debug\n")
	merged, live, fixed := was.Reload(next)
	require.Equal(t, []string{"log-level", "mode", "slo", "workers"}, live)
	require.Equal(t, []string{"listen", "max-key-bytes", "sync"}, fixed)
	want := was.Config
	want.Workers, want.Mode, want.SLO, want.LogLevel = 3, "enforce", Objective(time.Second), "debug"
	require.Equal(t, want, merged.Config)
	require.Equal(t, map[string]string{
		"SPILLWAY_CONFIG": "environment", "SPILLWAY_WORKERS": "spillway.yaml:1", "SPILLWAY_LISTEN": "spillway.yaml:2 at the start", "SPILLWAY_SLO": "spillway.yaml:3",
		"SPILLWAY_LOG_LEVEL": "spillway.yaml:5", "SPILLWAY_MAX_KEY_BYTES": "spillway.yaml:4 at the start",
	}, merged.From)
	require.Equal(t, "spillway.yaml:4", next.From["SPILLWAY_SYNC"], "and is not changed")

	again, _, _ := merged.Reload(next)
	require.Equal(t, merged.From, again.From)
	back, _, fixed := again.Reload(was)
	require.Empty(t, fixed)
	require.Equal(t, was.From, back.From)

	_, live, fixed = was.Reload(was)
	require.Empty(t, live)
	require.Empty(t, fixed)

	// The workers of split pools stay, and so whatever is right goes with what stays.
	split := parsed("pools: split\nworkers: 4\n")
	merged, live, fixed = split.Reload(parsed("pools: shared\nworkers: auto\nslo: 1s\n"))
	require.Equal(t, []string{"slo"}, live)
	require.Equal(t, []string{"pools", "workers"}, fixed)
	require.Equal(t, Workers(4), merged.Config.Workers)
	_, err := merged.Config.check(false)
	require.NoError(t, err)

	was = parsed("upstream: http://a:1\nproxy-routes: /a=a\n", "proxy")
	merged, live, fixed = was.Reload(parsed("upstream: http://b:1\nproxy-routes: /b=b\ncache-bytes: 1GB\nproxy-timeout: 1s\n", "proxy"))
	require.Equal(t, []string{"proxy-routes", "proxy-timeout", "upstream"}, live)
	require.Empty(t, fixed)
	require.Equal(t, "http://b:1", merged.Proxy.Upstream)
	require.Equal(t, "/b=b", merged.Proxy.Routes.String())
}

// The files that docs show and packages install are right.
func TestFile_Examples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	require.Contains(t, example, "slo:")
	_, err = Parse(withFile(example, "config", "check", "spillway.yaml"))
	require.NoError(t, err)
	for _, name := range []string{"spillway.yaml", "proxy.yaml"} {
		in := input("config", "check", filepath.Join("..", "..", "deploy", name))
		in.ReadFile = func(name string, _ bool) ([]byte, error) { return os.ReadFile(name) }
		inv, err := Parse(in)
		require.NoError(t, err)
		require.Empty(t, inv.Warnings)
	}
}

// FuzzFile reads any file, or says in one line what is wrong with it.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{"workers: 2\n", "strategy: [fifo\n", "- a\n", "a: {b: c}\n", "? a\n", "a: |\n  b\n", "%YAML 1.1\n---\nworkers: 1", "a: *b", "<<: x", strategies.Names()[0]} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		_, err := Parse(withFile(string(content)))
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			require.NotEmpty(t, err.Error())
		}
	})
}
