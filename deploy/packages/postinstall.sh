#!/bin/sh
# An upgrade goes on with what ran. A first installation starts nothing: it has to be configured.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart spillway.service spillway-proxy.service
fi
