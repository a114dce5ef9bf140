//go:build integration

package integration

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// What the README shows, on an empty data folder.
func TestStart_ServesRequests(t *testing.T) {
	t.Parallel()
	s := start(t, raced)
	value := s.dataURL("/v0/entity?id=")

	a := s.request(http.MethodGet, value+"greeting", "")
	require.Equal(t, http.StatusNotFound, a.status)
	require.Empty(t, a.body)

	require.Equal(t, http.StatusCreated, s.request(http.MethodPut, value+"greeting", "hello").status)
	a = s.request(http.MethodGet, value+"greeting", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "hello", a.body)
	require.Equal(t, "application/octet-stream", a.header.Get("Content-Type"))

	a = s.request(http.MethodHead, value+"greeting", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "5", a.header.Get("Content-Length"))
	require.Empty(t, a.body)

	require.Equal(t, http.StatusCreated, s.request(http.MethodPut, value+"greeting", "").status, "an empty value")
	require.Equal(t, http.StatusCreated, s.request(http.MethodPut, value+"a+b%2F%00", "bytes").status, "any bytes are a key")
	require.Equal(t, "bytes", s.request(http.MethodGet, value+"a%20b/%00", "").body)

	for _, k := range []string{"k1", "k2", "k3"} {
		require.Equal(t, http.StatusCreated, s.request(http.MethodPut, value+k, "v"+k).status)
	}
	a = s.request(http.MethodGet, s.dataURL("/v0/entities?start=k1&end=k3"), "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "k1\nvk1k2\nvk2", a.body)
	a = s.request(http.MethodGet, s.dataURL("/v0/entities?start=k&limit=1"), "", "Accept: application/x-ndjson")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, `{"key":"azE=","value":"dmsx"}`+"\n"+`{"next":"azE"}`+"\n", a.body)

	require.Equal(t, http.StatusAccepted, s.request(http.MethodDelete, value+"k1", "").status)
	require.Equal(t, http.StatusAccepted, s.request(http.MethodDelete, value+"k1", "").status, "a key that is not there")
	require.Equal(t, http.StatusNotFound, s.request(http.MethodGet, value+"k1", "").status)

	s.request(http.MethodGet, s.dataURL("/v0/entity"), "").requireProblem(t, http.StatusBadRequest)
	s.request(http.MethodGet, s.dataURL("/metrics"), "").requireProblem(t, http.StatusBadRequest)
	a = s.request(http.MethodPost, value+"k1", "")
	a.requireProblem(t, http.StatusMethodNotAllowed)
	require.NotEmpty(t, a.header.Get("Allow"))
	s.stop()
}

func TestStart_Version(t *testing.T) {
	t.Parallel()
	r := run(t, raced, nil, "--version")
	require.Equal(t, 0, r.code, r.stderr)
	require.Regexp(t, `go1\.\d+`, r.stdout)
}

// settings are the variables of the contract with their defaults; "" where the
// default depends on the machine or there is none.
var settings = map[string]string{
	"STRATEGY": "auto", "LISTEN": "127.0.0.1:8080", "ADMIN_LISTEN": "127.0.0.1:6060",
	"ACCEPT_LOOPS": "", "WORKERS": "", "POOLS": "shared", "QUEUE_CAPACITY": "256, or 4096 under auto",
	"STORE": "pebble", "DATA_DIR": "./data", "SYNC": "always", "CACHE_BYTES": "",
	"MAX_KEY_BYTES": "4096", "MAX_VALUE_BYTES": "1048576", "MAX_BATCH_BYTES": "4194304", "MAX_BODY_BYTES": "",
	"SLO": "100ms, or more where the work takes longer", "MAX_CONNECTIONS": "16384", "MAX_CONNECTIONS_PER_ADDRESS": "0",
	"READ_TIMEOUT": "10s", "WRITE_TIMEOUT": "10s", "IDLE_TIMEOUT": "60s",
	"DRAIN_DELAY": "0", "DRAIN_TIMEOUT": "10s",
	"TLS_CERT": "", "TLS_KEY": "",
	"DATA_TOKEN": "", "DATA_TOKEN_FILE": "", "ADMIN_TOKEN": "", "ADMIN_TOKEN_FILE": "",
	"STORE_DELAY": "0", "STORE_PARALLEL": "0", "LOG_LEVEL": "info", "LOG_FORMAT": "text",
}

