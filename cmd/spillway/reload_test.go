package main

import (
	"io/fs"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/config"
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
	applied := func(*config.Invocation) error { return nil }
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
		err := s.reload(func(*config.Invocation) error { t.Error(name, "is applied"); return nil })
		require.ErrorContains(t, err, test.want, name)
		require.Equal(t, was, *s.config(), name)
	}
	write("# the defaults\n", nil)
	require.NoError(t, s.reload(applied))
	require.Equal(t, "auto", s.config().Strategy)
}
