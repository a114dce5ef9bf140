package admin

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
)

// memoryUsed returns how much memory the process takes, in bytes: what is
// resident, or where that is unknown what Go's runtime has.
func memoryUsed() uint64 {
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(statm); len(fields) > 1 {
			if pages, err := strconv.ParseUint(string(fields[1]), 10, 64); err == nil {
				return pages * uint64(os.Getpagesize())
			}
		}
	}
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