func TestStart_Help(t *testing.T) {
	t.Parallel()
	r := run(t, raced, nil, "--help")
	require.Equal(t, 0, r.code, r.stderr)
	help := strings.Join(strings.Fields(r.stdout), " ")
	for name, def := range settings {
		require.Contains(t, help, "--"+strings.ToLower(strings.ReplaceAll(name, "_", "-"))+"=")
		require.Regexp(t, `SPILLWAY_`+name+`\b[^\[\]]*`+regexp.QuoteMeta(def), help)
	}
}

// A bad value stops the start with one line that names the variable, the value
// and what is allowed.
func TestStart_BadValues(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env     string
		allowed []string
		with    []string
	}{
		{env: "STRATEGY=nonsense", allowed: strategies.Names()},
		{env: "LISTEN=nowhere"},
		{env: "ADMIN_LISTEN=127.0.0.1:99999"},
		{env: "ACCEPT_LOOPS=0", allowed: []string{"1"}},
		{env: "WORKERS=0", allowed: []string{"1"}},
		{env: "WORKERS=many"},
		{env: "POOLS=three", allowed: []string{"shared", "split"}},
		{env: "POOLS=split", allowed: []string{"2"}, with: []string{"SPILLWAY_WORKERS=1"}},
		{env: "QUEUE_CAPACITY=-1", allowed: []string{"1"}},
		{env: "QUEUE_CAPACITY=1.5"},
		{env: "STORE=floppy", allowed: []string{"pebble"}},
		{env: "SYNC=sometimes", allowed: []string{"always", "interval", "never"}},
		{env: "SYNC=interval:0s", allowed: []string{"interval"}},
		{env: "SYNC=interval", allowed: []string{"interval"}},
		{env: "CACHE_BYTES=-1"},
		{env: "CACHE_BYTES=1XB"},
		{env: "MAX_KEY_BYTES=0"},
		{env: "MAX_VALUE_BYTES=big"},
		{env: "MAX_BODY_BYTES=0"},
		{env: "MAX_CONNECTIONS=0"},
		{env: "SLO=0s", allowed: []string{"100us", "1h", "none"}},
		{env: "SLO=-1ns", allowed: []string{"none"}},
		{env: "SLO=48h", allowed: []string{"1h"}},
		{env: "READ_TIMEOUT=soon"},
		{env: "WRITE_TIMEOUT=-1s"},
		{env: "IDLE_TIMEOUT=10"},
		{env: "DRAIN_DELAY=-1s"},
		{env: "DRAIN_TIMEOUT=later"},
		{env: "STORE_DELAY=exp:"},
		{env: "STORE_PARALLEL=-1", allowed: []string{"0"}, with: []string{"SPILLWAY_STORE_DELAY=4ms"}},
		{env: "STORE_PARALLEL=8", allowed: []string{"SPILLWAY_STORE_DELAY"}},
		{env: "LOG_LEVEL=loud", allowed: []string{"debug", "info", "warn", "error"}},
		{env: "LOG_FORMAT=xml", allowed: []string{"text", "json"}},
		{env: "TLS_KEY=", allowed: []string{"SPILLWAY_TLS_CERT"}, with: []string{"SPILLWAY_TLS_CERT=cert.pem"}},
		{env: "TLS_CERT=", allowed: []string{"SPILLWAY_TLS_KEY"}, with: []string{"SPILLWAY_TLS_KEY=key.pem"}},
		{env: "DATA_TOKEN_FILE=/nowhere/token"},
		{env: "ADMIN_TOKEN_FILE=/nowhere/token"},
	} {
		t.Run(test.env, func(t *testing.T) {
			t.Parallel()
			r := run(t, raced, append(test.with, "SPILLWAY_"+test.env))
			require.Equal(t, 2, r.code, "exit code; stderr:\n%s", r.stderr)
			r.requireOneLine(t)
			name, value, _ := strings.Cut(test.env, "=")
			require.Contains(t, r.stderr, "SPILLWAY_"+name)
			require.Contains(t, r.stderr, value)
			for _, a := range test.allowed {
				require.Contains(t, r.stderr, a)
			}
		})
	}
}

func TestStart_BadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--strategy", "nonsense"},
		{"--workers=0"},
		{"--no-such-flag"},
		{"no-such-command"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			// The flag wins over the variable, whose value is good.
			r := run(t, raced, []string{"SPILLWAY_STRATEGY=lifo"}, args...)
			require.Equal(t, 2, r.code, r.stderr)
			r.requireOneLine(t)
		})
	}
}

