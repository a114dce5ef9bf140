// Package versus asks what the service costs beside what a user would run instead,
// and how that changes: it says who is paired with whom by [lab.Pair] under which
// loads, and writes the answers as tables.
package versus

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/loadtest/lab"
	"github.com/spillway-go/spillway/loadtest/peers"
	"github.com/spillway-go/spillway/loadtest/workload"
	"github.com/spillway-go/spillway/strategies"
)

// Setup is what the questions need to know.
type Setup struct {
	// Service and Peer are the binaries, and Other is another build of the service.
	Service, Peer, Other string
	// Keys is how many values of 100 bytes the common store holds.
	Keys uint64
	// Large is how many bytes of values the large store holds.
	Large uint64
	// Java is the folder of the server in Java.
	Java string
	// Has says whether a program can be run, or a file is there; nil looks.
	Has func(name string) bool
	// Quick leaves out what takes long: a trial of the question, not an answer.
	Quick bool
	// Strategies and Peers are measured where a question leaves the choice; nil are
	// those by default.
	Strategies, Peers []string
}

// Question is how something changes with one thing that is varied, or who is cheaper.
type Question struct {
	// Asks is what is asked, as a title.
	Asks string

	Contestants []lab.Contestant
	Loads       []lab.PairLoad

	store   string // of what is in it; by default the common one
	ratio   string // what the ratios are to
	columns []column
}

// question is one of the table: fill gives it what is measured.
type question struct {
	name, asks, ratio string
	columns           []column
	fill              func(q *Question, s *Setup)
}

const (
	cacheBytes = 256 << 20
	// kilobyte is the length of the values in the stores of questions: small enough
	// that 10 GB are many keys, large enough that they are soon written.
	kilobyte = 1000
)

// The rates at which the peers are loaded beside closed loops, over one connection
// and over more, in requests a second.
const (
	paced1 = 2000
	paced  = 8000
)

// The goals: how much processor time a request may take, as a multiple of a
// peer's.
var (
	mostOfPlain = map[workload.Op]float64{workload.Put: 1.03, workload.Get: 1.03}
	mostOfBare  = map[workload.Op]float64{workload.Put: 1.15, workload.Get: 1.25}
)

// questions are all there are: of the peers, whether the goals are reached, of two
// builds; and, named by what they vary, the others.
var questions = []question{
	{"peers", "Spillway beside its peers", "", []column{
		rate, cpu, mallocs, cpu.at("that rate"), p50.at("that rate"), p99.at("that rate"), p999.at("that rate"),
	}, (*Question).ofPeers},
	{"pairs", "Spillway beside the goals", "*plain*, and to *bare*", []column{
		{title: cpu.title, metric: cpu.metric, text: micros, alone: true}, cpu.toReach("plain", mostOfPlain), cpu.toReach("bare", mostOfBare),
	}, (*Question).ofPairs},
	{"against", "One build beside another", "the other build", []column{cpu, rate}, (*Question).ofBuilds},
	{"connections", "What does a request cost as the connections grow?", "*plain*", []column{cpu, {title: "× its own at 64 connections", metric: cpu.metric, own: 64}, rate}, (*Question).ofConnections},
	{"workers", "What does a request cost as the workers grow?", "the default, twice the number of CPUs", []column{cpu, rate}, (*Question).ofWorkers},
	{"cpus", "What does the queue cost as the CPUs grow?", "*plain* on as many CPUs", []column{cpu, rate}, (*Question).ofCPUs},
	{"loops", "What do accept loops bring?", "the default, one a CPU", []column{cpu, rate}, (*Question).ofLoops},
	{"sync", "What does it cost to sync every write?", "*never*", []column{rate, p50Micros, cpu, fsyncMean, fsyncMedian}, (*Question).ofSync},
	{"store", "What does a read cost on a store that the cache does not hold?", "the small store", []column{rate, cpu, blocksRead, found}, (*Question).ofStore},
	{"keys", "What does a request cost as the keys grow?", "the smallest store", []column{cpu, rate, blocksRead, memory}, (*Question).ofKeys},
	{"idle", "What do idle connections cost?", "the same without them", []column{cpu, rate, idleBytes}, (*Question).ofIdle},
	{"values", "What does a request cost as the values grow?", "*plain*", []column{megabytes, cpu}, (*Question).ofValues},
	{"systems", "Spillway beside other systems", "the service with the same promise", []column{rate, cpu, p99.at("half of that rate"), memory}, (*Question).ofSystems},
}

// varied is the first that varies something.
const varied = 3

// Questions returns the names of those that vary something.
func Questions() (names []string) {
	for _, q := range questions[varied:] {
		names = append(names, q.name)
	}
	return names
}

