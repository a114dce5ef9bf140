package tuning

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// fake notes what it is told, and fails at one step.
type fake struct {
	fails     string
	told      []string
	objective strategies.Objective
}

func (f *fake) note(what string, v any) error {
	step := fmt.Sprint(what, " ", v)
	f.told = append(f.told, step)
	if step == f.fails {
		return errors.New("it breaks")
	}
	return nil
}

func (f *fake) Switch(s string) error            { return f.note("strategy", s) }
func (f *fake) SetObserve(o bool) error          { return f.note("observe", o) }
func (f *fake) SetCapacity(n int) error          { return f.note("capacity", n) }
func (f *fake) Objective() *strategies.Objective { return &f.objective }
func (f *fake) SetWorkers(n int) error {
	if f.fails == "split" {
		return ErrSplit
	}
	return f.note("workers", n)
}

var before = Settings{Strategy: "fifo", Mode: Enforce, Workers: 4, Capacity: 64}

func TestTuner_Change(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		change  func(*Settings)
		told    []string
		logged  string
		refused string
	}{
		// Only what differs is done.
		{"nothing", func(*Settings) {}, nil, "", ""},
		{"one", func(s *Settings) { s.Workers = 0 }, []string{"workers 0"}, "workers changed", ""},
		// A queue grows before, and shrinks after what else changes.
		{"grows", func(s *Settings) { s.Strategy, s.Capacity = "lifo", 65 }, []string{"capacity 65", "strategy lifo"}, "capacity changed", ""},
		{"shrinks", func(s *Settings) { s.Strategy, s.Capacity = "lifo", 63 }, []string{"strategy lifo", "capacity 63"}, "capacity changed", ""},
		{"default", func(s *Settings) { s.Capacity = 0 }, []string{"capacity 0"}, "from=64 to=\"that of the strategy\"", ""},
		{"all", func(s *Settings) { *s = Settings{"auto", Observe, 1, 2, time.Second, ""} },
			[]string{"strategy auto", "observe true", "workers 1", "capacity 2"}, "objective changed", ""},
		// What cannot be is refused before anything is done.
		{"no strategy", func(s *Settings) { s.Strategy, s.Workers = "x", 9 }, nil, "", "want one of adaptive-lifo"},
		{"no mode", func(s *Settings) { s.Mode, s.Workers = "x", 9 }, nil, "", `mode is "x", want enforce or observe`},
		{"workers", func(s *Settings) { s.Workers = MaxWorkers + 1 }, nil, "", "want 1 to 65536, or auto"},
		{"capacity", func(s *Settings) { s.Capacity = -1 }, nil, "", "want 1 to 1048576"},
		{"objective", func(s *Settings) { s.Objective = time.Nanosecond }, nil, "", "100µs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var f fake
			var log bytes.Buffer
			tuner := New(&f, before, slog.New(slog.NewTextHandler(&log, nil)))
			want := before
			tt.change(&want)
			err := tuner.Change(tt.change)
			require.Equal(t, tt.told, f.told)
			require.Contains(t, log.String(), tt.logged)
			if tt.refused != "" {
				require.ErrorContains(t, err, tt.refused)
				require.ErrorAs(t, err, new(Refusal))
				require.Equal(t, before, tuner.Now())
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, tuner.Now())
			require.Equal(t, want.Objective, f.objective.State().Set)
		})
	}
}

// When a step fails, those before it are taken back.
func TestTuner_WholeOrNot(t *testing.T) {
	t.Parallel()
	for fails, told := range map[string][]string{
		"strategy lifo": {"capacity 99", "strategy lifo", "capacity 64"},
		"observe true":  {"capacity 99", "strategy lifo", "observe true", "strategy fifo", "capacity 64"},
		"workers 9":     {"capacity 99", "strategy lifo", "observe true", "workers 9", "observe false", "strategy fifo", "capacity 64"},
		"split":         {"capacity 99", "strategy lifo", "observe true", "observe false", "strategy fifo", "capacity 64"},
	} {
		f := fake{fails: fails}
		tuner := New(&f, before, slog.New(slog.DiscardHandler))
		err := tuner.Change(func(s *Settings) { *s = Settings{"lifo", Observe, 9, 99, time.Second, ""} })
		require.Error(t, err)
		require.Equal(t, told, f.told)
		require.Equal(t, before, tuner.Now())
		require.Zero(t, f.objective.State().Set)
		_, refused := errors.AsType[Refusal](err)
		require.Equal(t, fails == "split", refused, "what cannot be is the caller's to correct")
	}
}

// forwarder is a queue that forwards.
type forwarder struct{ fake }

func (f *forwarder) SetUpstreams(list string) error {
	if list == "" {
		return errors.New("one at least")
	}
	return f.note("upstreams", list)
}

func TestTuner_Upstreams(t *testing.T) {
	t.Parallel()
	silent := slog.New(slog.DiscardHandler)
	f := new(forwarder)
	tuner := New(f, Settings{Strategy: "fifo", Mode: Enforce, Upstreams: "http://a"}, silent)
	require.NoError(t, tuner.Change(func(s *Settings) { s.Upstreams = "http://b" }))
	require.Equal(t, []string{"upstreams http://b"}, f.told)
	err := tuner.Change(func(s *Settings) { s.Workers, s.Upstreams = 3, "" })
	require.ErrorContains(t, err, `upstreams is "", want one at least`)
	require.ErrorAs(t, err, new(Refusal))
	require.Equal(t, []string{"upstreams http://b"}, f.told, "nothing else has been done")
	f.fails = "upstreams http://me:word@b"
	require.ErrorContains(t, tuner.Change(func(s *Settings) { s.Upstreams = "http://me:word@b" }), `upstreams is "http://xxxxx@b"`)

	err = New(new(fake), before, silent).Change(func(s *Settings) { s.Upstreams = "http://b" })
	require.ErrorContains(t, err, "upstreams are of the proxy")
	require.ErrorAs(t, err, new(Refusal))
}
