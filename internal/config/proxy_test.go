package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse_Proxy(t *testing.T) {
	t.Parallel()
	inv, err := Parse(input("proxy", "--upstream=http://127.0.0.1:3000/", "--workers=8"))
	require.NoError(t, err)
	require.Equal(t, Proxy, inv.Command)
	require.Equal(t, Workers(8), inv.Config.Workers)
	require.Equal(t, Forward{
		Upstream: "http://127.0.0.1:3000", Client: "address", Hold: "auto", BufferBytes: 64 << 10, TrustHeaders: "false", Timeout: time.Minute,
	}, inv.Proxy)
	require.Empty(t, inv.Warnings)

	in := input("proxy", "--proxy-timeout=5s")
	in.Env = []string{
		"SPILLWAY_UPSTREAM=https://a.example", "SPILLWAY_WORKERS=3", "SPILLWAY_MODE=observe", "SPILLWAY_PROXY_CLIENT=header:X-Key",
		"SPILLWAY_PROXY_PRIORITY=path:/a=6,header:X-U", "SPILLWAY_PROXY_EXEMPT=/health,/static", "SPILLWAY_PROXY_HOLD=headers",
		"SPILLWAY_PROXY_TRUST_HEADERS=true", "SPILLWAY_PROXY_TIMEOUT=9s", "SPILLWAY_PROXY_HODL=x",
		"SPILLWAY_PROXY_BUFFER_BYTES=1MiB", "SPILLWAY_PROXY_ROUTES=/a/*=a,/b=b",
	}
	inv, err = Parse(in)
	require.NoError(t, err)
	require.Equal(t, ModeObserve, inv.Config.Mode)
	require.Equal(t, []string{`unknown environment variable "SPILLWAY_PROXY_HODL" is ignored`}, inv.Warnings)
	shown := inv.Redacted()
	for name := range inv.Config.Redacted() {
		delete(shown, name)
	}
	require.Equal(t, map[string]any{
		"SPILLWAY_UPSTREAM": "https://a.example", "SPILLWAY_PROXY_CLIENT": "header:X-Key",
		"SPILLWAY_PROXY_PRIORITY": "path:/a=6,header:X-U", "SPILLWAY_PROXY_EXEMPT": "/health,/static", "SPILLWAY_PROXY_HOLD": "headers",
		"SPILLWAY_PROXY_TRUST_HEADERS": "true", "SPILLWAY_PROXY_TIMEOUT": "5s",
		"SPILLWAY_PROXY_BUFFER_BYTES": int64(1 << 20), "SPILLWAY_PROXY_ROUTES": "/a/*=a,/b=b",
	}, shown)
}

// The help of the proxy offers what its configuration shows, which is what it reads, and
// the files with its token. Other flags are refused, and other variables warned of.
func TestParse_ProxyOffersWhatItReads(t *testing.T) {
	t.Parallel()
	good := []string{"proxy", "--upstream=http://a:1"}
	inv, err := Parse(input(append(good, "--help")...))
	require.NoError(t, err)
	var offered []string
	for _, match := range regexp.MustCompile(`\$(SPILLWAY_\w+)`).FindAllStringSubmatch(inv.Text, -1) {
		offered = append(offered, match[1])
	}
	require.Contains(t, strings.Join(strings.Fields(inv.Text), " "), "[$SPILLWAY_WORKERS, default auto]")
	require.NotContains(t, inv.Text, "Store")

	inv, err = Parse(input(good...))
	require.NoError(t, err)
	read := slices.Sorted(maps.Keys(inv.Redacted()))
	require.ElementsMatch(t, append(read, "SPILLWAY_ADMIN_TOKEN_FILE"), offered)

	all := slices.Sorted(maps.Keys(inv.Config.Redacted()))
	for _, name := range append(all, "SPILLWAY_DATA_TOKEN_FILE") {
		if slices.Contains(read, name) {
			continue
		}
		in := input(append(good, "--"+strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "SPILLWAY_")), "_", "-")+"=1")...)
		in.ReadFile = func(string, bool) ([]byte, error) { return []byte("x"), nil }
		_, err := Parse(in)
		require.Error(t, err, name)
	}
	_, err = Parse(input(append(good, "--cache-bytes=1MB")...))
	require.EqualError(t, err, "the proxy has no flag --cache-bytes (see spillway proxy --help)")

	in := input(good...)
	in.Env = []string{
		"SPILLWAY_DATA_DIR=/data", "SPILLWAY_CACHE_BYTES=1MB", "SPILLWAY_STORE=cassandra", "SPILLWAY_LOG_LEVEL=warn",
		"SPILLWAY_POOLS=shared", "SPILLWAY_PROXY_HOLD=body", "SPILLWAY_CORS_ORIGINS=",
	}
	inv, err = Parse(in)
	require.NoError(t, err)
	require.Equal(t, []string{
		`environment variable "SPILLWAY_CACHE_BYTES" is ignored: the proxy has no use for it`,
		`environment variable "SPILLWAY_POOLS" is ignored: the proxy has no use for it`,
		`environment variable "SPILLWAY_STORE" is ignored: the proxy has no use for it`,
	}, inv.Warnings)
	in.Args = append(in.Args, "--tls-cert=a.pem")
	_, err = Parse(in)
	require.ErrorContains(t, err, "SPILLWAY_TLS_KEY")
}

