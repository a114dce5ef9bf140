// Package machine says where something was measured.
package machine

import (
	"os"
	"runtime"
	"slices"
	"time"
)

// Machine is where something was measured. What could not be learned is empty.
type Machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Memory int64  `json:"memory_bytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	// Disk is the file system of the data folder, if it is on this machine.
	Disk string `json:"disk,omitempty"`
	// FsyncMicros is the median time of an fsync of a 4 KiB append to it, measured.
	FsyncMicros float64 `json:"fsync_us,omitempty"`
}

// This describes the machine that it runs on.
func This() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	m.describe()
	return m
}

// DescribeDisk adds the disk on which dir lies, which must exist. It takes some
// milliseconds.
func (m *Machine) DescribeDisk(dir string) (err error) {
	m.Disk = fileSystemOf(dir)
	m.FsyncMicros, err = measureFsync(dir)
	return err
}

// measureFsync appends to a file in dir, and syncs it, as a log does.
func measureFsync(dir string) (micros float64, err error) {
	f, err := os.CreateTemp(dir, "fsync-*")
	if err != nil {
		return 0, err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	block := make([]byte, 4<<10)
	times := make([]time.Duration, 32)
	for i := range times {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1e3, nil
}
