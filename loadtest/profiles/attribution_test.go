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
		require.Contains(t, Attributed, Kind(kind), file)
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
		kind  Kind
		stack string
		want  Part
	}{
		{"a system call counts for whoever makes it", CPU,
			"internal/runtime/syscall/linux.Syscall6 < syscall.Syscall < spillway/internal/socket.WriteNow < spillway/internal/httpfront.(*Exchange).flushBefore" + connection, Network},
		{"allocating counts for whoever allocates", CPU,
			"runtime.mallocgc < runtime.makeslice < spillway/internal/executor.fill" + worker, Work},
		{"an assist that an allocation has to make is the collector's", CPU,
			"runtime.scanobject < runtime.gcDrainN < runtime.gcAssistAlloc1 < runtime.mallocgc < spillway/internal/executor.fill" + worker, GC},
		{"so is sweeping", CPU,
			"runtime.(*mspan).sweep < runtime.(*sweepLocked).sweep < runtime.(*mcache).nextFree < runtime.mallocgc < spillway/internal/executor.fill" + worker, GC},
		{"a wake-up by the dispatcher is hand-over", CPU,
			"runtime.futex < runtime.wakep < runtime.ready < runtime.systemstack < runtime.chansend1 < spillway/strategies/dispatch.(*workers).wakeOne" + connection, Queue},
		{"so is the wake-up of the connection", CPU,
			"runtime.futex < runtime.ready < runtime.chansend1 < spillway/internal/httpfront.(*parker).signal < spillway/internal/httpfront.(*Exchange).Done" + worker, Queue},
		{"the choice of what runs next is the scheduler's", CPU,
			"runtime.futex < runtime.stopm < runtime.findRunnable < runtime.schedule < runtime.park_m < runtime.mcall", Scheduler},
		{"a discipline is the queue", CPU,
			"runtime.memmove < spillway/strategies.(*bounded).popNewest < spillway/strategies/dispatch.(*workers).take" + worker, Queue},
		{"a read of Pebble is work", CPU,
			"cmpbody < " + inPebble + "/sstable.(*Reader).Get < " + inPebble + ".(*DB).Get < spillway/internal/store/pebble.(*Store).Get" + worker, Work},
		{"so is a compaction", CPU,
			"cmpbody < " + inPebble + "/sstable.(*Iterator).Next < " + inPebble + ".(*DB).compact1 < " + inPebble + ".(*DB).compact < runtime/pprof.Do", Work},
		{"counting is other, whoever counts", CPU,
			"github.com/prometheus/client_golang/prometheus.(*counter).Inc < spillway/strategies/dispatch.(*queue).adopt" + connection, Other},
		{"a scrape is no cost of serving", CPU,
			"runtime.gcAssistAlloc < github.com/prometheus/client_golang/prometheus.(*Registry).Gather < net/http.(*conn).serve", Admin},
		{"nor are the goroutines that it starts", Allocs,
			"io.ReadAll < github.com/prometheus/client_golang/prometheus.(*processCollector).Collect < github.com/prometheus/client_golang/prometheus.(*Registry).Gather.func1", Admin},
		{"nor is the taking of a profile", Allocs,
			"compress/flate.NewWriter < runtime/pprof.(*profileBuilder).build < runtime/pprof.profileWriter", Admin},
		{"what is unknown is other", CPU, "example.com/elsewhere/v3.f < example.com/elsewhere.g", Other},
	} {
		a := Attribute(stacks(test.kind, "7 "+test.stack), test.kind)
		require.Equal(t, map[Part]int64{test.want: 7}, a.Parts, test.why)
		require.Equal(t, int64(7), a.Total)
	}
	a := Attribute(stacks(CPU, "7 main.main"), Allocs)
	require.Equal(t, Attribution{Kind: Allocs, Unit: "bytes", Parts: map[Part]int64{}}, a)
}

// TestAttribute_Recorded shows what the rules make of the real service.
func TestAttribute_Recorded(t *testing.T) {
	t.Parallel()
	for run, ps := range recorded(t) {
		t.Run(run, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			for _, k := range Attributed {
				require.NotNil(t, ps[k], "no profile of kind %s", k)
				a := Attribute(ps[k], k)
				var sum int64
				for _, v := range a.Parts {
					sum += v
				}
				require.Equal(t, a.Total, sum)
				require.Positive(t, a.Total)
				require.LessOrEqual(t, float64(a.Parts[Other]), 0.05*float64(a.Cost()), "too much of %s is other", k)
				fmt.Fprintf(&text, "%s\n", k)
				for _, part := range Costs {
					fmt.Fprintf(&text, "  %5s%% %s\n", a.Share(part), part)
				}
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
	content, err := os.ReadFile("testdata/fifo-get.allocs.pb.gz")
	require.NoError(f, err)
	f.Add(content)
	var plain bytes.Buffer
	require.NoError(f, stacks(CPU, "7 a < b").WriteUncompressed(&plain))
	f.Add(plain.Bytes())
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := Parse(content)
		if err != nil {
			return
		}
		for _, k := range Attributed {
			a := Attribute(p, k)
			var sum int64
			for _, v := range a.Parts {
				sum += v
			}
			require.Equal(t, a.Total, sum)
		}
	})
}
