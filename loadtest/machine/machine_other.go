//go:build !linux

package machine

import "runtime"

func (m *Machine) describe() {
	m.CPU, m.Kernel = runtime.GOARCH, runtime.GOOS
}
