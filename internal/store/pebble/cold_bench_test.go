//go:build linux

package pebble

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkGet_Cold reads each key of a store that was just opened once, and then again.
// It tells the CPU of the process for each read, the pages that were touched for the
// first time, and the memory that the reads have added. Run it with -benchtime=1x.
func BenchmarkGet_Cold(b *testing.B) {
	o := Options{Dir: b.TempDir(), Sync: Never, CacheBytes: 2 << 30, ValueBytes: 2 << 30, Logger: slog.New(slog.DiscardHandler)}
	s := openOnly(b, o)
	fill(b, s)
	require.NoError(b, s.Close())
	for b.Loop() {
		s = openOnly(b, o)
		before := resident(b)
		for _, name := range []string{"cold", "warm"} {
			from := usage(b)
			k, v := make([]byte, 8), make([]byte, 0, 128)
			for i := range uint64(benchKeys) {
				k = benchKey(k, i)
				var err error
				v, _, err = s.Get(v[:0], k)
				if err != nil {
					b.Fatal(err)
				}
			}
			to := usage(b)
			b.ReportMetric(float64(to.Utime.Nano()+to.Stime.Nano()-from.Utime.Nano()-from.Stime.Nano())/benchKeys, name+"-cpu-ns")
			b.ReportMetric(float64(to.Stime.Nano()-from.Stime.Nano())/benchKeys, name+"-system-ns")
			b.ReportMetric(float64(to.Minflt-from.Minflt)/benchKeys, name+"-faults")
		}
		b.ReportMetric(float64(resident(b)-before)/(1<<20), "added-MiB")
		require.NoError(b, s.Close())
	}
}

func usage(b *testing.B) (u syscall.Rusage) {
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u
}

// resident returns the memory of the process.
func resident(b *testing.B) int64 {
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(b, err)
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	require.NoError(b, err)
	return pages * int64(os.Getpagesize())
}
