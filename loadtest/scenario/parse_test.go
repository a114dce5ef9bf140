package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

// head is what every file needs.
const head = "title: T\nquestion: Q\n"

func TestParse_Defaults(t *testing.T) {
	t.Parallel()
	s, err := Parse("some/name.yaml", []byte(head))
	require.NoError(t, err)
	require.Equal(t, &Scenario{
		Name: "name", Title: "T", Question: "Q", Duration: 10 * time.Second, Warmup: 2 * time.Second, Repetitions: 9,
		Seed: 1, SLO: 100 * time.Millisecond, Timeout: 10 * time.Second,
		Combinations: []Combination{{Strategy: "fifo", Rate: "max"}},
	}, s)
}

func TestParse_ReadsEveryField(t *testing.T) {
	t.Parallel()
	s, err := Parse("a.yaml", []byte(`
# A comment comes first.
title: "A: title"
question: >
  Two
  lines?
expectation: |
  Three
service: {strategy: lifo, workers: 3, capacity: 5, objective: 80ms, sync: "interval:10ms", store_delay: "exp:4ms",
  store_parallel: 9, nodes: 100, slow_node: 0.1, balance: random}
load:
  connections: 7
  mix: put=100
  keys: 1000
  key_distribution: zipf
  value_size: 1KB
  rate: 0.95x
duration: 1m
warmup: 0s
slo: 50ms
timeout: 1s
repetitions: 4
seed: 18446744073709551615
`))
	require.NoError(t, err)
	require.Equal(t, &Scenario{
		Name: "a", Title: "A: title", Question: "Two lines?", Expectation: "Three",
		Duration: time.Minute, Repetitions: 4, Seed: 1<<64 - 1, SLO: 50 * time.Millisecond, Timeout: time.Second,
		Combinations: []Combination{{
			Strategy: "lifo", Workers: 3, Capacity: 5, Objective: "80ms", Sync: "interval:10ms", StoreDelay: "exp:4ms",
			StoreParallel: 9, Nodes: 100, SlowNode: 0.1, Balance: "random",
			Connections: 7, Mix: "put=100", Keys: 1000, Distribution: "zipf", ValueSize: "1KB", Rate: "0.95x",
		}},
	}, s)
}

// labels returns the combinations in the shortest form that tells them apart.
func labels(s *Scenario) (all []string) {
	for _, c := range s.Combinations {
		all = append(all, fmt.Sprintf("%s w%d c%d n%d %s", c.Strategy, c.Workers, c.Capacity, c.Connections, c.Rate))
	}
	return all
}

func TestParse_Multiplies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		proves, text string
		want         []string
	}{
		{"the rate varies fastest", `
service: {strategy: [lifo, fifo]}
load: {rate: [1, 2x]}`, []string{"lifo w0 c0 n0 1", "lifo w0 c0 n0 2x", "fifo w0 c0 n0 1", "fifo w0 c0 n0 2x"}},
		{"what a strategy does not have makes no combination", `
service: {strategy: [sync, unbounded, fifo], capacity: [8, 9], workers: 2}`,
			[]string{"sync w0 c0 n0 max", "unbounded w2 c0 n0 max", "fifo w2 c8 n0 max", "fifo w2 c9 n0 max"}},
		{"one capacity for several is not auto's", `
service: {strategy: [fifo, auto], capacity: 8}`, []string{"fifo w0 c8 n0 max", "auto w0 c0 n0 max"}},
		{"auto alone has it", `
service: {strategy: auto, capacity: 8}`, []string{"auto w0 c8 n0 max"}},
		{"and where capacities are compared", `
service: {strategy: [fifo, auto], capacity: [8, 9]}`, []string{"fifo w0 c8 n0 max", "fifo w0 c9 n0 max", "auto w0 c8 n0 max", "auto w0 c9 n0 max"}},
		{"cases override, and multiply for themselves", `
service: {strategy: lifo, workers: [1, 2]}
cases:
  - service: {workers: 3}
  - load: {connections: [4, 5]}
    service: {strategy: fifo}`,
			[]string{"lifo w3 c0 n0 max", "fifo w1 c0 n4 max", "fifo w1 c0 n5 max", "fifo w2 c0 n4 max", "fifo w2 c0 n5 max"}},
		{"cases that are the same are run once", `
cases: [{service: {strategy: fifo}}, {service: {strategy: [lifo, fifo]}}]`, []string{"fifo w0 c0 n0 max", "lifo w0 c0 n0 max"}},
		{"one node is none, a node as fast as the others none either, and round-robin the default", `
service: {nodes: [1, 2], balance: [round-robin, random], slow_node: 1}
cases: [{}, {service: {nodes: 1}}]`, []string{"fifo w0 c0 n0 max", "fifo w0 c0 n0 max", "fifo w0 c0 n0 max"}},
		{"the number of CPUs is a number", `
service: {workers: cpus}
load: {connections: cpus}`, []string{fmt.Sprintf("fifo w%d c0 n%d max", runtime.NumCPU(), runtime.NumCPU())}},
	} {
		s, err := Parse("a.yaml", []byte(head+tt.text))
		require.NoError(t, err, tt.proves)
		require.Equal(t, tt.want, labels(s), tt.proves)
	}
}

