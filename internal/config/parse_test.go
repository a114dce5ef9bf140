package config

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/store/delay"
	"github.com/spillway-go/spillway/strategies"
)

// input is a command line on a machine with 4 CPUs and 8 GiB.
func input(args ...string) Input {
	return Input{
		Args:    args,
		Machine: Machine{CPUs: 4, Memory: 8 << 30},
		ReadFile: func(name string, _ bool) ([]byte, error) {
			switch name {
			case "token":
				return []byte("from-a-file\n"), nil
			case "file.yaml":
				return []byte("max-key-bytes: 77\n"), nil
			case "empty":
				return []byte("\n"), nil
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		},
		Version: "spillway 1.2.3",
	}
}

func defaults() Config {
	return Config{
		Strategy:    "auto",
		Mode:        "enforce",
		Listen:      "127.0.0.1:8080",
		AdminListen: "127.0.0.1:6060",
		AcceptLoops: 4,
		Workers:     8,
		Pools:       "shared",
		Store:       "pebble",
		DataDir:     "./data",
		Sync:        Sync{Mode: SyncAlways},
		CacheBytes:  2 << 30,

		CassandraKeyspace:          "spillway",
		CassandraConsistency:       "LOCAL_QUORUM",
		CassandraReplicationFactor: Replication{"": 3},

		MaxKeyBytes:         4096,
		MaxValueBytes:       1048576,
		MaxBatchBytes:       4194304,
		MaxBodyBytes:        1 << 30,
		MaxConnections:      16384,
		AdminMaxConnections: 256,
		ReadTimeout:         10 * time.Second,
		WriteTimeout:        10 * time.Second,
		IdleTimeout:         60 * time.Second,
		DrainTimeout:        10 * time.Second,
		LogLevel:            "info",
		LogFormat:           "text",
		AccessLog:           "off",
		TrustRequestStart:   "false",
	}
}

func TestParse_Defaults(t *testing.T) {
	t.Parallel()
	inv, err := Parse(input())
	require.NoError(t, err)
	require.Equal(t, Invocation{Command: Serve, Config: defaults()}, inv)
}

// settings has every setting with a value that is not its default, as it is
// written and as it is read.
var settings = []struct {
	variable, flag, value string
	set                   func(*Config)
}{
	{"SPILLWAY_STRATEGY", "--strategy", "lifo", func(c *Config) { c.Strategy = "lifo" }},
	{"SPILLWAY_MODE", "--mode", "observe", func(c *Config) { c.Mode = "observe" }},
	{"SPILLWAY_LISTEN", "--listen", ":0", func(c *Config) { c.Listen = ":0" }},
	{"SPILLWAY_ADMIN_LISTEN", "--admin-listen", "[::1]:7070", func(c *Config) { c.AdminListen = "[::1]:7070" }},
	{"SPILLWAY_ACCEPT_LOOPS", "--accept-loops", "3", func(c *Config) { c.AcceptLoops = 3 }},
	{"SPILLWAY_WORKERS", "--workers", "7", func(c *Config) { c.Workers = 7 }},
	{"SPILLWAY_POOLS", "--pools", "split", func(c *Config) { c.Pools = "split" }},
	{"SPILLWAY_QUEUE_CAPACITY", "--queue-capacity", "1", func(c *Config) { c.QueueCapacity = 1 }},
	{"SPILLWAY_DATA_DIR", "--data-dir", "/somewhere", func(c *Config) { c.DataDir = "/somewhere" }},
	{"SPILLWAY_SYNC", "--sync", "never", func(c *Config) { c.Sync = Sync{Mode: SyncNever} }},
	{"SPILLWAY_SYNC", "--sync", "interval:250ms", func(c *Config) { c.Sync = Sync{SyncInterval, 250 * time.Millisecond} }},
	{"SPILLWAY_CACHE_BYTES", "--cache-bytes", "256MB", func(c *Config) { c.CacheBytes = 256_000_000 }},
	{"SPILLWAY_MAX_KEY_BYTES", "--max-key-bytes", "1kib", func(c *Config) { c.MaxKeyBytes = 1024 }},
	{"SPILLWAY_MAX_VALUE_BYTES", "--max-value-bytes", "2MiB", func(c *Config) { c.MaxValueBytes = 2 << 20 }},
	{"SPILLWAY_MAX_BODY_BYTES", "--max-body-bytes", "3GB", func(c *Config) { c.MaxBodyBytes = 3_000_000_000 }},
	{"SPILLWAY_SLO", "--slo", "7ms", func(c *Config) { c.SLO = Objective(7 * time.Millisecond) }},
	{"SPILLWAY_SLO", "--slo", "1h", func(c *Config) { c.SLO = Objective(time.Hour) }},
	{"SPILLWAY_SLO", "--slo", "none", func(c *Config) { c.SLO = Objective(strategies.NoObjective) }},
	{"SPILLWAY_MAX_CONNECTIONS", "--max-connections", "9", func(c *Config) { c.MaxConnections = 9 }},
	{"SPILLWAY_MAX_CONNECTIONS_PER_ADDRESS", "--max-connections-per-address", "9", func(c *Config) { c.MaxConnectionsPerAddress = 9 }},
	{"SPILLWAY_ADMIN_MAX_CONNECTIONS", "--admin-max-connections", "9", func(c *Config) { c.AdminMaxConnections = 9 }},
	{"SPILLWAY_FAIR_WEIGHTS", "--fair-weights", "gold=4,a=b=1", func(c *Config) { c.FairWeights = Weights{"gold": 4, "a=b": 1} }},
	{"SPILLWAY_ALLOWED_HOSTS", "--allowed-hosts", "Spillway,kv.example.", func(c *Config) { c.AllowedHosts = Names{"spillway", "kv.example"} }},
	{"SPILLWAY_CORS_ORIGINS", "--cors-origins", "https://App.example.com:443,http://localhost:3000,http://[::1]:80,http://a:443", func(c *Config) {
		c.CORSOrigins = Origins{"https://app.example.com", "http://localhost:3000", "http://[::1]", "http://a:443"}
	}},
	{"SPILLWAY_TRUST_REQUEST_START", "--trust-request-start", "true", func(c *Config) { c.TrustRequestStart = "true" }},
	{"SPILLWAY_READ_TIMEOUT", "--read-timeout", "1s", func(c *Config) { c.ReadTimeout = time.Second }},
	{"SPILLWAY_WRITE_TIMEOUT", "--write-timeout", "2s", func(c *Config) { c.WriteTimeout = 2 * time.Second }},
	{"SPILLWAY_IDLE_TIMEOUT", "--idle-timeout", "3s", func(c *Config) { c.IdleTimeout = 3 * time.Second }},
	{"SPILLWAY_DRAIN_DELAY", "--drain-delay", "4s", func(c *Config) { c.DrainDelay = 4 * time.Second }},
	{"SPILLWAY_DRAIN_TIMEOUT", "--drain-timeout", "0", func(c *Config) { c.DrainTimeout = 0 }},
	{"SPILLWAY_DATA_TOKEN", "--data-token", "d4ta", func(c *Config) { c.DataToken = "d4ta" }},
	{"SPILLWAY_ADMIN_TOKEN", "--admin-token", "4dmin", func(c *Config) { c.AdminToken = "4dmin" }},
	{"SPILLWAY_DATA_TOKEN_FILE", "--data-token-file", "token", func(c *Config) { c.DataToken = "from-a-file" }},
	{"SPILLWAY_ADMIN_TOKEN_FILE", "--admin-token-file", "token", func(c *Config) { c.AdminToken = "from-a-file" }},
	{"SPILLWAY_CONFIG", "--config", "file.yaml", func(c *Config) { c.ConfigFile, c.MaxKeyBytes = "file.yaml", 77 }},
	{"SPILLWAY_STORE_DELAY", "--store-delay", "4ms", func(c *Config) { c.StoreDelay, _ = delay.ParseDistribution("4ms") }},
	{"SPILLWAY_STORE_PARALLEL", "--store-parallel", "0", func(c *Config) { c.StoreParallel = 0 }},
	{"SPILLWAY_ACCESS_LOG", "--access-log", "shed", func(c *Config) { c.AccessLog = "shed" }},
	{"SPILLWAY_LOG_LEVEL", "--log-level", "debug", func(c *Config) { c.LogLevel = "debug" }},
	{"SPILLWAY_LOG_FORMAT", "--log-format", "json", func(c *Config) { c.LogFormat = "json" }},
	{"SPILLWAY_CASSANDRA_HOSTS", "--cassandra-hosts", "a,10.0.0.1:9042,[::1]:1,::1,[::2]", func(c *Config) { c.CassandraHosts = "a,10.0.0.1:9042,[::1]:1,::1,::2" }},
	{"SPILLWAY_CASSANDRA_KEYSPACE", "--cassandra-keyspace", "k_2", func(c *Config) { c.CassandraKeyspace = "k_2" }},
	{"SPILLWAY_CASSANDRA_CONSISTENCY", "--cassandra-consistency", "ALL", func(c *Config) { c.CassandraConsistency = "ALL" }},
	{"SPILLWAY_CASSANDRA_USERNAME", "--cassandra-username", "me", func(c *Config) { c.CassandraUsername = "me" }},
	{"SPILLWAY_CASSANDRA_PASSWORD", "--cassandra-password", "my word", func(c *Config) { c.CassandraPassword = "my word" }},
	{"SPILLWAY_CASSANDRA_REPLICATION_FACTOR", "--cassandra-replication-factor", "1", func(c *Config) { c.CassandraReplicationFactor = Replication{"": 1} }},
	{"SPILLWAY_CASSANDRA_SPECULATIVE_DELAY", "--cassandra-speculative-delay", "20ms", func(c *Config) { c.CassandraSpeculativeDelay = 20 * time.Millisecond }},
	{"SPILLWAY_CASSANDRA_REPLICATION_FACTOR", "--cassandra-replication-factor", "dc2:2,dc1:3", func(c *Config) { c.CassandraReplicationFactor = Replication{"dc1": 3, "dc2": 2} }},
}

func TestParse_EverySetting(t *testing.T) {
	t.Parallel()
	for _, tt := range settings {
		t.Run(tt.flag+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			want := defaults()
			tt.set(&want)

			in := input()
			in.Env = []string{"PATH=/bin", tt.variable + "=" + tt.value}
			inv, err := Parse(in)
			require.NoError(t, err)
			require.Equal(t, want, inv.Config, "from the variable")
			if tt.flag != "--cassandra-hosts" { // of no use without the store
				require.Empty(t, inv.Warnings)
			}

			inv, err = Parse(input(tt.flag + "=" + tt.value))
			require.NoError(t, err)
			require.Equal(t, want, inv.Config, "from the flag")

			inv, err = Parse(input(tt.flag, tt.value))
			require.NoError(t, err)
			require.Equal(t, want, inv.Config, "from the flag, with a space")

			in = input(tt.flag, tt.value)
			in.Env = []string{tt.variable + "=bad value"}
			inv, err = Parse(in)
			require.NoError(t, err, "the flag wins over the variable")
			require.Equal(t, want, inv.Config)

			in = input()
			in.Env = []string{tt.variable + "="}
			inv, err = Parse(in)
			require.NoError(t, err)
			require.Equal(t, defaults(), inv.Config, "a variable that is set to nothing")
		})
	}
}