func TestStart_WarnsAboutUnknownVariables(t *testing.T) {
	t.Parallel()
	s := start(t, raced, "SPILLWAY_FOO=bar")
	require.Regexp(t, `(?i)"level":"WARN".*SPILLWAY_FOO`, s.stderr.String())
	s.stop()
}

// What is in use already stops the second start with one clear line, and does
// not disturb the first.
func TestStart_Twice(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	s := start(t, raced, "SPILLWAY_DATA_DIR="+folder)
	for what, test := range map[string]struct{ env, clear string }{
		"the same data folder":   {"SPILLWAY_DATA_DIR=" + folder, folder},
		"the same data address":  {"SPILLWAY_LISTEN=" + s.data, s.data},
		"the same admin address": {"SPILLWAY_ADMIN_LISTEN=" + s.admin, s.admin},
	} {
		t.Run(what, func(t *testing.T) {
			r := run(t, raced, []string{test.env})
			require.Equal(t, 1, r.code, "exit code; stderr:\n%s", r.stderr)
			r.requireOneLine(t)
			require.Contains(t, r.stderr, test.clear)
			require.Contains(t, r.stderr, "in use")
		})
	}
	require.Equal(t, http.StatusCreated, s.request(http.MethodPut, s.dataURL(entity("k")), "v").status)
	s.stop()
}

// Other things that cannot work are one line as well.
func TestStart_Fails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("not a folder"), 0o600))
	for what, env := range map[string][]string{
		"the data folder is a file": {"SPILLWAY_DATA_DIR=" + file},
		"the certificate is none":   {"SPILLWAY_TLS_CERT=" + file, "SPILLWAY_TLS_KEY=" + file},
		"an address of others":      {"SPILLWAY_LISTEN=192.0.2.1:8080"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := run(t, raced, env)
			require.Equal(t, 1, r.code, r.stderr)
			r.requireOneLine(t)
		})
	}
}

// The data folder is let go when the process is: a start after a stop works on
// the same addresses.
func TestStart_AgainOnTheSameAddresses(t *testing.T) {
	t.Parallel()
	addresses := freeAddresses(t, 2)
	env := []string{
		"SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data"),
		"SPILLWAY_LISTEN=" + addresses[0], "SPILLWAY_ADMIN_LISTEN=" + addresses[1],
	}
	s := start(t, raced, env...)
	c := s.dial() // an open connection leaves the address in TIME_WAIT
	_, err := c.do(http.MethodPut, entity("k"), "v")
	require.NoError(t, err)
	s.stop()
	again := start(t, raced, env...)
	require.Equal(t, s.data, again.data)
	require.Equal(t, "v", again.request(http.MethodGet, again.dataURL(entity("k")), "").body)
	again.stop()
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	admin := []string{"SPILLWAY_ADMIN_LISTEN=" + freeAddresses(t, 1)[0]} // which nobody takes afterwards
	s := start(t, raced, admin...)
	r := run(t, raced, admin, "healthcheck")
	require.Equal(t, 0, r.code, r.stderr)
	s.stop()
	r = run(t, raced, admin, "healthcheck")
	require.Equal(t, 1, r.code)
	r.requireOneLine(t)
}

// A graceful stop keeps all data under every durability mode.
func TestRestart_KeepsData(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"always", "interval:1h", "never"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			const keys = 100
			env := []string{"SPILLWAY_SYNC=" + sync, "SPILLWAY_DATA_DIR=" + filepath.Join(t.TempDir(), "data"), "SPILLWAY_LISTEN=" + freeAddresses(t, 1)[0]}
			s := start(t, raced, env...)
			c := s.dial()
			for i := range keys {
				a, err := c.do(http.MethodPut, entity(fmt.Sprint("key", i)), fmt.Sprint("value", i))
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, a.status)
			}
			for i := 0; i < keys; i += 3 {
				a, err := c.do(http.MethodDelete, entity(fmt.Sprint("key", i)), "")
				require.NoError(t, err)
				require.Equal(t, http.StatusAccepted, a.status)
			}
			s.stop()
			_, err := net.Dial("tcp", s.data)
			require.Error(t, err, "the address is free")

			s = start(t, raced, env...)
			c = s.dial()
			for i := range keys {
				a, err := c.do(http.MethodGet, entity(fmt.Sprint("key", i)), "")
				require.NoError(t, err)
				if i%3 == 0 {
					require.Equal(t, http.StatusNotFound, a.status, i)
				} else {
					require.Equal(t, fmt.Sprint("value", i), a.body)
				}
			}
			s.stop()
		})
	}
}
