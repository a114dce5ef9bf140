package config

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Machine is what the process may use of the machine it runs on.
type Machine struct {
	// CPUs is the number of CPUs, at least 1.
	CPUs int
	// Memory is in bytes.
	Memory int64
}

// unknownMemory is assumed where the memory cannot be learnt.
const unknownMemory = 2 << 30

// Memory returns how many bytes of memory this process may use: what the
// machine has, or the limit of a control group that the process is in, or
// limit, whichever is least. The files are those of the machine's root.
func Memory(root fs.FS, limit int64) int64 {
	least := limit
	if ram, ok := totalMemory(root); ok {
		least = min(least, ram)
	}
	for _, group := range groupLimits(root) {
		least = min(least, group)
	}
	if least == math.MaxInt64 {
		return unknownMemory
	}
	return least
}

// totalMemory reads the memory of the machine.
func totalMemory(root fs.FS) (int64, bool) {
	info, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			kib, err := strconv.ParseInt(f[1], 10, 53)
			return kib << 10, err == nil && kib > 0
		}
	}
	return 0, false
}

// groupLimits reads the limits of the control groups that the process is in,
// directly or through a parent: /proc/self/cgroup names them, a line each. A
// container may see the path that its group has on the host while its files are
// mounted at the top, so that the parents are looked at even where the group
// itself is not found.
func groupLimits(root fs.FS) (limits []int64) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(groups))
	for lines.Scan() {
		id, rest, _ := strings.Cut(lines.Text(), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		var top, file string
		switch {
		case id == "0" && controllers == "": // version 2
			top, file = "sys/fs/cgroup", "memory.max"
		case strings.Contains(","+controllers+",", ",memory,"): // version 1
			top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group = path.Join("/", group); ; group = path.Dir(group) {
			if n, ok := groupLimit(root, path.Join(top, group, file)); ok {
				limits = append(limits, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return limits
}

// groupLimit reads one limit, which may be "max".
func groupLimit(root fs.FS, file string) (int64, bool) {
	content, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	return n, err == nil && n > 0
}

// InSockets reads how much memory of sockets is charged to the control group of the
// process, 0 where they are not (version 1).
func InSockets(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(groups)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ok {
			if stat, err := fs.ReadFile(root, path.Join("sys/fs/cgroup", group, "memory.stat")); err == nil {
				for line := range strings.Lines(string(stat)) {
					if f := strings.Fields(line); len(f) == 2 && f[0] == "sock" {
						n, _ := strconv.ParseInt(f[1], 10, 64)
						return n
					}
				}
			}
			ok, group = path.Join("/", group) != "/", path.Dir(path.Join("/", group))
		}
	}
	return 0
}
