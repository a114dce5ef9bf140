package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse_Copy(t *testing.T) {
	t.Parallel()
	want := func(change func(*Invocation)) Invocation {
		inv := Invocation{Command: Copy, Config: defaults(), Copy: Transfer{From: "/data", To: "a", State: "spillway-copy.json"}}
		inv.Config.CassandraHosts = "a"
		inv.Config.Workers = 128 // they wait for other machines
		change(&inv)
		return inv
	}
	for _, tt := range []struct {
		args string
		env  []string
		want Invocation
	}{
		{"", nil, want(func(*Invocation) {})},
		// The flag wins against the nodes of the service, and all else is the service's.
		{"", []string{"SPILLWAY_CASSANDRA_HOSTS=b", "SPILLWAY_CASSANDRA_KEYSPACE=k", "SPILLWAY_STORE=cassandra"}, want(func(i *Invocation) {
			i.Config.CassandraKeyspace, i.Config.Store = "k", StoreCassandra
		})},
		{"--cassandra-username=u --cassandra-password=p --workers=3", nil, want(func(i *Invocation) {
			i.Config.CassandraUsername, i.Config.CassandraPassword, i.Config.Workers = "u", "p", 3
		})},
		{"--state=f --verify-only", nil, want(func(i *Invocation) { i.Copy.State, i.Copy.VerifyOnly = "f", true })},
		// Flags of a command are no settings.
		{"", []string{"SPILLWAY_STATE=f", "SPILLWAY_FROM=x"}, want(func(i *Invocation) {
			i.Warnings = []string{`unknown environment variable "SPILLWAY_FROM" is ignored`, `unknown environment variable "SPILLWAY_STATE" is ignored`}
		})},
	} {
		in := input(append([]string{"copy", "--from=pebble:/data", "--to", "cassandra:a"}, strings.Fields(tt.args)...)...)
		in.Env = tt.env
		inv, err := Parse(in)
		require.NoError(t, err)
		require.Equal(t, tt.want, inv, "%s %s", tt.args, tt.env)
	}
	inv, err := Parse(input("copy", "--from=pebble:d:e", "--to=cassandra:a:1,[::1]:2"))
	require.NoError(t, err)
	require.Equal(t, "d:e", inv.Copy.From)
	require.Equal(t, "a:1,[::1]:2", inv.Config.CassandraHosts)
}

func TestParse_BadCopies(t *testing.T) {
	t.Parallel()
	for args, words := range map[string][]string{
		"":                                          {"--from", "--to"},
		"--from=pebble:d":                           {"--to"},
		"--to=cassandra:a":                          {"--from"},
		"--from=d --to=cassandra:a":                 {`"d" for --from: want pebble:DIR`},
		"--from=pebble: --to=cassandra:a":           {"want pebble:DIR"},
		"--from=cassandra:a --to=pebble:d":          {"--from", "copying from a cluster is not supported"},
		"--from=pebble:d --to=pebble:e":             {`"pebble:e" for --to: want cassandra:HOST`, "spillway restore"},
		"--from=pebble:d --to=cassandra:":           {"--to", "hosts such as"},
		"--from=pebble:d --to=cassandra:a,":         {"--to", "hosts such as"},
		"--from=pebble:d --to=cassandra:a --state=": {"--state"},
		"--from=pebble:d --to=cassandra:a --cassandra-username=u": {"SPILLWAY_CASSANDRA_PASSWORD"},
		"--from=pebble:d --to=cassandra:a --cassandra-password=p": {"SPILLWAY_CASSANDRA_USERNAME"},
		"--from=pebble:d --to=cassandra:a more":                   {"more"},
	} {
		_, err := Parse(input(append([]string{"copy"}, strings.Fields(args)...)...))
		requireLine(t, err, words...)
		require.NotContains(t, err.Error(), "SPILLWAY_FROM")
		require.NotContains(t, err.Error(), "SPILLWAY_TO")
	}
	// Nothing else knows these flags.
	_, err := Parse(input("--from=pebble:d"))
	requireLine(t, err, "--from")
}

func TestParse_CopyHelp(t *testing.T) {
	t.Parallel()
	inv, err := Parse(input("copy", "--help"))
	require.NoError(t, err)
	words := strings.Join(strings.Fields(inv.Text), " ")
	for _, word := range []string{"--from=pebble:DIR", "--to=cassandra:HOSTS", "--state=", "--verify-only", "spillway-copy.json", "$SPILLWAY_CASSANDRA_KEYSPACE"} {
		require.Contains(t, words, word)
	}
	require.NotContains(t, words, "SPILLWAY_FROM")
	require.NotContains(t, words, "SPILLWAY_STATE")
}