func TestParse_TLS(t *testing.T) {
	t.Parallel()
	inv, err := Parse(input("--tls-cert=c.pem", "--tls-key=k.pem"))
	require.NoError(t, err)
	require.Equal(t, "c.pem", inv.Config.TLSCert)
	require.Equal(t, "k.pem", inv.Config.TLSKey)
}

func TestParse_BadValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		setting, value string
		allowed        string // what the error says
	}{
		{"strategy", "nonsense", "one of " + strings.Join(strategies.Names(), ", ")},
		{"strategy", "FIFO", "one of "},
		{"strategy", "fifo,lifo", "one of "},
		{"listen", "8080", "an address such as"},
		{"listen", "127.0.0.1:http", "an address such as"},
		{"listen", "127.0.0.1:65536", "port from 0 to 65535"},
		{"listen", "http://127.0.0.1:80", "an address such as"},
		{"admin-listen", "::1:80", "an address such as"},
		{"accept-loops", "0", "a number from 1 to 1024"},
		{"workers", "many", "a number from 1 to 65536, or auto to have it learned"},
		{"workers", "Auto", "a number from 1 to 65536, or auto to have it learned"},
		{"workers", "0", "a number from 1 to 65536, or auto to have it learned"},
		{"workers", "-1", "a number from 1 to 65536, or auto to have it learned"},
		{"workers", "4.5", "a number from 1 to 65536, or auto to have it learned"},
		{"workers", "99999999999999999999", "a number from 1 to 65536, or auto to have it learned"},
		{"pools", "both", "one of shared, split"},
		{"queue-capacity", "0", "a number from 1 to 1048576"},
		{"store", "memory", "one of pebble, cassandra"},
		{"cassandra-hosts", "a,,b", "hosts such as"},
		{"cassandra-hosts", "a:0", "hosts such as"},
		{"cassandra-hosts", "a:65536", "hosts such as"},
		{"cassandra-hosts", "a b", "hosts such as"},
		{"cassandra-hosts", "a:b:c", "hosts such as"},
		{"cassandra-hosts", "[db1", "hosts such as"},
		{"cassandra-hosts", "db1]", "hosts such as"},
		{"cassandra-hosts", "[db1]", "hosts such as"},
		{"cassandra-hosts", "[::1", "hosts such as"},
		{"cassandra-hosts", "[[::1]]", "hosts such as"},
		{"cassandra-hosts", "[a:b]:9042", "hosts such as"},
		{"cassandra-hosts", "[]", "hosts such as"},
		{"cassandra-keyspace", "Mine", "lower case"},
		{"cassandra-keyspace", "1st", "a letter and"},
		{"cassandra-keyspace", "a;b", "a letter and"},
		{"cassandra-keyspace", strings.Repeat("k", 49), "up to 47"},
		{"cassandra-consistency", "ANY", "one of ONE, TWO"},
		{"cassandra-consistency", "quorum", "one of ONE, TWO"},
		{"cassandra-replication-factor", "0", "a number from 1 to 100"},
		{"cassandra-replication-factor", "dc1:", "such as dc1:3,dc2:3"},
		{"cassandra-replication-factor", ":3", "such as dc1:3,dc2:3"},
		{"cassandra-replication-factor", "3,dc1:3", "such as dc1:3,dc2:3"},
		{"cassandra-replication-factor", "dc1:3,dc1:3", "such as dc1:3,dc2:3"},
		{"cassandra-replication-factor", "d'c:3", "such as dc1:3,dc2:3"},
		{"sync", "sometimes", "always, never, or interval:<duration>"},
		{"sync", "interval", "interval:<duration>"},
		{"sync", "interval:", "interval:<duration>"},
		{"sync", "interval:0", "at least 1ms"},
		{"sync", "interval:-1s", "at least 1ms"},
		{"sync", "interval:1ns", "at least 1ms"},
		{"sync", "interval:999us", "at least 1ms"},
		{"sync", "interval:10", "interval:<duration>"},
		{"cache-bytes", "0", "at least 1"},
		{"cache-bytes", "1XB", "a number of bytes such as 1048576, 256MB or 1GiB"},
		{"cache-bytes", "MB", "a number of bytes"},
		{"cache-bytes", "9999999TB", "a number of bytes"},
		{"max-key-bytes", "0", "at least 1 and at most 65535"},
		{"max-value-bytes", "2GiB", "at most 1073741824"},
		{"max-body-bytes", "0", "at least 1"},
		{"slo", "0", "a duration from 100us to 1h such as 250ms or 2s, or none"},
		{"slo", "99us", "from 100us to 1h"},
		{"slo", "-1ns", "from 100us to 1h"},
		{"slo", "-200ms", "from 100us to 1h"},
		{"slo", "61m", "from 100us to 1h"},
		{"slo", "48h", "from 100us to 1h"},
		{"slo", "100", "a duration"},
		{"slo", "unset", "or none"},
		{"read-timeout", "-1s", "greater than 0"},
		{"write-timeout", "0s", "greater than 0"},
		{"idle-timeout", "48h", "at most 24h"},
		{"drain-delay", "-1s", "or 0"},
		{"drain-timeout", "soon", "a duration such as"},
		{"max-connections", "0", "a number from 1"},
		{"max-connections-per-address", "-1", "a number from 0"},
		{"admin-max-connections", "0", "a number from 1"},
		{"fair-weights", "gold=0", "weights from 1 to 1000"},
		{"fair-weights", "gold=-1", "weights from 1 to 1000"},
		{"fair-weights", "gold=1001", "weights from 1 to 1000"},
		{"fair-weights", "gold", "such as gold=4,free=1"},
		{"fair-weights", "=1", "such as gold=4,free=1"},
		{"fair-weights", "gold=1,gold=2", "each once"},
		{"fair-weights", strings.Repeat("n", 129) + "=1", "such as gold=4,free=1"},
		{"allowed-hosts", "kv.example:8080", "without ports"},
		{"allowed-hosts", "a,,b", "separated by commas"},
		{"allowed-hosts", "http://a", "names such as"},
		{"cors-origins", "*", "origins such as"},
		{"cors-origins", "app.example.com", "origins such as"},
		{"cors-origins", "https://app.example.com/", "without paths"},
		{"cors-origins", "https://*.example.com", "origins such as"},
		{"cors-origins", "https://a,,https://b", "separated by commas"},
		{"cors-origins", "https://u@a", "origins such as"},
		{"cors-origins", "null", "origins such as"},
		{"cors-origins", "ftp://a", "origins such as"},
		{"trust-request-start", "yes", "one of false, true"},
		{"data-token-file", "missing", "a file that can be read (file does not exist)"},
		{"data-token-file", "empty", "a file that holds a token"},
		{"store-delay", "slow", "such as 4ms"},
		{"store-delay", "-4ms", "such as 4ms"},
		{"store-parallel", "-1", "a number from 0"},
		{"store-parallel", "8", "0 unless SPILLWAY_STORE_DELAY is set"},
		{"log-level", "loud", "one of debug, info, warn, error"},
		{"log-format", "xml", "one of text, json"},
		{"strategy", "two\nlines", "one of"},
	} {
		t.Run(tt.setting+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			in := input()
			in.Env = []string{variable(tt.setting) + "=" + tt.value}
			for _, in := range []Input{in, input("--" + tt.setting + "=" + tt.value), input("--"+tt.setting, tt.value)} {
				_, err := Parse(in)
				bad, ok := errors.AsType[*ValueError](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, tt.setting, bad.Setting)
				require.Equal(t, tt.value, bad.Value)
				require.Contains(t, bad.Allowed, tt.allowed)
				requireLine(t, err, variable(tt.setting), "--"+tt.setting)
			}
		})
	}
}