func TestParse_KnowsAllStrategies(t *testing.T) {
	t.Parallel()
	named := func(list string) (names []string) {
		s, err := Parse("a.yaml", []byte(head+"service: {strategy: "+list+"}"))
		require.NoError(t, err)
		for _, c := range s.Combinations {
			names = append(names, c.Strategy)
		}
		return names
	}
	require.Equal(t, strategies.Names(), named("all"))
	some := named("[lifo, all, fifo]")
	require.Equal(t, "lifo", some[0])
	require.Equal(t, "fifo", some[len(some)-1])
	require.ElementsMatch(t, strategies.Names(), some)
}

func TestParse_WritesOver(t *testing.T) {
	t.Parallel()
	text := []byte(head + `service: {strategy: [fifo, sync], workers: 4, capacity: 64}
cases:
  - load: {rate: [0.9x, 2x]}
  - service: {strategy: lifo}
short: {cases: [{service: {strategy: fifo}}]}
`)
	s, err := Parse("a.yaml", text, Settings{"strategy": {"codel", "edf"}, "connections": {"9"}})
	require.NoError(t, err)
	require.Equal(t, []string{
		"codel w4 c64 n9 0.9x", "codel w4 c64 n9 2x", "edf w4 c64 n9 0.9x", "edf w4 c64 n9 2x",
		"codel w4 c64 n9 max", "edf w4 c64 n9 max",
	}, labels(s))
	require.Equal(t, []string{"codel w4 c64 n9 max", "edf w4 c64 n9 max"}, labels(s.Short))
	_, err = Parse("a.yaml", text, Settings{"strategy": {"best"}})
	require.ErrorContains(t, err, `strategy: unknown strategy "best"`)
	require.NotContains(t, err.Error(), "a.yaml", "which does not say so")
}

func TestParse_ShortOverrides(t *testing.T) {
	t.Parallel()
	s, err := Parse("a.yaml", []byte(head+`
short:
  duration: 1s
  repetitions: 4
  service: {workers: 2}
  cases: [{load: {connections: 5}}]
service: {strategy: lifo, workers: [7, 8]}
cases: [{load: {connections: [1, 2]}}, {load: {connections: 3}}]
slo: 1s
`))
	require.NoError(t, err)
	require.Len(t, s.Combinations, 6)
	require.Equal(t, 10*time.Second, s.Duration)
	require.Equal(t, []string{"lifo w2 c0 n5 max"}, labels(s.Short))
	require.Equal(t, "T", s.Short.Title)
	require.Equal(t, time.Second, s.Short.Duration)
	require.Equal(t, time.Second, s.Short.SLO)
	require.Equal(t, 4, s.Short.Repetitions)
	require.Nil(t, s.Short.Short)
}

func TestParse_Fill(t *testing.T) {
	t.Parallel()
	s, err := Parse("a.yaml", []byte(head+`load: {fill: [1MB, 10GB], value_size: "500-1500"}`))
	require.NoError(t, err)
	require.EqualValues(t, 1e6, s.Combinations[0].Fill)
	require.EqualValues(t, 10e9, s.Combinations[1].Fill)

	s, err = Parse("a.yaml", []byte(head+"load: {fill: [1MB, 10GB], rate: max}"), Settings{"fill": {"2GB"}})
	require.NoError(t, err)
	require.Len(t, s.Combinations, 1)
	require.EqualValues(t, 2e9, s.Combinations[0].Fill)
}

// Only in a closed loop do connections think.
func TestParse_Think(t *testing.T) {
	t.Parallel()
	s, err := Parse("a.yaml", []byte(head+"load: {rate: [0.9x, max], think: [0, 1s]}"))
	require.NoError(t, err)
	require.Equal(t, []Combination{
		{Strategy: "fifo", Rate: "0.9x"}, {Strategy: "fifo", Rate: "max"}, {Strategy: "fifo", Rate: "max", Think: "1s"},
	}, s.Combinations)
}

