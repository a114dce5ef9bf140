package caches

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/VictoriaMetrics/fastcache"
	"github.com/Yiling-J/theine-go"
	"github.com/coocood/freecache"
	"github.com/maypok86/otter/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/values"
)

// cache is what all of them can do. Get appends the value to dst.
type cache interface {
	Get(dst, key []byte) ([]byte, bool)
	Set(key, value []byte)
	Close()
}

// Those that count the bytes that they are told of are told of keys and values.
var caches = map[string]func(t testing.TB, bytes int) cache{
	"values": func(t testing.TB, bytes int) cache {
		c, err := values.New(values.Options{Bytes: int64(bytes), Now: func() int64 { return 0 }})
		require.NoError(t, err)
		return &ours{Cache: c}
	},
	"otter": func(t testing.TB, bytes int) cache {
		c, err := otter.New(&otter.Options[string, []byte]{
			MaximumWeight: uint64(bytes),
			Weigher:       func(k string, v []byte) uint32 { return uint32(len(k) + len(v)) },
		})
		require.NoError(t, err)
		return &otters{c}
	},
	"theine": func(t testing.TB, bytes int) cache {
		c, err := theine.NewBuilder[string, []byte](int64(bytes)).Cost(func(v []byte) int64 { return int64(keyBytes + len(v)) }).Build()
		require.NoError(t, err)
		return &theines{c}
	},
	"fastcache": func(_ testing.TB, bytes int) cache { return &fast{fastcache.New(bytes)} },
	"freecache": func(_ testing.TB, bytes int) cache { return &free{freecache.NewCache(bytes)} },
}

type ours struct{ *values.Cache }

func (c *ours) Get(dst, key []byte) ([]byte, bool) {
	dst, _, _, ok := c.Cache.Get(dst, key)
	return dst, ok
}

func (c *ours) Set(key, value []byte) {
	_, _, t, _ := c.Cache.Get(nil, key)
	c.Fill(t, key, value, values.Meta{})
}

type otters struct{ c *otter.Cache[string, []byte] }

func (o *otters) Get(dst, key []byte) ([]byte, bool) {
	v, ok := o.c.GetIfPresent(unsafe.String(&key[0], len(key)))
	return append(dst, v...), ok
}
func (o *otters) Set(key, value []byte) { o.c.Set(string(key), slices.Clone(value)) }
func (o *otters) Close()                { o.c.StopAllGoroutines() }

type theines struct{ c *theine.Cache[string, []byte] }

func (o *theines) Get(dst, key []byte) ([]byte, bool) {
	v, ok := o.c.Get(unsafe.String(&key[0], len(key)))
	return append(dst, v...), ok
}
func (o *theines) Set(key, value []byte) { o.c.Set(string(key), slices.Clone(value), 0) }
func (o *theines) Close()                { o.c.Close() }

type fast struct{ c *fastcache.Cache }

func (o *fast) Get(dst, key []byte) ([]byte, bool) { return o.c.HasGet(dst, key) }
func (o *fast) Set(key, value []byte)              { o.c.Set(key, value) }
func (o *fast) Close()                             { o.c.Reset() }

type free struct{ c *freecache.Cache }

func (o *free) Get(dst, key []byte) ([]byte, bool) {
	n := len(dst)
	v, err := o.c.GetWithBuf(key, dst[n:cap(dst)])
	return dst[:n+len(v)], err == nil
}
func (o *free) Set(key, value []byte) { _ = o.c.Set(key, value, 0) }
func (o *free) Close()                {}

const keyBytes = 16

func keyOf(dst []byte, n int) []byte { return fmt.Appendf(dst[:0], "key%013d", n) }

// zipf draws from 0 to n-1 by Zipf's law with the exponent 0.99.
type zipf struct{ sums []float64 }

func newZipf(n int) *zipf {
	z := &zipf{make([]float64, n)}
	sum := 0.0
	for i := range z.sums {
		sum += math.Pow(float64(i+1), -0.99)
		z.sums[i] = sum
	}
	return z
}

func (z *zipf) draw(r *rand.Rand) int {
	n, _ := slices.BinarySearch(z.sums, r.Float64()*z.sums[len(z.sums)-1])
	return n
}

// share is how much of all draws the first n are.
func (z *zipf) share(n int) float64 { return z.sums[n-1] / z.sums[len(z.sums)-1] }

var names = []string{"values", "otter", "theine", "fastcache", "freecache"}

// BenchmarkHit reads keys that are all there.
func BenchmarkHit(b *testing.B) {
	const n = 100_000
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = keyOf(nil, i)
	}
	for _, length := range []int{100, 1000} {
		for _, name := range names {
			b.Run(fmt.Sprintf("cache=%s/value=%d", name, length), func(b *testing.B) {
				c := caches[name](b, 512<<20)
				defer c.Close()
				for _, key := range keys {
					c.Set(key, make([]byte, length))
				}
				require.Eventually(b, func() bool { // some take what is set later
					_, ok := c.Get(nil, keys[n-1])
					return ok || name == "fastcache"
				}, 10*time.Second, time.Millisecond)
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					dst := make([]byte, 0, 4096)
					for i := rand.IntN(n); pb.Next(); i = (i*5 + 1) % n {
						if _, ok := c.Get(dst, keys[i]); !ok && name != "fastcache" {
							b.Error("a miss")
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkHitRatio reads a million keys of 100 or 1000 bytes by Zipf's law, of which a
// tenth of the bytes fit, alone and with a scan that is half of all reads, and reports
// what share of the reads by Zipf's law hits. Best is that of the best fixed set of as
// many bytes of keys and values. MB is what the heap has grown by.
func BenchmarkHitRatio(b *testing.B) {
	const keys, reads = 1_000_000, 4_000_000
	z := newZipf(keys)
	for _, length := range []int{100, 1000} {
		bytes := keys * (keyBytes + length) / 10
		for _, scan := range []bool{false, true} {
			for _, name := range names {
				b.Run(fmt.Sprintf("cache=%s/value=%d/scan=%v", name, length, scan), func(b *testing.B) {
					value := make([]byte, length)
					for b.Loop() {
						var before, after runtime.MemStats
						runtime.GC()
						runtime.ReadMemStats(&before)
						c := caches[name](b, bytes)
						hits, counted := 0, 0
						random := rand.New(rand.NewPCG(1, 2))
						key, dst := make([]byte, 0, keyBytes), make([]byte, 0, 4096)
						next := keys
						for i := range reads {
							var n int
							scans := scan && i%2 == 1
							if scans {
								n = next
								next++
							} else {
								n = z.draw(random)
							}
							key = keyOf(key, n)
							_, ok := c.Get(dst, key)
							if !ok {
								c.Set(key, value)
							}
							if !scans && i > reads/2 { // warm
								counted++
								if ok {
									hits++
								}
							}
						}
						runtime.GC()
						runtime.ReadMemStats(&after)
						b.ReportMetric(100*float64(hits)/float64(counted), "%hits")
						b.ReportMetric(100*z.share(keys/10), "%best")
						b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/1e6, "MB")
						c.Close()
					}
				})
			}
		}
	}
}
