package machine

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// describe fills in what the kernel says.
func (m *Machine) describe() {
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = processor(info)
	}
	var system unix.Sysinfo_t
	if unix.Sysinfo(&system) == nil {
		m.Memory = int64(system.Totalram) * int64(system.Unit)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	}
}

// processor finds the name of the processor in /proc/cpuinfo. ARM's kernels say
// no name there, but the numbers of the maker and the part.
func processor(info []byte) string {
	fields := map[string]string{}
	for line := range bytes.Lines(info) {
		key, value, ok := strings.Cut(string(line), ":")
		if key = strings.TrimSpace(key); ok && fields[key] == "" {
			fields[key] = strings.TrimSpace(value)
		}
	}
	if name := fields["model name"]; name != "" {
		return name
	}
	if part := fields["CPU part"]; part != "" {
		return fmt.Sprintf("implementer %s, part %s", fields["CPU implementer"], part)
	}
	return ""
}