func TestParse_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		head + "load:\n  connections: -1":                                    `a.yaml:4: load.connections: "-1" is not a whole number from 1 to 20000`,
		head + "load: {rate: [1, 2, 101x]}":                                  `a.yaml:3: load.rate[2]: "101x" is not requests a second (up to 10000000), a multiple of the capacity such as 0.9x (up to 100x), or max`,
		head + "load: {rate: 0x1p4}":                                         `a.yaml:3: load.rate: "0x1p4" is not requests`,
		head + "load: {rate: .inf}":                                          `a.yaml:3: load.rate: is not a plain value`,
		head + "load: {conections: 1}":                                       `a.yaml:3: load.conections: unknown, known are mix, connections, fill, keys, key_distribution, value_size, profile, clients, priority, timeout_header, retries, think, rate`,
		head + "load: {capacity: 1}":                                         `a.yaml:3: load.capacity: unknown, known are`,
		head + "load: {rate: {a: 1}}":                                        `a.yaml:3: load.rate: is not a plain value`,
		head + "load: {rate: []}":                                            `a.yaml:3: load.rate: is an empty list`,
		head + "load: {rate: [1, 1]}":                                        `a.yaml:3: load.rate[1]: "1" is given twice`,
		head + "load: {rate: }":                                              `a.yaml: load.rate: has no value`,
		head + "load: 7":                                                     `a.yaml:3: int was used where mapping is expected`,
		head + "load: {fill: 1GB, keys: 5}":                                  `a.yaml: keys: not together with fill, which says already how many there are`,
		head + "load: {fill: much}":                                          `a.yaml:3: load.fill: `,
		head + "load: {mix: put}":                                            `a.yaml:3: load.mix: `,
		head + "load: {value_size: 9-1}":                                     `a.yaml:3: load.value_size: `,
		head + "load: {key_distribution: x}":                                 `a.yaml:3: load.key_distribution: `,
		head + "service: {store_parallel: -1}":                               `a.yaml:3: service.store_parallel: "-1" is not a whole number from 0 to 65536`,
		head + "load: {keys: 0}":                                             `a.yaml:3: load.keys: "0" is not a whole number from 1 to 100000000000`,
		head + "service: {strategy: fifi}":                                   `a.yaml:3: service.strategy: unknown strategy "fifi", choose one of adaptive-lifo, `,
		head + "service: {sync: sometimes}":                                  `a.yaml:3: service.sync: "sometimes" is not always, never or an interval such as interval:10ms`,
		head + "service: {sync: 'interval:0'}":                               `a.yaml:3: service.sync: "interval:0" is not`,
		head + "service: {objective: 10us}":                                  `a.yaml:3: service.objective: "10us" is not a duration from 100µs to 1h0m0s, none, or unset`,
		head + "load: {think: -1s}":                                          `a.yaml:3: load.think: "-1s" is not 0 or a duration up to 1h`,
		head + "service: {store_delay: -1s}":                                 `a.yaml:3: service.store_delay: "-1s" is not 0, a duration such as 4ms, exp:4ms or bimodal:1ms,30ms,0.1, up to 1h`,
		head + "service: {nodes: 10001}":                                     `a.yaml:3: service.nodes: "10001" is not a whole number from 1 to 10000`,
		head + "service: {slow_node: 1e-1}":                                  `a.yaml:3: service.slow_node: "1e-1" is not a speed above 0, up to 100, where that of the other nodes is 1`,
		head + "service: {slow_node: 0}":                                     `a.yaml:3: service.slow_node: "0" is not`,
		head + "service: {balance: best}":                                    `a.yaml:3: service.balance: "best" is not one of round-robin, random, least-outstanding, power-of-two, client-hash`,
		head + "service: {nodes: 2, balance: client-hash}":                   `a.yaml: balance: client-hash needs clients, or all that is sent goes to one node`,
		head + "service: {workers: 1.5}":                                     `a.yaml:3: service.workers: "1.5" is not a whole number from 1 to 65536`,
		head + "service: {capacity: cpus}":                                   `a.yaml:3: service.capacity: "cpus" is not`,
		head + "cases: 1":                                                    `a.yaml:3: int was used where sequence is expected`,
		head + "cases: []":                                                   `a.yaml: cases: is an empty list`,
		head + "cases: [{load: {}}, {lod: 1}]":                               `a.yaml:3: unknown field "lod": a file has title, `,
		head + "cases:\n- load:\n    keys: x":                                `a.yaml:5: cases[0].load.keys: "x" is not`,
		head + "duration: 10":                                                `a.yaml:3: duration: "10" is not a duration such as 10s, from 1ms to 24h0m0s`,
		head + "duration: 0s":                                                `a.yaml:3: duration: "0s" is not`,
		head + "warmup: -1s":                                                 `a.yaml:3: warmup: "-1s" is not`,
		head + "repetitions: 0":                                              `a.yaml:3: repetitions: "0" is not a whole number from 1 to 1000`,
		head + "seed: -1":                                                    `a.yaml:3: seed: "-1" is not a whole number from 0 to 18446744073709551615`,
		head + "short: {short: {}}":                                          `a.yaml:3: unknown field "short": `,
		head + "short: {title: T}":                                           `a.yaml:3: unknown field "title": `,
		head + "short: {load: {keys: x}}":                                    `a.yaml:3: short.load.keys: "x" is not`,
		head + "short: {load: {rate: [" + strings.Repeat("1.1,", 2) + "1]}}": `a.yaml:3: short.load.rate[1]: "1.1" is given twice`,
		head + "titel: T":                                                    `a.yaml:3: unknown field "titel": a file has title, question, `,
		head + "title: U":                                                    `a.yaml:3: mapping key "title" already defined at [1:1]`,
		"title: T":                                                           `a.yaml: question: missing`,
		"question: T":                                                        `a.yaml: title: missing`,
		"title: ''\nquestion: Q":                                             `a.yaml:1: title: is 0 bytes long, not 1 to 2000`,
		"title: [T]\nquestion: Q":                                            `a.yaml:1: title: is not a plain value`,
		"- a":                                                                `a.yaml:1: sequence was used where mapping is expected`,
		"":                                                                   `a.yaml: is empty: a scenario has at least a title and a question`,
		"# nothing":                                                          `a.yaml: is empty: a scenario has at least a title and a question`,
		head + "---\n" + head:                                                `a.yaml: has 2 parts with --- between them: a file is one scenario`,
		"title: [":                                                           `a.yaml:1: `,
		"title: T\n\tquestion: Q":                                            `a.yaml:2: `,
		head + "load: {connections: [" + numbers(40) + "], rate: [" + numbers(40) + "]}":                                        `a.yaml: the axes multiply to more than 1000 combinations`,
		head + "cases: [{load: {rate: [" + numbers(700) + "]}}, {service: {workers: 1}, load: {rate: [" + numbers(700) + "]}}]": `a.yaml: cases: more than 1000 combinations`,
		strings.Repeat("#", maxBytes+1): `a.yaml: longer than 65536 bytes`,
		strings.Repeat("[", 100):        `a.yaml: nested more than 32 deep`,
	} {
		_, err := Parse("a.yaml", []byte(text))
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "\n", text)
	}
}

