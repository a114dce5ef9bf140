#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "${1:-}" = purge ] && [ -d /var/lib/spillway ]; then
	echo "The data stay in /var/lib/spillway, and belong to the user spillway." >&2
fi
