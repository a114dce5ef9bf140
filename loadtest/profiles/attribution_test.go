package profiles

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/admin"
	"github.com/spillway-go/spillway/internal/executor"
	"github.com/spillway-go/spillway/internal/metrics"
	"github.com/spillway-go/spillway/internal/server"
	"github.com/spillway-go/spillway/internal/store/pebble"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

var update = flag.Bool("update", false, "write the golden files of the recorded profiles")

// recorded returns the profiles of the service in testdata, by the name of
// their run.
func recorded(t testing.TB) map[string]*profile.Profile {
	t.Helper()
	files, err := filepath.Glob("testdata/*.cpu.pb.gz")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	runs := make(map[string]*profile.Profile)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		p, err := Parse(content)
		require.NoError(t, err)
		runs[strings.TrimSuffix(filepath.Base(file), ".cpu.pb.gz")] = p
	}
	return runs
}

// stacks makes a profile of a stack, leaf first, for each line of text: a value
// and functions with < between them.
func stacks(text string) *profile.Profile {
	values := &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
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
			name = strings.Replace(strings.TrimSpace(name), "spillway/", module, 1)
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
	connection = " < spillway/internal/server.(*call).run < spillway/internal/httpfront.(*conn).serveOne < spillway/internal/httpfront.(*conn).tryRead"
	worker     = " < spillway/strategies/dispatch.(*workers).work < sync.(*WaitGroup).Go.func1"
	inPebble   = "github.com/cockroachdb/pebble/v2"
)

func TestAttribute(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		why   string
		stack string
		want  Part
	}{
		{"a system call counts for whoever makes it",
			"internal/runtime/syscall/linux.Syscall6 < syscall.Syscall < spillway/internal/socket.WriteNow < spillway/internal/httpfront.(*Exchange).flushBefore" + connection, Network},
		{"allocating counts for whoever allocates",
			"runtime.mallocgc < runtime.makeslice < spillway/internal/executor.fill" + worker, Work},
		{"an assist that an allocation has to make is the collector's",
			"runtime.scanobject < runtime.gcDrainN < runtime.gcAssistAlloc1 < runtime.mallocgc < spillway/internal/executor.fill" + worker, GC},
		{"so is sweeping",
			"runtime.(*mspan).sweep < runtime.(*sweepLocked).sweep < runtime.(*mcache).nextFree < runtime.mallocgc < spillway/internal/executor.fill" + worker, GC},
		{"a wake-up by the dispatcher is hand-over",
			"runtime.futex < runtime.wakep < runtime.ready < runtime.systemstack < runtime.chansend1 < spillway/strategies/dispatch.(*workers).wakeOne" + connection, Queue},
		{"so is the wake-up of the connection",
			"runtime.futex < runtime.ready < runtime.chansend1 < spillway/internal/httpfront.(*parker).signal < spillway/internal/httpfront.(*Exchange).Done" + worker, Queue},
		{"the choice of what runs next is the scheduler's",
			"runtime.futex < runtime.stopm < runtime.findRunnable < runtime.schedule < runtime.park_m < runtime.mcall", Scheduler},
		{"a discipline is the queue",
			"runtime.memmove < spillway/strategies.(*bounded).popNewest < spillway/strategies/dispatch.(*workers).take" + worker, Queue},
		{"a read of Pebble is work",
			"cmpbody < " + inPebble + "/sstable.(*Reader).Get < " + inPebble + ".(*DB).Get < spillway/internal/store/pebble.(*Store).Get" + worker, Work},
		{"so is a compaction",
			"cmpbody < " + inPebble + "/sstable.(*Iterator).Next < " + inPebble + ".(*DB).compact1 < " + inPebble + ".(*DB).compact < runtime/pprof.Do", Work},
		{"counting is other, whoever counts",
			"github.com/prometheus/client_golang/prometheus.(*counter).Inc < spillway/strategies/dispatch.(*queue).adopt" + connection, Other},
		{"a scrape is no cost of serving",
			"runtime.gcAssistAlloc < github.com/prometheus/client_golang/prometheus.(*Registry).Gather < net/http.(*conn).serve", ""},
		{"nor are the goroutines that it starts",
			"io.ReadAll < github.com/prometheus/client_golang/prometheus.(*processCollector).Collect < github.com/prometheus/client_golang/prometheus.(*Registry).Gather.func1", ""},
		{"nor is the taking of a profile",
			"compress/flate.NewWriter < runtime/pprof.(*profileBuilder).build < runtime/pprof.profileWriter", ""},
		{"what is unknown is other", "example.com/elsewhere/v3.f < example.com/elsewhere.g", Other},
	} {
		want := Costs{}
		if test.want != "" {
			want[test.want] = 7
		}
		require.Equal(t, want, Attribute(stacks("7 "+test.stack)), test.why)
	}
	other := stacks("7 main.main")
	other.SampleType[1].Type = "alloc_space"
	require.Empty(t, Attribute(other), "it is no profile of CPU time")
}

// TestAttribute_Recorded shows what the rules make of the real service.
func TestAttribute_Recorded(t *testing.T) {
	t.Parallel()
	for run, p := range recorded(t) {
		t.Run(run, func(t *testing.T) {
			t.Parallel()
			costs := Attribute(p)
			var sum int64
			for _, v := range costs {
				sum += v
			}
			require.Positive(t, sum)
			require.LessOrEqual(t, float64(costs[Other]), 0.05*float64(sum), "too much is other")
			var text bytes.Buffer
			for _, part := range Parts {
				fmt.Fprintf(&text, "  %5.1f%% %s\n", 100*float64(costs[part])/float64(sum), part)
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

// linked has the service linked into the binary of the test, so that its functions have names
// there.
var linked = []any{admin.Open, dispatch.Open, executor.Open, metrics.New, (*metrics.Metrics).Handler, pebble.Open, server.Open, http.ListenAndServe}

// TestRules_NoneDead fails when what a rule names is renamed. Go keeps the names of all
// functions, of those that were inlined as well, each ended by a zero byte.
func TestRules_NoneDead(t *testing.T) {
	t.Parallel()
	require.NotContains(t, linked, nil)
	path, err := os.Executable()
	require.NoError(t, err)
	binary, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, r := range slices.Concat(roots, rules) {
		require.True(t, bytes.Contains(binary, []byte("\x00"+r.prefix)), "no function of the service begins with %s", r.prefix)
	}
}

func TestParse_NoProfile(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "404 page not found\n", "\x1f\x8b", "{}"} {
		_, err := Parse([]byte(content))
		require.ErrorContains(t, err, "no pprof profile", "%q", content)
	}
}

func FuzzParse(f *testing.F) {
	content, err := os.ReadFile("testdata/fifo-get.cpu.pb.gz")
	require.NoError(f, err)
	f.Add(content)
	var plain bytes.Buffer
	require.NoError(f, stacks("7 a < b").WriteUncompressed(&plain))
	f.Add(plain.Bytes())
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := Parse(content)
		if err != nil {
			return
		}
		for part := range Attribute(p) {
			require.Contains(t, Parts, part)
		}
	})
}