// numbers returns a list from 1 to n.
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprint(&b, i+1, ",")
	}
	return strings.TrimSuffix(b.String(), ",")
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mine.yml")
	_, err := Load(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte(head), 0o600))
	s, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, "mine", s.Name)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte(head + "service: {strategy: [fifo, all], workers: cpus}\nload: {rate: [0.9x, max], fill: 1GB}\nshort: {duration: 1s}"))
	f.Add([]byte(head + "cases:\n- load: &a {keys: 1}\n- load: *a\n- <<: *a"))
	files, err := filepath.Glob("../scenarios/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("a.yaml", data)
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "a.yaml:"), err)
			return
		}
		require.NotEmpty(t, s.Combinations)
		require.LessOrEqual(t, len(s.Combinations), MaxCombinations)
		require.Positive(t, len(s.Combinations)*s.Repetitions)
		for _, c := range s.Combinations {
			_, err := strategies.Lookup(c.Strategy)
			require.NoError(t, err)
		}
	})
}

// The settings of overload are checked as those of the generator are.
func TestParse_Overload(t *testing.T) {
	t.Parallel()
	const head = "title: T\nquestion: Q\nload:\n"
	s, err := Parse("a.yaml", []byte(head+`  rate: 2x
  profile: [steady, "spike:4x,5s", "ramp:0.5x,10x", "burst:5x,100ms,1s"]
  clients: "greedy=95,other*19=5"
  priority: "0=10,7=90"
  timeout_header: [true, false]
  retries: [none, "3,10ms", "3,0s,0.1"]
`))
	require.NoError(t, err)
	require.Len(t, s.Combinations, 24)
	require.Equal(t, Combination{
		Strategy: "fifo", Rate: "2x", Profile: "steady", Clients: "greedy=95,other*19=5", Priority: "0=10,7=90", TimeoutHeader: "true",
	}, s.Combinations[0])
	for _, line := range []string{
		`profile: "spike:4x"`, `profile: "spike:4,5s"`, `profile: "ramp:0x,1x"`, `profile: "burst:5x,1s,1s"`, `profile: "wave:1x,2x"`,
		`clients: greedy`, `clients: "a=1,a=2"`, `clients: "a*2000=1"`, `clients: "a b=1"`, `clients: "=1"`,
		`priority: "8"`, `timeout_header: maybe`, `retries: "3"`, `retries: "1,10ms"`, `retries: "3,10ms,-1"`,
	} {
		_, err := Parse("a.yaml", []byte(head+"  "+line+"\n"))
		require.ErrorContains(t, err, "a.yaml:4: load."+line[:4], line)
	}
}

// A file that has no end is not read to its end.
func TestLoad_Endless(t *testing.T) {
	t.Parallel()
	_, err := Load("/dev/zero")
	require.ErrorContains(t, err, "longer than 65536 bytes")
}
