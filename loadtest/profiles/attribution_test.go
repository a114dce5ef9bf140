package profiles

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files of the recorded profiles")

// recorded returns the profiles of the service in testdata, by the name of
// their run.
func recorded(t testing.TB) map[string]map[Kind]*profile.Profile {
	t.Helper()
	files, err := filepath.Glob("testdata/*.pb.gz")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	runs := make(map[string]map[Kind]*profile.Profile)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		p, err := Parse(content)
		require.NoError(t, err)
		run, kind, ok := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".pb.gz"), ".")
		require.True(t, ok, file)
		require.Contains(t, Kinds, Kind(kind), file)
		if runs[run] == nil {
			runs[run] = make(map[Kind]*profile.Profile)
		}
		runs[run][Kind(kind)] = p
	}
	return runs
}

// stacks makes a profile of a stack, leaf first, for each line of text: a value
// and functions with < between them.
func stacks(k Kind, text string) *profile.Profile {
	name, unit := k.values()
	values := &profile.ValueType{Type: name, Unit: unit}
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, values}, PeriodType: values}
	functions := make(map[string]*profile.Location)
	for line := range strings.Lines(text) {
		var value int64
		if n, _ := fmt.Sscan(line, &value); n == 0 {
			continue
		}
		_, calls, _ := strings.Cut(strings.TrimSpace(line), " ")
		s := &profile.Sample{Value: []int64{1, value}}
		for name := range strings.SplitSeq(calls, "<") {
			name = strings.TrimSpace(name)
			if functions[name] == nil {
				id := uint64(len(functions) + 1)
				f := &profile.Function{ID: id, Name: name}
				p.Function = append(p.Function, f)
				functions[name] = &profile.Location{ID: id, Line: []profile.Line{{Function: f}}}
				p.Location = append(p.Location, functions[name])
			}
			s.Location = append(s.Location, functions[name])
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

const (
	connection = " < spillway/internal/server.(*conn).run < spillway/internal/server.(*conn).serveOne < spillway/internal/server.(*conn).tryRead"
	worker     = " < spillway/strategies/dispatch.(*workers).work < sync.(*WaitGroup).Go.func1"
	inPebble   = "github.com/cockroachdb/pebble/v2"
)

func TestAttribute(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		why   string
		kind  Kind
		stack string
		want  Part
	}{
		{"a system call counts for whoever makes it", CPU,
			"internal/runtime/syscall/linux.Syscall6 < syscall.Syscall < spillway/internal/socket.WriteNow < spillway/internal/server.(*conn).flushTo" + connection, NetworkWrite},
		{"what calls everything else counts only for itself", CPU,
			"spillway/internal/server.(*conn).tryRead < internal/poll.(*FD).RawRead", NetworkRead},
		{"allocating counts for whoever allocates", CPU,
			"runtime.mallocgc < runtime.makeslice < spillway/internal/server.appendObject < spillway/internal/executor.fill" + worker, HTTP},
		{"an assist that an allocation has to make is the collector's", CPU,
			"runtime.scanobject < runtime.gcDrainN < runtime.gcAssistAlloc1 < runtime.mallocgc < spillway/internal/server.appendObject" + worker, GC},
		{"so is sweeping", CPU,
			"runtime.(*mspan).sweep < runtime.(*sweepLocked).sweep < runtime.(*mcache).nextFree < runtime.mallocgc < spillway/internal/executor.fill" + worker, GC},
		{"a wake-up by the dispatcher is hand-over", CPU,
			"runtime.futex < runtime.wakep < runtime.ready < runtime.systemstack < runtime.chansend1 < spillway/strategies/dispatch.(*workers).wakeOne" + connection, Queueing},
		{"so is the wake-up of the connection", CPU,
			"runtime.futex < runtime.ready < runtime.chansend1 < spillway/internal/server.(*parker).signal < spillway/internal/server.(*exchange).done" + worker, Queueing},
		{"the choice of what runs next is the scheduler's", CPU,
			"runtime.futex < runtime.stopm < runtime.findRunnable < runtime.schedule < runtime.park_m < runtime.mcall", Scheduler},
		{"reading the clock counts for whoever asks the dispatcher for it", CPU,
			"runtime.nanotime < time.Since < spillway/strategies/dispatch.(*engine).Now < spillway/internal/server.(*conn).startClock", HTTP},
		{"a discipline is queueing", CPU,
			"runtime.memmove < spillway/strategies.(*bounded).popNewest < spillway/strategies/dispatch.(*workers).take" + worker, Queueing},
		{"a read of Pebble is the store", CPU,
			"cmpbody < " + inPebble + "/sstable.(*Reader).Get < " + inPebble + ".(*DB).Get < spillway/internal/store/pebble.(*Store).Get" + worker, Store},
		{"the memtable is the store", CPU,
			inPebble + "/internal/arenaskl.(*Skiplist).Add < " + inPebble + ".(*DB).commitApply < " + inPebble + ".(*commitPipeline).Commit < spillway/internal/store/pebble.(*Store).Apply" + worker, Store},
		{"the log is not, whoever writes it", CPU,
			inPebble + "/record.(*LogWriter).SyncRecord < " + inPebble + ".(*DB).commitWrite < " + inPebble + ".(*commitPipeline).Commit < spillway/internal/store/pebble.(*Store).Apply" + worker, WAL},
		{"reading a table in a compaction is the compaction", CPU,
			"cmpbody < " + inPebble + "/sstable.(*Iterator).Next < " + inPebble + ".(*DB).compact1 < " + inPebble + ".(*DB).compact < runtime/pprof.Do", WAL},
		{"counting is other, whoever counts", CPU,
			"github.com/prometheus/client_golang/prometheus.(*counter).Inc < spillway/strategies/dispatch.(*queue).adopt" + connection, Other},
		{"a scrape is no cost of serving", CPU,
			"runtime.gcAssistAlloc < github.com/prometheus/client_golang/prometheus.(*Registry).Gather < net/http.(*conn).serve", Admin},
		{"nor are the goroutines that it starts", Allocs,
			"io.ReadAll < github.com/prometheus/client_golang/prometheus.(*processCollector).Collect < github.com/prometheus/client_golang/prometheus.(*Registry).Gather.func1", Admin},
		{"nor is the taking of a profile", Allocs,
			"compress/flate.NewWriter < runtime/pprof.(*profileBuilder).build < runtime/pprof.profileWriter", Admin},
		{"what is unknown is other", CPU,
			"example.com/elsewhere/v3.f < example.com/elsewhere.g", Other},

		{"a worker without a task is parked", Block,
			"runtime.chanrecv1 < spillway/strategies/dispatch.(*workers).next" + worker, Parked},
		{"one that waits for the lock of the idle workers is not", Block,
			"sync.(*Mutex).Lock < spillway/strategies/dispatch.(*idleStack).push < spillway/strategies/dispatch.(*workers).next" + worker, Queueing},
		{"neither is one that runs", CPU,
			"runtime.chanrecv < spillway/strategies/dispatch.(*workers).next" + worker, Queueing},
		{"a connection whose task is away is parked", Block,
			"runtime.chanrecv1 < spillway/internal/server.(*parker).wait" + connection, Parked},
		{"waiting for room among the commits that are handed on is not", Block,
			"runtime.chansend1 < spillway/internal/executor.(*Executor).write" + worker, Executor},
		{"nor is waiting for a sync", Block,
			"sync.(*WaitGroup).Wait < " + inPebble + ".(*Batch).SyncWait < spillway/internal/executor.storeWait < spillway/internal/executor.(*Executor).complete", WAL},
		{"the wait for a commit to complete is", Block,
			"runtime.chanrecv2 < spillway/internal/executor.(*Executor).complete", Parked},
		{"so is that of a loop in the background", Block,
			"runtime.selectgo < " + inPebble + ".(*ConcurrencyLimitScheduler).periodicGranter", Parked},
		{"but not its wait for a lock", Block,
			"sync.(*Mutex).Lock < " + inPebble + ".(*ConcurrencyLimitScheduler).periodicGranter", WAL},
		{"a write stall is the store's", Block,
			"runtime.selectgo < spillway/internal/store/pebble.(*stall).wait < spillway/internal/store/pebble.(*Store).Apply" + worker, Store},
		{"a profile that sleeps until its end is parked", Block,
			"runtime.selectgo < net/http/pprof.sleep < net/http.(*conn).serve", Parked},
	} {
		a := Attribute(stacks(test.kind, "7 "+test.stack), test.kind)
		require.Equal(t, map[Part]int64{test.want: 7}, a.Parts, test.why)
		require.Equal(t, int64(7), a.Total)
	}
}

func TestAttribute_OtherKind(t *testing.T) {
	t.Parallel()
	a := Attribute(stacks(CPU, "7 main.main"), Allocs)
	require.Equal(t, Attribution{Kind: Allocs, Unit: "bytes", Parts: map[Part]int64{}}, a)
	require.Equal(t, &Frame{Name: "allocs", Part: Other}, Flame(stacks(CPU, "7 main.main"), Allocs, true))
}

// TestAttribute_Recorded shows what the rules make of the real service.
func TestAttribute_Recorded(t *testing.T) {
	t.Parallel()
	for run, ps := range recorded(t) {
		t.Run(run, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			for _, k := range Kinds {
				p := ps[k]
				require.NotNil(t, p, "no profile of kind %s", k)
				a := Attribute(p, k)
				var sum int64
				for part, v := range a.Parts {
					require.Contains(t, Parts, part)
					sum += v
				}
				require.Equal(t, a.Total, sum)
				require.Positive(t, a.Total)
				require.LessOrEqual(t, float64(a.Parts[Other]), 0.05*float64(a.Cost()),
					"too much of %s is other; name more functions in rules.go", k)
				describe(&text, a, p)
			}
			golden := filepath.Join("testdata", run+".txt")
			if *update {
				require.NoError(t, os.WriteFile(golden, text.Bytes(), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), text.String(), "if this is meant, run with -update")
		})
	}
}

// describe writes an attribution as a person reads it, with the functions that
// make up what is other.
func describe(w *bytes.Buffer, a Attribution, p *profile.Profile) {
	scale, unit := 1e9, "s"
	if a.Unit == "bytes" {
		scale, unit = 1e6, "MB"
	}
	fmt.Fprintf(w, "%s: %.2f %s\n", a.Kind, float64(a.Cost())/scale, unit)
	for _, part := range Parts {
		v, ok := a.Parts[part]
		switch {
		case !ok:
		case part == Admin || part == Parked:
			fmt.Fprintf(w, "          %s: %.2f %s beside it\n", part, float64(v)/scale, unit)
		default:
			fmt.Fprintf(w, "  %5.1f%% %s\n", 100*float64(v)/float64(a.Cost()), part)
		}
		if part == Other && ok {
			others := others(p, a.Kind)
			byValue := func(a, b string) int { return int(others[b] - others[a]) }
			for _, name := range slices.SortedStableFunc(slices.Values(slices.Sorted(maps.Keys(others))), byValue) {
				fmt.Fprintf(w, "           %4.1f%% %s\n", 100*float64(others[name])/float64(a.Cost()), name)
			}
		}
	}
	w.WriteByte('\n')
}

// others returns the values of the functions that make stacks other: those that
// a rule names, or the roots of those in which none is named.
func others(p *profile.Profile, k Kind) map[string]int64 {
	name, _ := k.values()
	at, c := valueIndex(p, name), newClassifier(k)
	values := make(map[string]int64)
	for _, s := range p.Sample {
		stack := frames(s)
		if c.part(stack) != Other {
			continue
		}
		i := slices.IndexFunc(stack, func(name string) bool { return len(named(rules, name)) > 0 })
		if i < 0 {
			i = len(stack) - 1
		}
		values[stack[i]] += s.Value[at]
	}
	return values
}
