package profiles

import (
	"slices"
	"strings"
)

// rule says to which part the functions belong whose names, as [Flame] shows
// them, begin with a prefix.
type rule struct {
	prefix string
	part   Part
}

// caller stands for the part of whoever calls a function. It is that of functions
// that no rule names, and of some that a later rule names.
const caller Part = ""

// roots decide first, over goroutines by the function that they began with.
var roots = []rule{
	{"net/http.", Parked},
	{"net/http.", Admin},
	{"runtime/pprof.profileWriter", Admin},
	{"client_golang/prometheus.(*Registry).Gather", Admin}, // a scrape's helpers
}

// rules decide from the leaf: the first function of a stack that one of them
// names, by the first rule that names it. Those of [Parked] hold in block
// profiles only, for goroutines that wait for something to come: see parks.
var rules = []rule{
	// Assisting and sweeping, which an allocation is made to do, are reached
	// before whoever allocates.
	{"runtime.gc", GC}, // gcBgMarkWorker, gcAssistAlloc, gcDrain, gcStart, gcWriteBarrier, …
	{"runtime.bgsweep", GC},
	{"runtime.bgscavenge", GC},
	{"runtime.deductSweepCredit", GC},
	{"runtime.(*sweepLocked).sweep", GC},
	{"runtime.wbBufFlush", GC},

	// Metrics, wherever they are counted.
	{"client_golang/prometheus.", Other},
	{"spillway/internal/metrics.", Other},

	// The data plane. What is not named below the hand-over parses requests and
	// forms answers.
	{"spillway/internal/socket.WriteNow", NetworkWrite},
	{"spillway/internal/socket.Unsent", NetworkWrite},
	{"spillway/internal/server.(*conn).flush", NetworkWrite},
	{"spillway/internal/server.(*conn).write", NetworkWrite},
	{"spillway/internal/server.(*conn).tryWrite", NetworkWrite},
	{"spillway/internal/server.(*conn).armWrite", NetworkWrite},
	{"spillway/internal/server.readNow", NetworkRead},
	{"spillway/internal/server.bytesPending", NetworkRead},
	{"spillway/internal/server.(*conn).Read", NetworkRead},
	{"spillway/internal/server.(*conn).tryRead", NetworkRead},
	{"spillway/internal/server.(*conn).waitReadable", NetworkRead},
	{"spillway/internal/server.(*conn).await", NetworkRead},
	{"spillway/internal/server.(*conn).arm", NetworkRead},
	{"spillway/internal/server.(*conn).rearm", NetworkRead},
	{"spillway/internal/server.(*conn).startIdling", NetworkRead},
	{"spillway/internal/server.(*Server).accept", NetworkRead},
	{"spillway/internal/server.(*Server).admit", NetworkRead},
	{"spillway/internal/server.(*hangups)", NetworkRead},
	{"spillway/internal/server.(*parker).wait", Parked},
	{"spillway/internal/server.(*parker)", Queueing},
	{"spillway/internal/server.(*exchange).done", Queueing},
	{"spillway/internal/server.(*conn).run", Queueing},
	{"spillway/internal/server.(*conn).resume", Queueing},
	{"spillway/internal/server.(*conn).waitDone", Queueing},
	{"spillway/internal/server.(*conn).reasonToCancel", Queueing},
	{"spillway/internal/server.(*conn).startTimer", Queueing},
	{"spillway/internal/server.", HTTP},
	{"fasthttp.", HTTP},

	// The queue.
	{"spillway/strategies/dispatch.(*engine).Now", caller},
	{"spillway/strategies/dispatch.(*workers).next", Parked},
	{"spillway/strategies", Queueing},

	// What workers do. The executor's second goroutine waits for commits.
	{"spillway/internal/executor.(*Executor).complete", Parked},
	{"spillway/internal/executor.", Executor},

	// The store: Pebble's log, whoever writes it, is found before what calls
	// Pebble. Everything else that a call of the store does is the store.
	{"spillway/internal/store/pebble.(*logFile)", WAL},
	{"spillway/internal/store/pebble.(*diskFile)", WAL},
	{"spillway/internal/store/pebble.(*disk)", WAL},
	{"spillway/internal/store/pebble.(*Store).syncLog", WAL},
	{"spillway/internal/store/pebble.(*Store).syncLoop", Parked},
	{"spillway/internal/store/pebble.(*Store).stallLoop", Parked},
	{"spillway/internal/store/", Store},
	{"pebble.(*DB).commitApply", Store}, // into the memtable
	{"pebble.(*commitPipeline)", WAL},
	{"pebble.(*Batch).SyncWait", WAL},
	{"pebble/record.(*LogWriter).flushLoop", Parked},
	{"pebble/record.", WAL},
	{"pebble/wal.", WAL},
}

// background decides over stacks in which no rule names a function, from the
// root: whose goroutine it is.
var background = []rule{
	{"pebble", Parked},
	{"pebble", WAL}, // flushes, compactions, removal of files
	{"runtime.", Scheduler},
	{"main.", Other},
}

// parks are the functions at the leaf of a goroutine that waits for something to
// come. Others wait for something to be over: a lock to be released, others to
// finish, room to be made.
var parks = []string{"runtime.chanrecv", "runtime.selectgo", "sync.(*Cond).Wait"}

// classifier finds the part of stacks. To one that is nil all is other.
type classifier struct {
	kind Kind
	// known holds what the rules say of the functions that were met.
	known map[string][]Part
}

func newClassifier(k Kind) *classifier { return &classifier{kind: k, known: make(map[string][]Part)} }

// part returns the part of a stack of names, leaf first.
func (c *classifier) part(stack []string) Part {
	if len(stack) == 0 || c == nil {
		return Other
	}
	parks := c.kind == Block && slices.ContainsFunc(parks, func(prefix string) bool { return strings.HasPrefix(stack[0], prefix) })
	if p := choose(named(roots, stack[len(stack)-1]), parks); p != caller {
		return p
	}
	for _, name := range stack {
		if p := c.own(name, parks); p != caller {
			return p
		}
	}
	for i := len(stack) - 1; i >= 0; i-- {
		if p := choose(named(background, stack[i]), parks); p != caller {
			return p
		}
	}
	return Other
}

// own returns the part to which the rules count a function whoever calls it, or
// caller.
func (c *classifier) own(name string, parks bool) Part {
	if c == nil {
		return Other
	}
	parts, ok := c.known[name]
	if !ok {
		parts = named(rules, name)
		c.known[name] = parts
	}
	return choose(parts, parks)
}

// named returns the parts of the rules that name a function, in their order.
func named(rules []rule, name string) (parts []Part) {
	for _, r := range rules {
		if strings.HasPrefix(name, r.prefix) {
			parts = append(parts, r.part)
		}
	}
	return parts
}

// choose returns the first of the parts, or caller if there is none. Parked is
// for goroutines that park only.
func choose(parts []Part, parks bool) Part {
	for _, p := range parts {
		if p != Parked || parks {
			return p
		}
	}
	return caller
}
