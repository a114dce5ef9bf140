package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-go/spillway/strategies"
	"github.com/spillway-go/spillway/strategies/dispatch"
)

// Sources are asked at every scrape, perhaps by several goroutines at once.
type Sources struct {
	// Gauge returns the state of the queue. See dispatch.Dispatcher.Gauge.
	Gauge func() dispatch.Gauge
	// Objective is that of the dispatcher. Nil means one that nobody has set.
	Objective *strategies.Objective
	// Connections returns how many connections of the data plane are open.
	Connections func() int
	// Writable returns nil, or why the store cannot write. It is nil without a store.
	Writable func() error
	// Dropped returns how many lines of the log were dropped.
	Dropped func() uint64
	// AccessDropped returns how many lines of the access log were dropped, SpansDropped how many
	// spans. They are nil if there are none.
	AccessDropped, SpansDropped func() uint64
	// ReloadFailed reports whether the last reload of the configuration failed. It may be nil.
	ReloadFailed func() bool
	// Store returns the figures of the embedded store. It is nil if there is none.
	Store func() StoreStats
	// Upstreams returns the state of each upstream of the proxy. It is nil if this is none.
	Upstreams func() []Upstream
}

// Upstream is the state of an upstream.
type Upstream struct {
	Name string
	// Up is whether it can be reached and does not rest.
	Up bool
	// InFlight is how many requests it works on, and Limit how many it may.
	InFlight, Limit int
	// Answered and Failed count requests: what it answered, and what it did not, or with an error from 500 on.
	Answered, Failed uint64
	// Unwell is for how long it has rested and come back, 0 if it is well.
	Unwell time.Duration
}

// StoreStats are figures of the embedded store. The totals never fall.
type StoreStats struct {
	Compactions            uint64 // total
	Levels                 []StoreLevel
	ReadAmplification      int
	CacheHits, CacheMisses uint64 // totals
	// Those of the cache of values.
	ValueCacheHits, ValueCacheMisses uint64 // totals
	ValueCacheBytes                  uint64
	DiskBytes                        uint64
	DiskFreeBytes                    uint64
	WriteStalls                      uint64        // total
	WriteStallTime                   time.Duration // total
	MemtableBytes                    uint64
	CompactionDebtBytes              uint64
}

// StoreLevel is a level of the store's tree, whose number is its place in
// StoreStats.Levels.
type StoreLevel struct{ Bytes, Files uint64 }

// Watch exports what the sources say. It must be called at most once.
func (m *Metrics) Watch(s Sources) {
	if s.Objective != nil {
		m.objective.Store(s.Objective)
	}
	m.registry.MustRegister(&watcher{s})
	if s.Store != nil {
		m.registry.MustRegister(m.embedded)
	}
	m.sources.Store(&s)
}

// watcher turns the answers of the sources into metrics.
type watcher struct{ Sources }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

var (
	strategyInfo  = desc("strategy_info", "The active strategy, as a label. Always 1.", "strategy")
	queueDepth    = desc("queue_depth", "Tasks that wait.", "strategy")
	queueCapacity = desc("queue_capacity", "Tasks that may wait; absent if there is no bound.", "strategy")
	queueLimit    = desc("queue_limit", "Tasks that the strategy means to let wait at present; absent if it has no such limit.", "strategy")
	queuePace     = desc("queue_pace_seconds", "Time from one task that workers begin to the next, as the strategy has measured it; absent if it measures none.", "strategy")
	workers       = desc("workers", "Workers that there may be, 0 if the strategy uses none; absent if they are learned in the mode observe, which holds nobody back.", "strategy")
	workersBusy   = desc("workers_busy", "Workers that are at work.", "strategy")

	concurrencyLimit   = desc("concurrency_limit", "How many requests may be worked on at once, as learned; absent if the number is given, or in the mode observe.", "strategy")
	concurrencyMax     = desc("concurrency_max", "The most that the learned number may be; absent if the number is given.", "strategy")
	concurrencyStuck   = desc("concurrency_stuck", "Requests that are worked on and do not end, included in concurrency_limit; absent if the number is given.", "strategy")
	concurrencyPaused  = desc("concurrency_paused", "1 in a pause, in which one request is begun now and then, as the latest timed out; absent if the number is given.", "strategy")
	concurrencyDropped = desc("concurrency_dropped_total", "Requests whose time was up in service, or that the store or the upstream refused as overloaded, of which the number is learned; absent if it is given.")

	connections      = desc("connections", "Open connections of the data plane.")
	linesDropped     = desc("log_lines_dropped_total", "Lines of the log that were dropped since nobody was taking them.")
	accessDropped    = desc("access_log_lines_dropped_total", "Lines of the access log that were dropped since nobody was taking them.")
	spansDropped     = desc("spans_dropped_total", "Spans that were dropped since the collector was not taking them.")
	reloadGood       = desc("config_last_reload_successful", "0 if the configuration file was wrong when it was last reloaded, so that nothing changed.")
	upstreamUp       = desc("upstream_up", "1 if the upstream can be reached and does not rest, 0 otherwise.", "upstream")
	upstreamInFlight = desc("upstream_inflight", "Requests that the upstream works on.", "upstream")
	upstreamLimit    = desc("upstream_limit", "Requests that the upstream may get at once, learned or given.", "upstream")

	storeWritable = desc("store_writable", "1 if the store can write, 0 if it cannot.")

	storeCompactions    = desc("store_compactions_total", "Compactions of the store.")
	storeLevelBytes     = desc("store_level_bytes", "Bytes in the tables of a level of the store.", "level")
	storeLevelFiles     = desc("store_level_files", "Tables in a level of the store.", "level")
	storeReadAmp        = desc("store_read_amplification", "Places that a point read may have to look at.")
	storeCacheHits      = desc("store_cache_hits_total", "Blocks that were found in the block cache.")
	storeCacheMisses    = desc("store_cache_misses_total", "Blocks that had to be read from the disk.")
	valueCacheHits      = desc("store_value_cache_hits_total", "Reads of a key whose value was found in the cache of values.")
	valueCacheMisses    = desc("store_value_cache_misses_total", "Reads of a key that went on to the store, those of absent keys included.")
	valueCacheBytes     = desc("store_value_cache_bytes", "Memory that the values in the cache of values take.")
	storeDiskBytes      = desc("store_disk_bytes", "Space that the store takes on the disk.")
	storeDiskFree       = desc("store_disk_free_bytes", "Space left for the store on its file system.")
	storeWriteStalls    = desc("store_write_stalls_total", "Times that writes had to wait for flushes or compactions.")
	storeWriteStallTime = desc("store_write_stall_seconds_total", "Time for which writes had to wait for flushes or compactions, the present stall included.")
	storeMemtableBytes  = desc("store_memtable_bytes", "Memory that memtables take.")
	storeDebtBytes      = desc("store_compaction_debt_bytes", "Estimate of the bytes that compactions have to rewrite.")
)

