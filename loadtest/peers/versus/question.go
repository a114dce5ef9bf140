package versus

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"spillway/loadtest"
)

// Setup is what the questions need to know.
type Setup struct {
	// Service and Peer are the binaries.
	Service, Peer string
	// Keys is how many values of 100 bytes the common store holds.
	Keys uint64
	// Large is how many bytes of values the large store holds.
	Large uint64
	// Quick leaves out what takes long: a trial of the question, not an answer.
	Quick bool
}

// Question is how something changes with one thing that is varied.
type Question struct {
	Name string
	// Asks is what is asked, as a title.
	Asks string

	Contestants []Contestant
	Loads       []Load
	// Watch is for [Options].
	Watch []string

	store   string // of what is in it; by default the common one
	ratio   string // what the figures in bold are the ratio to
	columns []figure
	// against is the number of connections beside whose figure of the same
	// contestant the first column is put; 0 is none.
	against int
}

// question is one of the table: fill gives it what is measured.
type question struct {
	name, asks, ratio string
	columns           []figure
	fill              func(q *Question, s *Setup)
}

const (
	fsyncs      = "store_wal_fsync_duration_seconds"
	cacheMisses = "store_cache_misses_total"
	cacheBytes  = 256 << 20
)

// The columns that only questions have.
var (
	p50Micros   = figure{title: "p50", of: func(f *Figures) float64 { return f.P50 * 1e3 }, text: micros}
	fsyncMean   = figure{title: "fsync, mean", of: func(f *Figures) float64 { return mean(f.Grown, fsyncs) * 1e6 }, text: orNothing(micros), alone: true}
	fsyncMedian = figure{title: "fsync, median", of: func(f *Figures) float64 { return median(f.Grown, fsyncs) * 1e6 }, text: orNothing(micros), alone: true}
	found       = figure{title: "found", of: func(f *Figures) float64 { return 100 * f.Found }, text: func(v float64) string { return fmt.Sprintf("%.1f%%", v) }, alone: true}
	blocksRead  = figure{title: "blocks read a request", of: func(f *Figures) float64 { return f.Grown[cacheMisses] / max(f.Requests, 1) }, text: func(v float64) string { return fmt.Sprintf("%.3f", v) }, alone: true}
	idleBytes   = figure{title: "memory of an idle connection", of: func(f *Figures) float64 { return f.IdleBytes / 1024 }, text: orNothing(func(v float64) string { return fmt.Sprintf("%.1f KiB", v) }), alone: true}
	megabytes   = figure{title: "MB/s", of: func(f *Figures) float64 { return f.MBps }, text: func(v float64) string { return fmt.Sprintf("%.1f", v) }}
)

// orNothing writes a dash for 0.
func orNothing(text func(float64) string) func(float64) string {
	return func(v float64) string {
		if v == 0 {
			return "–"
		}
		return text(v)
	}
}

// questions are all there are.
var questions = []question{
	{"connections", "What does a request cost as the connections grow?", "the ratio to *plain*", []figure{cpu, rate}, (*Question).ofConnections},
	{"workers", "What does a request cost as the workers grow?", "the ratio to the default, twice the number of CPUs", []figure{cpu, rate}, (*Question).ofWorkers},
	{"cpus", "What does the queue cost as the CPUs grow?", "the ratio to *plain* on as many CPUs", []figure{cpu, rate}, (*Question).ofCPUs},
	{"loops", "What do accept loops bring?", "the ratio to the default, one a CPU", []figure{cpu, rate}, (*Question).ofLoops},
	{"sync", "What does it cost to sync every write?", "the ratio to *never*", []figure{rate, p50Micros, cpu, fsyncMean, fsyncMedian}, (*Question).ofSync},
	{"store", "What does a read cost on a store that the cache does not hold?", "the ratio to the small store", []figure{rate, cpu, blocksRead, found}, (*Question).ofStore},
	{"idle", "What do idle connections cost?", "the ratio to the same without them", []figure{cpu, rate, idleBytes}, (*Question).ofIdle},
	{"values", "What does a request cost as the values grow?", "the ratio to *plain*", []figure{megabytes, cpu}, (*Question).ofValues},
}

// Questions returns their names.
func Questions() (names []string) {
	for _, q := range questions {
		names = append(names, q.name)
	}
	return names
}