// requireLine asserts that the error is one line with those words.
func requireLine(t *testing.T, err error, words ...string) {
	t.Helper()
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n")
	for _, word := range words {
		require.ErrorContains(t, err, word)
	}
}

// Only a delayed store has hands that can be counted.
func TestParse_StoreParallel(t *testing.T) {
	t.Parallel()
	inv, err := Parse(input("--store-delay=exp:4ms", "--store-parallel=8"))
	require.NoError(t, err)
	require.Equal(t, 8, inv.Config.StoreParallel)
	_, err = Parse(input("--store-parallel=8"))
	requireLine(t, err, "SPILLWAY_STORE_PARALLEL", `"8"`, "0 unless SPILLWAY_STORE_DELAY is set")
}

func TestParse_BadCombinations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args  string
		words []string
	}{
		// Reads and writes need a worker each.
		{"--pools=split --workers=auto", []string{"SPILLWAY_WORKERS", `"auto"`, "a number, at least 2,", "SPILLWAY_POOLS"}},
		{"copy --from=pebble:x --to=cassandra:a --workers=auto", []string{"SPILLWAY_WORKERS", `"auto"`, "a number when copying"}},
		{"--pools=split --workers=1", []string{"SPILLWAY_WORKERS", `"1"`, "at least 2", "SPILLWAY_POOLS"}},
		// A certificate is of no use without its key, and the other way round.
		{"--tls-cert=c.pem", []string{"SPILLWAY_TLS_KEY", "SPILLWAY_TLS_CERT"}},
		{"--tls-key=k.pem", []string{"SPILLWAY_TLS_CERT", "SPILLWAY_TLS_KEY"}},
		// A token has one source.
		{"--data-token=a --data-token-file=token", []string{"SPILLWAY_DATA_TOKEN_FILE", `"token"`, "SPILLWAY_DATA_TOKEN "}},
		{"--admin-token=a --admin-token-file=token", []string{"SPILLWAY_ADMIN_TOKEN_FILE", "SPILLWAY_ADMIN_TOKEN "}},
		// The distributed store has to be somewhere, and has delays of its own.
		{"--store=cassandra", []string{"SPILLWAY_CASSANDRA_HOSTS", "SPILLWAY_STORE"}},
		{"--store=cassandra --cassandra-hosts=a --store-delay=4ms", []string{"SPILLWAY_STORE_DELAY", `"4ms"`, "SPILLWAY_STORE"}},
		// A user has a password, and the other way round.
		{"--store=cassandra --cassandra-hosts=a --cassandra-username=u", []string{"SPILLWAY_CASSANDRA_PASSWORD", "SPILLWAY_CASSANDRA_USERNAME"}},
		{"--store=cassandra --cassandra-hosts=a --cassandra-password=p", []string{"SPILLWAY_CASSANDRA_USERNAME", "SPILLWAY_CASSANDRA_PASSWORD"}},
		// What is not known is said, with a hint.
		{"--wrokers=1", []string{"--wrokers", "--workers"}},
		{"nonsense", []string{"nonsense"}},
		{"healthcheck nonsense", []string{"nonsense"}},
		// A backup has one folder.
		{"backup", []string{"DIR"}},
		{"restore", []string{"DIR"}},
		{"backup one two", []string{"two"}},
		{"check one two", []string{"two"}},
		{"backup ", []string{"DIR"}},
		// A flag at the end has no value.
		{"--workers", []string{"SPILLWAY_WORKERS", `""`}},
		{"--data-dir=", []string{"SPILLWAY_DATA_DIR", `""`}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(input(strings.Fields(tt.args)...))
			requireLine(t, err, tt.words...)
		})
	}
}

