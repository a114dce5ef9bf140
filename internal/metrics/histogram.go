package metrics

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// schema is that of all native histograms here: their buckets grow by the
// eighth root of two.
const schema = 3

// octaves is the range of the native histograms: 2^44 units, which are almost
// five hours in nanoseconds. What is larger counts as that.
const octaves = 44

// bins are what a histogram counts by: ranges that are cut at the bounds of the
// classic and of the native buckets alike, so that a value is counted once and
// both kinds of buckets are sums of bins. Values are whole numbers of a unit,
// such as nanoseconds, and leave as Prometheus' base units.
type bins struct {
	unit    float64   // in base units
	classic []float64 // the upper bounds of the classic buckets, in base units

	upper []int64 // the largest value in a bin, but for the last, which has none
	// class and native are the buckets that a bin belongs to: the place in
	// classic, and Prometheus' index.
	class, native []int
	// first is the first bin that may hold a value, by its four leading bits.
	first [64 << 3]uint16
}

func newBins(classic []float64, unit float64) *bins {
	b := &bins{unit: unit, classic: classic}
	lowest := int(math.Floor(math.Log2(unit))) << schema
	highest := lowest + octaves<<schema
	nativeBound := func(i int) int64 {
		return int64(math.Exp2(float64(i)/(1<<schema)) / unit * (1 + 1e-14)) // what is a whole number stays one
	}
	for i := lowest; i < highest; i++ {
		b.upper = append(b.upper, nativeBound(i))
	}
	for _, c := range classic {
		b.upper = append(b.upper, int64(math.Round(c/unit)))
	}
	slices.Sort(b.upper)
	b.upper = slices.Compact(b.upper)

	class, native := 0, lowest
	for _, upper := range b.upper {
		for class < len(classic) && int64(math.Round(classic[class]/unit)) < upper {
			class++
		}
		for native < highest && nativeBound(native) < upper {
			native++
		}
		b.class, b.native = append(b.class, class), append(b.native, native)
	}
	b.class, b.native = append(b.class, len(classic)), append(b.native, highest)
	for i := range b.first {
		bin, _ := slices.BinarySearch(b.upper, leastOf(i))
		b.first[i] = uint16(bin)
	}
	return b
}

// leading returns a place in bins.first: how many bits v has, and the three
// that follow the first.
func leading(v int64) int {
	n := bits.Len64(uint64(v))
	return n<<3 | int(uint64(v)<<(64-n)>>60&7)
}

// leastOf returns the least value of that place.
func leastOf(place int) int64 {
	n, three := place>>3, uint64(place&7)
	if n == 0 {
		return 0
	}
	v := (8 | three) << 60 >> (64 - n)
	return int64(v)
}

// bin returns the bin of v, which is not negative.
func (b *bins) bin(v int64) int {
	i := int(b.first[leading(v)])
	for i < len(b.upper) && v > b.upper[i] {
		i++
	}
	return i
}

// histogram counts values, as a classic and a native histogram of Prometheus at
// once. The one of its client library costs several times as much, which every
// request would pay three times. All methods are safe for concurrent use.
type histogram struct {
	bins   *bins
	desc   *prometheus.Desc
	labels []*dto.LabelPair

	// sum is what was counted, less what was carried: alone it would wrap after 292
	// years of waiting, which ten thousand clients do in eleven days.
	sum     atomic.Int64
	carried struct {
		sync.Mutex
		times float64 // how often carry was
	}
	zeros  atomic.Uint64
	counts []atomic.Uint64 // by bin
}

// observe counts a value. One below zero counts as zero.
func (h *histogram) observe(v int64) {
	if v <= 0 {
		h.zeros.Add(1)
		return
	}
	h.counts[h.bins.bin(v)].Add(1)
	if h.sum.Add(min(v, carry)) < carry {
		return
	}
	h.carried.Lock()
	defer h.carried.Unlock()
	if h.sum.Load() >= carry { // nobody else has been here
		h.sum.Add(-carry)
		h.carried.times++
	}
}

const carry = 1 << 60

// total returns the sum of what was counted.
func (h *histogram) total() float64 {
	h.carried.Lock()
	defer h.carried.Unlock()
	return h.carried.times*carry + float64(h.sum.Load())
}