// Ask returns the question of that name.
func Ask(name string, s Setup) (*Question, error) {
	i := slices.IndexFunc(questions, func(q question) bool { return q.name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no question %q, choose of %s", name, strings.Join(Questions(), ", "))
	}
	from := questions[i]
	q := &Question{
		Name: name, Asks: from.asks, ratio: from.ratio, columns: from.columns,
		store: fmt.Sprintf("A store of %d values of 100 bytes, writes unsynced.", s.Keys),
	}
	from.fill(q, &s)
	return q, nil
}

// env are the settings that all have: the same cache, and room for all that can
// be under way.
func env(more ...string) []string {
	return append([]string{
		"SPILLWAY_SYNC=never", fmt.Sprintf("SPILLWAY_CACHE_BYTES=%d", cacheBytes), "SPILLWAY_QUEUE_CAPACITY=8192",
	}, more...)
}

// strategy adds the service under a strategy.
func (q *Question) strategy(s *Setup, name, base, strategy string, more ...string) *Contestant {
	q.Contestants = append(q.Contestants, Contestant{
		Name: name, Base: base, Binary: s.Service, Env: env(append([]string{"SPILLWAY_STRATEGY=" + strategy}, more...)...),
	})
	return &q.Contestants[len(q.Contestants)-1]
}

// plain adds the peer of that name.
func (q *Question) plain(s *Setup, name string, more ...string) {
	q.Contestants = append(q.Contestants, Contestant{
		Name: name, Base: name, Binary: s.Peer, NoRanges: true, Env: env(append([]string{"SPILLWAY_PEER=plain"}, more...)...),
	})
}

// loads adds reads and then writes, over each number of connections.
func (q *Question) loads(connections ...int) {
	for _, op := range []loadtest.Op{loadtest.Get, loadtest.Put} {
		for _, n := range connections {
			q.load(op, n)
		}
	}
}

func (q *Question) load(op loadtest.Op, connections int) *Load {
	q.Loads = append(q.Loads, Load{Op: op, Name: strings.ToUpper(op.String()), Connections: connections})
	return &q.Loads[len(q.Loads)-1]
}

func (q *Question) ofConnections(s *Setup) {
	q.plain(s, "plain")
	q.strategy(s, "fifo", "plain", "fifo")
	q.strategy(s, "auto", "plain", "auto")
	connections := []int{1, 8, 64, 512, 4096}
	if s.Quick {
		connections = connections[:4]
	}
	q.loads(connections...)
	q.against = 64
}

// byNumber adds fifo with each value of a setting, which is compared with the
// default.
func (q *Question) byNumber(s *Setup, name, variable string, byDefault int, values ...int) {
	for _, n := range withDefault(values, byDefault) {
		q.strategy(s, fmt.Sprint(name, "-", n), fmt.Sprint(name, "-", byDefault), "fifo", variable+"="+strconv.Itoa(n))
	}
}

// withDefault returns the values in their order, the default among them.
func withDefault(values []int, byDefault int) []int {
	if at, there := slices.BinarySearch(values, byDefault); !there {
		return slices.Insert(slices.Clone(values), at, byDefault)
	}
	return values
}

func (q *Question) ofWorkers(s *Setup) {
	q.byNumber(s, "workers", "SPILLWAY_WORKERS", 2*runtime.GOMAXPROCS(0), 1, 2, 4, 16, 64, 256, 1024)
	q.loads(64)
}

func (q *Question) ofCPUs(s *Setup) {
	for _, n := range []int{1, 2, 4} {
		plain, cpus := fmt.Sprint("plain-", n), fmt.Sprint("GOMAXPROCS=", n)
		q.plain(s, plain, cpus)
		q.strategy(s, fmt.Sprint("fifo-", n), plain, "fifo", cpus)
	}
	q.loads(64)
}

func (q *Question) ofLoops(s *Setup) {
	q.byNumber(s, "loops", "SPILLWAY_ACCEPT_LOOPS", runtime.GOMAXPROCS(0), 1, 2, 8)
	q.load(loadtest.Get, 64)
	q.load(loadtest.Get, 512).Short = true
}

func (q *Question) ofSync(s *Setup) {
	q.strategy(s, "never", "never", "fifo")
	q.strategy(s, "always", "never", "fifo", "SPILLWAY_SYNC=always")
	for _, n := range []int{1, 64, 256} {
		q.load(loadtest.Put, n)
	}
	q.Watch = []string{fsyncs}
	q.store = fmt.Sprintf("A store of %d values of 100 bytes. The service tells how long its fsyncs take in buckets, in which the median is interpolated.", s.Keys)
}

func (q *Question) ofStore(s *Setup) {
	small := min(100e6, s.Large/10)
	near := func(bytes uint64) uint64 { return max(1, bytes/2/KilobyteSize) } // as many are far
	q.strategy(s, "fifo-small", "fifo-small", "fifo").Keys = near(small)
	q.strategy(s, "fifo-large", "fifo-small", "fifo").Keys = near(s.Large)
	q.load(loadtest.Get, 64)
	q.load(loadtest.Get, 64).Distribution = loadtest.Zipf
	q.load(loadtest.Get, 64).Absent = true
	q.Watch = []string{cacheMisses}
	q.store = fmt.Sprintf("Stores of %v and %v in values of %d bytes, behind block caches of %d MiB; what is not there may come from the system's cache. "+
		"Half of each store lies between the absent keys, the other half holds those that are there.",
		loadtest.ByteCount(small), loadtest.ByteCount(s.Large), KilobyteSize, cacheBytes>>20)
}

func (q *Question) ofIdle(s *Setup) {
	n := 10_000
	if s.Quick {
		n = 200
	}
	patient := "SPILLWAY_IDLE_TIMEOUT=1h"
	q.strategy(s, "fifo", "fifo", "fifo", patient)
	q.strategy(s, "fifo-idle", "fifo", "fifo", patient).Idle = n
	q.store += fmt.Sprintf(" *fifo-idle* has %d connections more, which are silent.", n)
	q.loads(64)
}

func (q *Question) ofValues(s *Setup) {
	q.plain(s, "plain")
	q.strategy(s, "fifo", "plain", "fifo")
	// Ranges first, while all values are short: 1 MB, or less in a small store.
	limit := min(10_000, s.Keys/10+1)
	scan := q.load(loadtest.Scan, 64)
	scan.ScanLimit, scan.Keys = int(limit), max(1, s.Keys-min(limit, s.Keys))
	sizes := []int{0, 10 << 10, 100 << 10, 1 << 20}
	if s.Quick {
		sizes = sizes[:3]
	}
	for _, size := range sizes {
		for _, op := range []loadtest.Op{loadtest.Get, loadtest.Put} {
			load := q.load(op, 64)
			if load.ValueSize = size; size > 0 {
				const cached = cacheBytes / 4
				load.Keys, load.Fill = min(s.Keys, uint64(cached/size)), op == loadtest.Get
			}
		}
	}
}

// Write writes the answer as one Markdown document. There must be at least one
// round of the question's contestants and loads.
func (q *Question) Write(w io.Writer, r *Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", q.Asks)
	if err := r.writeConditions(&b, q.store, q.ratio); err != nil {
		return err
	}
	b.WriteString("\n| load | |")
	columns := len(q.columns) + 1
	for i, f := range q.columns {
		b.WriteString(" " + f.title + " |")
		if i == 0 && q.against > 0 {
			columns++
			fmt.Fprintf(&b, " × its own at %d connections |", q.against)
		}
	}
	b.WriteString(" refused |\n|---|---|" + strings.Repeat("---|", columns) + "\n")
	for at, load := range r.Loads {
		title := load.String()
		for c, contestant := range q.Contestants {
			base := slices.IndexFunc(q.Contestants, func(o Contestant) bool { return o.Name == contestant.Base })
			fmt.Fprintf(&b, "| %s | %s |", title, contestant.Name)
			title = ""
			for i, f := range q.columns {
				b.WriteString(" " + q.cell(r, at, c, base, f) + " |")
				if i == 0 && q.against > 0 {
					b.WriteString(" " + q.own(r, at, c, f) + " |")
				}
			}
			text := "–"
			if refused := r.median(at, c, figure{of: func(f *Figures) float64 { return f.Refused }}); refused > 0 {
				text = fmt.Sprintf("%.1f%%", 100*refused)
			}
			b.WriteString(" " + text + " |\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell is a figure, or nothing where nothing was served.
func (q *Question) cell(r *Result, load, contestant, base int, f figure) string {
	if r.median(load, contestant, rate) == 0 {
		return "–"
	}
	return r.cell(load, contestant, base, f)
}

// own is the ratio of a figure to the contestant's own over q.against connections.
func (q *Question) own(r *Result, load, contestant int, f figure) string {
	to := slices.IndexFunc(r.Loads, func(l Load) bool { return l.Op == r.Loads[load].Op && l.Connections == q.against })
	if to < 0 || to == load {
		return "–"
	}
	ratio, ok := r.across(load, contestant, to, contestant, f)
	if !ok {
		return "–"
	}
	return spread(ratio)
}

// Options returns those of the question; what they lack is how much is measured.
func (q *Question) Options(s Setup) Options {
	return Options{
		Contestants: q.Contestants, Loads: q.Loads, Watch: q.Watch,
		Filler: s.Service, Keys: s.Keys,
	}
}