// Describe sends all descriptions.
func (w *watcher) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		strategyInfo, queueDepth, queueCapacity, queueLimit, queuePace, workers, workersBusy,
		concurrencyLimit, concurrencyMax, concurrencyStuck, concurrencyPaused, concurrencyDropped, connections, linesDropped, accessDropped, spansDropped, reloadGood, storeWritable,
		upstreamUp, upstreamInFlight, upstreamLimit,
		storeCompactions, storeLevelBytes, storeLevelFiles, storeReadAmp, storeCacheHits, storeCacheMisses,
		valueCacheHits, valueCacheMisses, valueCacheBytes,
		storeDiskBytes, storeDiskFree, storeWriteStalls, storeWriteStallTime, storeMemtableBytes, storeDebtBytes,
	} {
		ch <- d
	}
}

// Collect asks the sources.
func (w *watcher) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	seconds := func(d *prometheus.Desc, v time.Duration) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v.Seconds())
	}
	total := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}

	g := w.Gauge()
	gauge(strategyInfo, 1, g.Strategy)
	gauge(queueDepth, float64(g.Depth), g.Strategy)
	if g.Capacity != strategies.Unbounded {
		gauge(queueCapacity, float64(g.Capacity), g.Strategy)
	}
	if g.Limit != 0 {
		gauge(queueLimit, float64(g.Limit), g.Strategy)
	}
	if g.Pace != 0 {
		gauge(queuePace, g.Pace.Seconds(), g.Strategy)
	}
	if g.Learned == nil || g.Learned.Limit != 0 {
		gauge(workers, float64(g.Workers), g.Strategy)
	}
	gauge(workersBusy, float64(g.Busy), g.Strategy)
	if l := g.Learned; l != nil {
		if l.Limit != 0 {
			gauge(concurrencyLimit, float64(l.Limit), g.Strategy)
		}
		gauge(concurrencyMax, float64(l.Max), g.Strategy)
		gauge(concurrencyStuck, float64(l.Stuck), g.Strategy)
		gauge(concurrencyPaused, indicator(l.Paused), g.Strategy)
		total(concurrencyDropped, l.Dropped)
	}

	gauge(connections, float64(w.Connections()))
	total(linesDropped, w.Dropped())
	if w.AccessDropped != nil {
		total(accessDropped, w.AccessDropped())
	}
	if w.SpansDropped != nil {
		total(spansDropped, w.SpansDropped())
	}
	if w.ReloadFailed != nil {
		gauge(reloadGood, indicator(!w.ReloadFailed()))
	}
	if w.Writable != nil {
		gauge(storeWritable, indicator(w.Writable() == nil))
	}

	if w.Upstreams != nil {
		for _, u := range w.Upstreams() {
			gauge(upstreamUp, indicator(u.Up), u.Name)
			gauge(upstreamInFlight, float64(u.InFlight), u.Name)
			gauge(upstreamLimit, float64(u.Limit), u.Name)
		}
	}

	if w.Store == nil {
		return
	}
	s := w.Store()
	total(storeCompactions, s.Compactions)
	for i, level := range s.Levels {
		gauge(storeLevelBytes, float64(level.Bytes), strconv.Itoa(i))
		gauge(storeLevelFiles, float64(level.Files), strconv.Itoa(i))
	}
	gauge(storeReadAmp, float64(s.ReadAmplification))
	total(storeCacheHits, s.CacheHits)
	total(storeCacheMisses, s.CacheMisses)
	total(valueCacheHits, s.ValueCacheHits)
	total(valueCacheMisses, s.ValueCacheMisses)
	gauge(valueCacheBytes, float64(s.ValueCacheBytes))
	gauge(storeDiskBytes, float64(s.DiskBytes))
	gauge(storeDiskFree, float64(s.DiskFreeBytes))
	total(storeWriteStalls, s.WriteStalls)
	seconds(storeWriteStallTime, s.WriteStallTime)
	gauge(storeMemtableBytes, float64(s.MemtableBytes))
	gauge(storeDebtBytes, float64(s.CompactionDebtBytes))
}

// indicator is 1 for what is so, and else 0.
func indicator(so bool) float64 {
	if so {
		return 1
	}
	return 0
}
