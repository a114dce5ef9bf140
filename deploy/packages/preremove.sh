#!/bin/sh
# Debian says remove or upgrade, RPM the number of packages that are left.
set -e
case ${1:-remove} in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --quiet disable --now spillway.service spillway-proxy.service
	fi
	;;
esac
