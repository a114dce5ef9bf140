#!/bin/sh
# Prints what CHANGELOG.md says of a version: deploy/notes.sh v0.1.0
set -eu
cd "$(dirname "$0")/.."
notes=$(awk -v version="$1" '/^## / { wanted = $2 == version; next } wanted' CHANGELOG.md)
[ -n "$notes" ] || { echo "CHANGELOG.md has no section $1" >&2; exit 1; }
printf '%s\n' "$notes"
