#!/bin/sh
# boot.sh DIR: in namespaces of its own, boots this machine's systemd on this machine's files, and
# keeps in memory what changes. Of the kernel and its devices it may change nothing.
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for dir in run tmp dev; do
	mount -t tmpfs tmpfs $dir
done
mkdir dev/shm dev/pts tmp/old
while read -r name major minor; do
	mknod -m 666 "dev/$name" c "$major" "$minor"
done <<-devices
	null 1 3
	zero 1 5
	full 1 7
	random 1 8
	urandom 1 9
	tty 5 0
devices
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ip link set lo up
# Not chroot, in which no user namespace can be made.
pivot_root . tmp/old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /bin/sh -c 'umount -l /tmp/old && exec /lib/systemd/systemd --system --unit=sysinit.target' </dev/null