func TestParse_WorkersOfADistributedStore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args, env string
		want      Workers
	}{
		// They wait for other machines, so that there are more by default.
		{"--store=cassandra --cassandra-hosts=a", "", 128},
		// What is asked for is what there is, also if it is the other default.
		{"--store=cassandra --cassandra-hosts=a --workers=8", "", 8},
		{"--store=cassandra --cassandra-hosts=a", "SPILLWAY_WORKERS=3", 3},
	} {
		in := input(strings.Fields(tt.args)...)
		in.Env = []string{tt.env}
		inv, err := Parse(in)
		require.NoError(t, err)
		require.Equal(t, tt.want, inv.Config.Workers, "%s %s", tt.args, tt.env)
	}
}

func TestParse_SecretsStaySecret(t *testing.T) {
	t.Parallel()
	_, err := Parse(input("--admin-token=top secret"))
	requireLine(t, err, "SPILLWAY_ADMIN_TOKEN", blank)
	require.NotContains(t, err.Error(), "top")

	inv, err := Parse(input("--admin-token=hidden", "--data-token-file=token", "--sync=interval:1s", "--cassandra-password=hidden"))
	require.NoError(t, err)
	shown := inv.Config.Redacted()
	require.Equal(t, blank, shown["SPILLWAY_CASSANDRA_PASSWORD"])
	require.Equal(t, "3", shown["SPILLWAY_CASSANDRA_REPLICATION_FACTOR"])
	require.Equal(t, blank, shown["SPILLWAY_ADMIN_TOKEN"])
	require.Equal(t, blank, shown["SPILLWAY_DATA_TOKEN"])
	require.Equal(t, "interval:1s", shown["SPILLWAY_SYNC"])
	require.Equal(t, "10s", shown["SPILLWAY_READ_TIMEOUT"])
	require.Equal(t, 8, shown["SPILLWAY_WORKERS"])
	require.IsType(t, "", shown["SPILLWAY_STORE_DELAY"])
	require.Equal(t, "", (&Config{}).Redacted()["SPILLWAY_ADMIN_TOKEN"], "no token is not a secret")
	for _, s := range settings {
		if !strings.HasSuffix(s.variable, "_FILE") {
			require.Contains(t, shown, s.variable)
		}
	}
}

