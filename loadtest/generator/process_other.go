//go:build !linux && !darwin

package generator

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