func (h *histogram) observeDuration(d time.Duration) { h.observe(int64(d)) }

// count returns how many values were counted.
func (h *histogram) count() uint64 {
	n := h.zeros.Load()
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// Desc is for Prometheus' registry.
func (h *histogram) Desc() *prometheus.Desc { return h.desc }

// Write is for Prometheus' registry. What is counted meanwhile may be in the
// sum and not in a bucket, or the other way round.
func (h *histogram) Write(out *dto.Metric) error {
	zeros := h.zeros.Load()
	total := zeros
	classes := make([]uint64, len(h.bins.classic)+1)
	classes[0] = zeros
	var (
		spans  []*dto.BucketSpan
		deltas []int64
		last   int64 // the count of the native bucket before
		next   int   // the index behind it
	)
	for i := 0; i < len(h.counts); {
		index, n := h.bins.native[i], uint64(0)
		for ; i < len(h.counts) && h.bins.native[i] == index; i++ {
			one := h.counts[i].Load()
			classes[h.bins.class[i]] += one
			n += one
		}
		if n == 0 {
			continue
		}
		total += n
		if gap := index - next; gap != 0 || spans == nil {
			spans = append(spans, &dto.BucketSpan{Offset: ptr(int32(gap)), Length: ptr(uint32(0))})
		}
		*spans[len(spans)-1].Length++
		deltas = append(deltas, int64(n)-last)
		last, next = int64(n), index+1
	}
	if spans == nil {
		// An empty span tells Prometheus that the histogram is a native one.
		spans = []*dto.BucketSpan{{Offset: ptr(int32(0)), Length: ptr(uint32(0))}}
	}
	d := &dto.Histogram{
		SampleCount:   &total,
		SampleSum:     ptr(h.total() * h.bins.unit),
		Schema:        ptr(int32(schema)),
		ZeroThreshold: ptr(prometheus.DefNativeHistogramZeroThreshold),
		ZeroCount:     &zeros,
		PositiveSpan:  spans,
		PositiveDelta: deltas,
	}
	cumulative := uint64(0)
	for i, bound := range h.bins.classic {
		cumulative += classes[i]
		d.Bucket = append(d.Bucket, &dto.Bucket{UpperBound: ptr(bound), CumulativeCount: ptr(cumulative)})
	}
	out.Label, out.Histogram = h.labels, d
	return nil
}

func ptr[T any](v T) *T { return &v }

// histograms is a family of histograms that differ in the values of their
// labels.
type histograms struct {
	desc *prometheus.Desc
	bins *bins

	mu  sync.Mutex
	all map[string]*histogram // by the values of the labels
}

const (
	nanoseconds = 1e-9 // the unit of durations
	items       = 1    // the unit of numbers of things
)

func newHistograms(name, help string, classic []float64, unit float64, labels ...string) *histograms {
	return &histograms{desc: desc(name, help, labels...), bins: newBins(classic, unit), all: make(map[string]*histogram)}
}

// with returns the histogram of those values, in the order of the labels. It is
// created if it is new.
func (v *histograms) with(values ...string) *histogram {
	key := ""
	for _, value := range values {
		key += value + "\x00"
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.all[key]
	if h == nil {
		h = &histogram{
			bins: v.bins, desc: v.desc, labels: prometheus.MakeLabelPairs(v.desc, values),
			counts: make([]atomic.Uint64, len(v.bins.upper)+1),
		}
		v.all[key] = h
	}
	return h
}

// Describe is for Prometheus' registry.
// keep forgets all histograms but those.
func (v *histograms) keep(those map[*histogram]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.all, func(_ string, h *histogram) bool { return !those[h] })
}

// Describe is prometheus.Collector's.
func (v *histograms) Describe(descs chan<- *prometheus.Desc) { descs <- v.desc }

// Collect is for Prometheus' registry.
func (v *histograms) Collect(metrics chan<- prometheus.Metric) {
	v.mu.Lock()
	all := make([]*histogram, 0, len(v.all))
	for _, h := range v.all {
		all = append(all, h)
	}
	v.mu.Unlock()
	for _, h := range all {
		metrics <- h
	}
}