func TestParse_Warnings(t *testing.T) {
	t.Parallel()
	in := input()
	in.Env = []string{
		"SPILLWAY_WROKERS=1", "SPILLWAY_", "SPILLWAY_HELP=1", "SPILLWAY_WORKERS=1",
		"SPILLWAY_CASSANDRA_PASSWORD=p", "OTHER=x",
	}
	inv, err := Parse(in)
	require.NoError(t, err)
	require.Equal(t, []string{
		`unknown environment variable "SPILLWAY_HELP" is ignored`,
		`unknown environment variable "SPILLWAY_WROKERS" is ignored`,
	}, inv.Warnings)

	in = input()
	in.Env = []string{"SPILLWAY_CASSANDRA_HOSTS=a,b"}
	inv, err = Parse(in)
	require.NoError(t, err)
	require.Equal(t, []string{"SPILLWAY_CASSANDRA_HOSTS is set, and SPILLWAY_STORE is pebble: the data is in SPILLWAY_DATA_DIR, not in the cluster"}, inv.Warnings)

	inv, err = Parse(input("--max-body-bytes=1000"))
	require.NoError(t, err)
	require.Len(t, inv.Warnings, 1)
	require.Contains(t, inv.Warnings[0], "values of more than 1000 bytes")
}

func TestParse_Commands(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]Command{
		"":                                      Serve,
		"serve":                                 Serve,
		"--workers=1":                           Serve,
		"serve --workers=1":                     Serve,
		"healthcheck":                           Healthcheck,
		"healthcheck --admin-listen=:7":         Healthcheck,
		"--admin-listen=:7 healthcheck":         Healthcheck,
		"--help":                                Print,
		"--version":                             Print,
		"healthcheck -h":                        Print,
		"backup dir":                            Backup,
		"--admin-listen=:7 backup dir":          Backup,
		"restore dir":                           Restore,
		"restore dir --data-dir=d":              Restore,
		"check":                                 Check,
		"check dir":                             Check,
		"copy --from=pebble:d --to=cassandra:h": Copy,
		"copy --help":                           Print,
		"backup --help":                         Print,
		"--help --workers=7 --sync=always":      Print,
	} {
		inv, err := Parse(input(strings.Fields(args)...))
		require.NoError(t, err, args)
		require.Equal(t, want, inv.Command, args)
		require.Equal(t, strings.Contains(args, " dir"), inv.Dir == "dir", args)
	}
}

