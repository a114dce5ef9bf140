#!/bin/sh
# build.sh BINARY VERSION ARCH DIST
#
# Makes DIST/spillway-VERSION-linux-ARCH.deb and .rpm of BINARY. $SPILLWAY runs spillway here, to
# print its manual page and completions.
set -eu
[ $# = 4 ] || { sed -n 's/^# //p' "$0" | head -n 1 >&2; exit 2; }
binary=$(realpath "$1") version=$2 arch=$3
mkdir -p "$4"
dist=$(realpath "$4")
repository=$(realpath "$(dirname "$0")/../..")
spillway=${SPILLWAY:-go run ./cmd/spillway}
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
cd "$repository"

$spillway man | gzip -9n >"$files/spillway.1.gz"
for shell in bash zsh fish; do
	$spillway completion $shell >"$files/completion.$shell"
done

# The units of the repository, for the program, the user and the file of the package.
unit() {
	sed -e 's|^ExecStart=/usr/local/bin/|ExecStart=/usr/bin/|' -e 's|^DynamicUser=yes|User=spillway\nGroup=spillway\nRemoveIPC=yes|' \
		-e "s|^ExecStart=.*|&$2\nEnvironment=SPILLWAY_CONFIG=/etc/spillway/$3|" deploy/spillway.service >"$files/$1"
}
unit spillway.service '' spillway.yaml
unit spillway-proxy.service ' proxy' proxy.yaml
# The proxy keeps nothing.
sed -i -e 's|^Description=.*|Description=Spillway, in front of an HTTP service|' -e '/^StateDirectory/d' -e '/SPILLWAY_DATA_DIR/d' \
	-e 's|/etc/default/spillway|/etc/default/spillway-proxy|' "$files/spillway-proxy.service"

# A version of packages begins with a digit and has no hyphen.
case $version in
v[0-9]*) version_of_package=$(printf %s "${version#v}" | tr - +) ;;
*) version_of_package=0.0.0~$(printf %s "$version" | tr - +) ;;
esac
export BINARY="$binary" FILES="$files" REPOSITORY="$repository" VERSION="$version_of_package" ARCH="$arch"
for format in deb rpm; do
	go -C deploy/tools tool nfpm package --config "$repository/deploy/packages/nfpm.yaml" --packager $format \
		--target "$dist/spillway-$version-linux-$arch.$format"
done
