#!/bin/sh
# The user that the service runs as. Its files stay when the package goes, and so does it.
set -e
getent group spillway >/dev/null || groupadd --system spillway
getent passwd spillway >/dev/null || useradd --system --gid spillway --home-dir /var/lib/spillway --no-create-home \
	--shell /usr/sbin/nologin --comment Spillway spillway
