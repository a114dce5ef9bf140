package peers

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime/metrics"
	"syscall"
)

// adminPlane answers what the load lab asks a service. It costs nothing while
// nobody asks.
func adminPlane(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /strategy", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "{%q:%q,%q:0,%q:0}\n", "strategy", name, "workers", "capacity")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(samples)
		var usage syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // cannot fail for oneself
		_, _ = fmt.Fprintf(w, "process_cpu_seconds_total %g\ngo_memstats_mallocs_total %d\ngo_memstats_alloc_bytes_total %d\n",
			float64(usage.Utime.Nano()+usage.Stime.Nano())/1e9,
			samples[0].Value.Uint64()+samples[1].Value.Uint64(), samples[2].Value.Uint64())
		if resident, ok := residentMemory(); ok {
			_, _ = fmt.Fprintf(w, "process_resident_memory_bytes %d\n", resident)
		}
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	return mux
}

// residentMemory returns how many bytes of memory the process has; false where
// the system does not tell.
func residentMemory() (bytes int, ok bool) {
	var size, pages int
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	_, err = fmt.Sscan(string(text), &size, &pages)
	return pages * os.Getpagesize(), err == nil
}