func TestParse_Help(t *testing.T) {
	t.Parallel()
	inv, err := Parse(input("--help"))
	require.NoError(t, err)
	words := strings.Join(strings.Fields(inv.Text), " ")
	for _, s := range settings {
		require.Contains(t, words, s.flag+"=")
		require.Contains(t, words, "[$"+s.variable)
	}
	for _, word := range []string{
		"$SPILLWAY_WORKERS, default 8]", "$SPILLWAY_TLS_CERT]", "$SPILLWAY_STORE, default pebble]",
		"$SPILLWAY_CACHE_BYTES, default 2147483648]", "healthcheck", "serve", "--version", "mpmc",
		"backup", "restore", "check", "copy",
	} {
		require.Contains(t, words, word)
	}

	for _, name := range strategies.Names() {
		spec, err := strategies.Lookup(name)
		require.NoError(t, err)
		require.Contains(t, words, name+" "+spec.Summary)
	}
	require.Equal(t, 1, strings.Count(words, "127.0.0.1:8080"), "each default once")
	require.NotContains(t, words, otherFlags, "every setting has a group")
	require.NotContains(t, words, "${")
	for _, command := range [][]string{{"--help"}, {"proxy", "--help"}} {
		inv, err := Parse(input(command...))
		require.NoError(t, err)
		require.Contains(t, strings.Join(strings.Fields(inv.Text), " "), "Unset, it is 100ms or, if that is longer, 6 times the usual service time.", command)
	}
	for line := range strings.Lines(inv.Text) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), helpWidth+1, line)
	}

	// What belongs to a command comes first.
	inv, err = Parse(input("copy", "--help"))
	require.NoError(t, err)
	require.Less(t, strings.Index(inv.Text, "--verify-only"), strings.Index(inv.Text, "--strategy"))
	require.NotContains(t, inv.Text, "Commands")
	require.NotContains(t, inv.Text, "--listen", "what does not matter to it")
	for command, some := range groupsOf {
		inv, err := Parse(input(append(strings.Fields(command), "--help")...))
		require.NoError(t, err)
		for _, group := range some {
			require.Contains(t, inv.Text, "\n"+group+"\n", command)
		}
	}

	inv, err = Parse(input("--version"))
	require.NoError(t, err)
	require.Equal(t, "spillway 1.2.3\n", inv.Text)
}

