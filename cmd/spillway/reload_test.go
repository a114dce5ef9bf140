package main

import (
	"io/fs"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/config"
	"github.com/spillway-go/spillway/internal/tuning"
	"github.com/spillway-go/spillway/strategies"
)

// reloaded returns settings that were read from a file with that content, what changes the file, and the log.
func reloaded(t *testing.T, content string, args ...string) (s *settings, write func(content string, err error), log *lines) {
	t.Helper()
	log = &lines{next: make(chan string, 100)}
	var unreadable error
	s = &settings{
		in: config.Input{
			Args: args, Env: []string{"SPILLWAY_CONFIG=spillway.yaml"}, Machine: config.Machine{CPUs: 4, Memory: 8 << 30},
			ReadFile: func(string, bool) ([]byte, error) { return []byte(content), unreadable },
		},
		level: new(slog.LevelVar), log: slog.New(slog.NewTextHandler(log, nil)),
	}
	inv, err := config.Parse(s.in)
	require.NoError(t, err)
	s.now.Store(&inv)
	return s, func(c string, err error) { content, unreadable = c, err }, log
}

// A file that is gone or empty, as while it is being written, leaves all as it is. It may be empty
// at the start, and may set nothing.
func TestReload_EmptyFile(t *testing.T) {
	t.Parallel()
	s, write, _ := reloaded(t, "")
	applied := func(*config.Invocation) ([]string, error) { return nil, nil }
	require.NoError(t, s.reload(applied))
	write("strategy: fifo\nmax-connections: 7\n", nil)
	require.NoError(t, s.reload(applied))
	was := *s.config()
	require.Equal(t, "fifo", was.Strategy)
	for name, test := range map[string]struct {
		content string
		err     error
		want    string
	}{
		"truncated": {"", nil, "spillway.yaml: it is empty, perhaps while it is being written"},
		"a line":    {"\n", nil, "spillway.yaml: it is empty"},
		"gone":      {"", fs.ErrNotExist, "a file that can be read (file does not exist)"},
	} {
		write(test.content, test.err)
		err := s.reload(func(*config.Invocation) ([]string, error) { t.Error(name, "is applied"); return nil, nil })
		require.ErrorContains(t, err, test.want, name)
		require.Equal(t, was, *s.config(), name)
	}
	write("# the defaults\n", nil)
	require.NoError(t, s.reload(applied))
	require.Equal(t, "auto", s.config().Strategy)
}

// That the file is empty is what is wrong with it, not that what it had is missing.
func TestReload_EmptiedFile(t *testing.T) {
	t.Parallel()
	for content, args := range map[string][]string{
		"upstream: http://a:1\n":                      {"proxy"},
		"store: cassandra\ncassandra-hosts: [a, b]\n": nil,
	} {
		s, write, _ := reloaded(t, content, args...)
		write("", nil)
		err := s.reload(func(*config.Invocation) ([]string, error) { t.Error("it is applied"); return nil, nil })
		require.EqualError(t, err, "spillway.yaml: it is empty, perhaps while it is being written; to set nothing, leave a comment in it")
	}
}

// queue does whatever it is tuned to.
type queue struct{ objective strategies.Objective }

func (*queue) Switch(string) error                { return nil }
func (*queue) SetObserve(bool) error              { return nil }
func (*queue) SetWorkers(int) error               { return nil }
func (*queue) SetCapacity(int) error              { return nil }
func (q *queue) Objective() *strategies.Objective { return &q.objective }

// A reload puts the configuration in force. The log names what it changes, and what of that PUT /strategy had set.
func TestReload_UndoesPut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		put             func(*tuning.Settings)
		content         string
		changed, undone string
	}{
		"nothing":              {func(*tuning.Settings) {}, "strategy: fifo\n", "nothing", ""},
		"what needs a restart": {func(*tuning.Settings) {}, "strategy: fifo\naccess-log: shed\n", "nothing", ""},
		"a setting":            {func(s *tuning.Settings) { s.Strategy = "lifo" }, "strategy: fifo\n", "strategy", "strategy"},
		"what the file says":   {func(s *tuning.Settings) { s.Strategy = "lifo" }, "strategy: lifo\n", "strategy", ""},
		"and another": {func(s *tuning.Settings) {
			s.Mode, s.Workers, s.Capacity, s.Objective = tuning.Observe, 3, 9, time.Second
		},
			"strategy: codel\nqueue-capacity: 8\n", "mode,queue-capacity,slo,strategy,workers", "mode,queue-capacity,slo,workers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, write, log := reloaded(t, "strategy: fifo\n")
			tuner := tuning.New(new(queue), tuned(s.now.Load()), s.log)
			require.NoError(t, tuner.Change(test.put))
			write(test.content, nil)
			require.NoError(t, s.reload(func(inv *config.Invocation) ([]string, error) { return s.tune(tuner, inv) }))
			require.Equal(t, tuned(s.now.Load()), tuner.Now())
			said := log.String()
			require.Regexp(t, `configuration reloaded" file=spillway.yaml changed="?`+test.changed+`"?\n`, said)
			if test.undone == "" {
				require.NotContains(t, said, "undone")
			} else {
				require.Contains(t, said, `msg="what PUT /strategy had set is undone" settings=`+test.undone+"\n")
			}
		})
	}
}
