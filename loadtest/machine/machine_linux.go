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

func fileSystemOf(dir string) string {
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) != nil {
		return ""
	}
	return fileSystem(uint32(disk.Type))
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

// fileSystem names a file system by its magic number.
func fileSystem(magic uint32) string {
	names := map[uint32]string{
		unix.EXT4_SUPER_MAGIC:      "ext4",
		unix.XFS_SUPER_MAGIC:       "xfs",
		unix.BTRFS_SUPER_MAGIC:     "btrfs",
		unix.TMPFS_MAGIC:           "tmpfs",
		unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
		unix.F2FS_SUPER_MAGIC:      "f2fs",
		unix.NFS_SUPER_MAGIC:       "nfs",
		0x2fc12fc1:                 "zfs",
	}
	if name, ok := names[magic]; ok {
		return name
	}
	return fmt.Sprintf("file system %#x", magic)
}