// Who mistakes a command is told which one there is, in a line.
func TestParse_Mistakes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"serv":                `there is no command "serv", did you mean serve? (see spillway --help)`,
		"bakcup dir":          `there is no command "bakcup", did you mean backup? (see spillway --help)`,
		"frobnicate":          `there is no command "frobnicate", want one of serve, healthcheck, backup, restore, check, config, completion, man, proxy, copy (see spillway --help)`,
		"backup":              "backup wants DIR: spillway backup DIR (see spillway backup --help)",
		"copy":                "missing flags: --from=pebble:DIR, --to=cassandra:HOSTS (see spillway copy --help)",
		"backup a b":          "unexpected argument b (see spillway backup --help)",
		"--strateg=fifo":      `unknown flag --strateg, did you mean "--strategy"? (see spillway --help)`,
		"check --strateg dir": `unknown flag --strateg, did you mean "--strategy"? (see spillway check --help)`,
		"config":              `expected "check" (see spillway config --help)`,
		"config check":        "check wants FILE: spillway config check FILE (see spillway config check --help)",
		"backup\nx":           `there is no command "backup x", did you mean backup? (see spillway --help)`,
	} {
		_, err := Parse(input(strings.Split(args, " ")...))
		require.EqualError(t, err, want)
	}
}