// How many at once the proxy learns, unless it is told.
func TestParse_ProxyLearns(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"proxy", "--upstream=http://a:1"}, {"proxy", "--upstream=http://a:1", "--workers=auto"}} {
		inv, err := Parse(input(args...))
		require.NoError(t, err)
		require.Equal(t, Auto, inv.Config.Workers)
		require.Equal(t, "auto", inv.Config.Redacted()["SPILLWAY_WORKERS"])
	}
}

func TestParse_BadProxies(t *testing.T) {
	t.Parallel()
	good := []string{"proxy", "--upstream=http://a:1", "--workers=3"}
	for want, args := range map[string][]string{
		`bad value "" for SPILLWAY_UPSTREAM (--upstream): want the service to forward to, such as http://127.0.0.1:3000`: {"proxy", "--workers=3"},
		`bad value "0" for SPILLWAY_WORKERS (--workers): want a number from 1 to 65536, or auto to have it learned`: {
			"proxy", "--upstream=http://a", "--workers=0"},
		`bad value "a:3000" for SPILLWAY_UPSTREAM (--upstream): want http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:3000, without a path; several with commas between`: {
			"proxy", "--upstream=a:3000"},
		`bad value "http://a/b" for SPILLWAY_UPSTREAM (--upstream): want http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:3000, without a path; several with commas between`: {
			"proxy", "--upstream=http://a/b"},
		`bad value "http://xxxxx@b" for SPILLWAY_UPSTREAM (--upstream): want http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:3000, without a path; several with commas between`: {
			"proxy", "--upstream=http://me:s3,c/ret@a,http://me:s3@b"},
		`bad value "path:/a=8" for SPILLWAY_PROXY_PRIORITY (--proxy-priority): want rules such as path:/admin=6,path:/checkout=0,header:NAME, with priorities from 0, the most important, to 7`: append(
			good, "--proxy-priority=path:/a=8"),
		`bad value "ip" for SPILLWAY_PROXY_CLIENT (--proxy-client): want address, or header:NAME such as header:Authorization`: append(good, "--proxy-client=ip"),
		`bad value "health" for SPILLWAY_PROXY_EXEMPT (--proxy-exempt): want paths such as /health,/static, separated by commas`: append(
			good, "--proxy-exempt=health"),
		`bad value "/a" for SPILLWAY_PROXY_ROUTES (--proxy-routes): want routes such as /orders/*=orders,/search=search, with at most 64 names of letters, digits, - and _`: append(
			good, "--proxy-routes=/a"),
		`bad value "0" for SPILLWAY_PROXY_BUFFER_BYTES (--proxy-buffer-bytes): want a number of bytes such as 1048576, 256MB or 1GiB, at least 1 and at most 16777216`: append(
			good, "--proxy-buffer-bytes=0"),
		`bad value "(secret)" for SPILLWAY_DATA_TOKEN (--data-token): want nothing with the proxy: the upstream checks its clients' tokens`: append(
			good, "--data-token=x"),
		`bad value "split" for SPILLWAY_POOLS (--pools): want shared with the proxy`: append(good, "--pools=split"),
	} {
		_, err := Parse(input(args...))
		require.EqualError(t, err, want)
	}
	misspelt := input("proxy")
	misspelt.Env = []string{"SPILLWAY_UPSTRAEM=http://a:1"}
	_, err := Parse(misspelt)
	require.EqualError(t, err, `bad value "" for SPILLWAY_UPSTREAM (--upstream): want the service to forward to, such as http://127.0.0.1:3000; `+
		`unknown environment variable "SPILLWAY_UPSTRAEM" is ignored`)
}