// Ask returns the question of that name: peers, pairs, against, or of Questions.
func Ask(name string, s Setup) (*Question, error) {
	i := slices.IndexFunc(questions, func(q question) bool { return q.name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no question %q, choose of %s", name, strings.Join(Questions(), ", "))
	}
	return questions[i].ask(s), nil
}

func (from question) ask(s Setup) *Question {
	q := &Question{
		Asks: from.asks, ratio: from.ratio, columns: from.columns,
		store: fmt.Sprintf("A store of %d values of 100 bytes, writes unsynced.", s.Keys),
	}
	from.fill(q, &s)
	return q
}

// env are the settings that all have: the same cache, and room for all that can
// be under way.
func env(more ...string) []string {
	return append([]string{
		"SPILLWAY_SYNC=never", fmt.Sprintf("SPILLWAY_CACHE_BYTES=%d", cacheBytes), "SPILLWAY_QUEUE_CAPACITY=8192",
	}, more...)
}

// strategy adds the service under a strategy.
func (q *Question) strategy(s *Setup, name, base, strategy string, more ...string) *lab.Contestant {
	q.Contestants = append(q.Contestants, lab.Contestant{
		Name: name, Base: base, Binary: s.Service, Env: env(append([]string{"SPILLWAY_STRATEGY=" + strategy}, more...)...),
	})
	return &q.Contestants[len(q.Contestants)-1]
}

// plain adds the peer under that name.
func (q *Question) plain(s *Setup, name string, more ...string) {
	q.peer(s, name, name, "plain", more...)
}

func (q *Question) peer(s *Setup, name, base, peer string, more ...string) {
	q.Contestants = append(q.Contestants, lab.Contestant{
		Name: name, Base: base, Binary: s.Peer, NoRanges: true, Env: env(append([]string{"SPILLWAY_PEER=" + peer}, more...)...),
	})
}

// beside adds peers and strategies, unless others are chosen.
func (q *Question) beside(s *Setup, names, chosen []string) {
	if s.Peers != nil {
		names = s.Peers
	}
	if s.Strategies != nil {
		chosen = s.Strategies
	}
	first := cmp.Or(append(slices.Clone(names), chosen...)...)
	q.ratio = cmp.Or(q.ratio, "*"+first+"*")
	for _, name := range names {
		q.peer(s, name, first, name)
	}
	for _, name := range chosen {
		q.strategy(s, name, first, name)
	}
}

// ofPeers sends each load as fast as it goes and at a fixed rate.
func (q *Question) ofPeers(s *Setup) {
	q.beside(s, peers.Names, []string{"fifo", "sync", "mpmc"})
	for _, op := range []workload.Op{workload.Get, workload.Put} {
		for _, connections := range []int{1, 64, 1024} {
			q.load(op, connections)
			q.load(op, connections).Rate = map[bool]float64{true: paced1, false: paced}[connections == 1]
		}
	}
}

func (q *Question) ofPairs(s *Setup) {
	q.beside(s, []string{"bare", "plain"}, strategies.Names())
	q.loads(64)
}

func (q *Question) ofBuilds(s *Setup) {
	names := s.Strategies
	if names == nil {
		names = []string{"fifo", "sync", "mpmc"}
	}
	for _, name := range names {
		other := name + "-other"
		q.strategy(s, other, other, name).Binary = s.Other
		q.strategy(s, name, other, name)
	}
	q.loads(64)
}

// loads adds reads and then writes, over each number of connections.
func (q *Question) loads(connections ...int) {
	for _, op := range []workload.Op{workload.Get, workload.Put} {
		for _, n := range connections {
			q.load(op, n)
		}
	}
}

func (q *Question) load(op workload.Op, connections int) *lab.PairLoad {
	q.Loads = append(q.Loads, lab.PairLoad{Op: op, Connections: connections})
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
	q.load(workload.Get, 64)
	q.load(workload.Get, 512).Short = true
}

func (q *Question) ofSync(s *Setup) {
	q.strategy(s, "never", "never", "fifo")
	q.strategy(s, "always", "never", "fifo", "SPILLWAY_SYNC=always")
	for _, n := range []int{1, 64, 256} {
		q.load(workload.Put, n)
	}
	q.store = fmt.Sprintf("A store of %d values of 100 bytes. The service tells how long its fsyncs take in buckets, in which the median is interpolated.", s.Keys)
}

func (q *Question) ofStore(s *Setup) {
	small := min(100e6, s.Large/10)
	for _, bytes := range []uint64{small, s.Large} {
		c := q.strategy(s, map[bool]string{true: "fifo-small", false: "fifo-large"}[bytes == small], "fifo-small", "fifo")
		keys := max(1, bytes/2/kilobyte) // as many are far
		c.Keys, c.Span = keys, keys*(1+peers.Apart)
		c.Fill = func(ctx context.Context, dir string) error { return peers.FillStore(ctx, dir, keys, kilobyte) }
	}
	q.load(workload.Get, 64)
	q.load(workload.Get, 64).Distribution = workload.Zipf
	q.load(workload.Get, 64).Absent = true
	q.store = fmt.Sprintf("Stores of %v and %v in values of %d bytes, behind block caches of %d MiB; what is not there may come from the system's cache. "+
		"Half of each store lies between the absent keys, the other half holds those that are there.",
		workload.ByteCount(small), workload.ByteCount(s.Large), kilobyte, cacheBytes>>20)
}

// ofKeys fills stores of all sizes, the largest of which the cache does not hold.
func (q *Question) ofKeys(s *Setup) {
	most := uint64(10_000_000)
	if s.Quick {
		most = 100_000
	}
	for keys := uint64(10_000); keys <= most; keys *= 10 {
		c := q.strategy(s, fmt.Sprint(keys, " keys"), "10000 keys", "auto")
		c.Keys = keys / 2 // as many are far
		c.Fill = func(ctx context.Context, dir string) error { return peers.FillStore(ctx, dir, keys/2, 100) }
	}
	q.loads(64)
	q.store = fmt.Sprintf("Stores of so many values of 100 bytes behind caches of %d MiB, of which half are asked for and written; writes unsynced.", cacheBytes>>20)
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
	scan := q.load(workload.Scan, 64)
	scan.ScanLimit, scan.Keys = int(limit), max(1, s.Keys-min(limit, s.Keys))
	sizes := []int{0, 10 << 10, 100 << 10, 1 << 20}
	if s.Quick {
		sizes = sizes[:3]
	}
	for _, size := range sizes {
		for _, op := range []workload.Op{workload.Get, workload.Put} {
			load := q.load(op, 64)
			if load.ValueSize = size; size > 0 {
				const cached = cacheBytes / 4
				load.Keys, load.Fill = min(s.Keys, uint64(cached/size)), op == workload.Get
			}
		}
	}
}