// FuzzParse gives every setting the same arbitrary value, in turn. Whatever it
// is, it is taken, or refused with one line that names the setting; and what is
// taken is taken again in the form in which it is shown.
func FuzzParse(f *testing.F) {
	for i, s := range settings {
		f.Add(i, s.value)
	}
	f.Add(8, "interval:1h1ns")
	f.Add(10, "18446744073709551616TiB")
	f.Add(2, "[::1%eth0]:1")
	f.Fuzz(func(t *testing.T, i int, value string) {
		s := settings[uint(i)%uint(len(settings))]
		in := input()
		in.Env = []string{s.variable + "=" + value}
		inv, err := Parse(in)
		if err != nil {
			requireLine(t, err, s.variable, s.flag)
			return
		}
		shown, ok := inv.Config.Redacted()[s.variable].(string)
		if !ok || shown == blank {
			return
		}
		in.Env = []string{s.variable + "=" + shown}
		again, err := Parse(in)
		require.NoError(t, err)
		require.Equal(t, shown, again.Config.Redacted()[s.variable])
	})
}

func TestSize(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"0": 0, "17": 17, "17B": 17, "2kB": 2000, "2KiB": 2048, "3MB": 3e6, "3mib": 3 << 20,
		"4GB": 4e9, "4GiB": 4 << 30, "5TB": 5e12, "5TiB": 5 << 40, "1.5GB": 1.5e9, "1 GB": 1e9, "1K": 1000,
	} {
		n, ok := size(s)
		require.True(t, ok, s)
		require.Equal(t, want, n, s)
	}
	for _, s := range []string{"", "B", "-1", "+1", "1,5GB", "1X", "9223372036854775808", "8388608TiB", "0x10", "1_000"} {
		_, ok := size(s)
		require.False(t, ok, s)
	}
}

// A weight may belong to an API key.
func TestRedacted_WeightsOfKeys(t *testing.T) {
	t.Parallel()
	for client, want := range map[string]string{"address": "s3cret=4", "header:Authorization": blank} {
		inv, err := Parse(input("proxy", "--upstream=http://127.0.0.1:1", "--fair-weights=s3cret=4", "--proxy-client="+client))
		require.NoError(t, err)
		require.Equal(t, want, inv.Redacted()["SPILLWAY_FAIR_WEIGHTS"])
	}
}
