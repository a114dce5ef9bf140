// Package machine says where something was measured.
package machine

import "runtime"

// Machine is where something was measured. What could not be learned is empty.
type Machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Memory int64  `json:"memory_bytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// This describes the machine that it runs on.
func This() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	m.describe()
	return m
}
