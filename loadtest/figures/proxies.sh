#!/bin/sh
# Measures the CPU that a request costs in spillway proxy, nginx and HAProxy, in front of the
# same nginx, for docs/proxy.md:
#
#	loadtest/figures/proxies.sh [RATE [ROUNDS]]
#
# It takes make build and, in the PATH, nginx and haproxy. All keep their connections.
set -eu
cd "$(dirname "$0")/../.."
rate=${1:-1000} rounds=${2:-3}
dir=$(mktemp -d)
started=
finish() {
	trap '' INT TERM # the end is not interrupted
	for child in $started; do
		kill "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	done
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

server() { # nginx: $1 its name, $2 what is in http
	cat >"$dir/$1.conf" <<-END
		daemon off;
		worker_processes 1;
		pid $dir/$1.pid;
		error_log /dev/null crit;
		events { worker_connections 4096; }
		http { access_log off; keepalive_requests 1000000; $2 }
	END
	nginx -c "$dir/$1.conf" &
	started="$started $!"
}
server upstream 'server { listen 127.0.0.1:18100; location / { return 200 "done\n"; } }'
server nginx 'upstream u { server 127.0.0.1:18100; keepalive 256; }
	server { listen 127.0.0.1:18101; location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; } }'
nginx=$!
cat >"$dir/haproxy.cfg" <<'END'
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend f
  bind 127.0.0.1:18102
  default_backend b
backend b
  option forwardfor
  http-reuse always
  server s 127.0.0.1:18100
END
haproxy -db -f "$dir/haproxy.cfg" 2>/dev/null &
haproxy=$!
bin/spillway proxy --upstream http://127.0.0.1:18100 --listen 127.0.0.1:18103 --admin-listen 127.0.0.1:0 --log-level error &
spillway=$!
started="$started $haproxy $spillway"
sleep 2

# ticks prints the CPU time of a process and its children, in hundredths of a second.
ticks() { cat "/proc/$1/stat" $(for child in $(cat "/proc/$1/task/$1/children"); do echo "/proc/$child/stat"; done) | awk '{ n += $14 + $15 } END { print n }'; }
round=0
while [ $round -lt "$rounds" ]; do
	round=$((round + 1))
	for proxy in "nginx $nginx 18101" "haproxy $haproxy 18102" "spillway $spillway 18103"; do
		set -- $proxy
		before=$(ticks "$2")
		bin/loadtest run --target "GET http://127.0.0.1:$3/" --rate "$rate" --connections 64 --duration 8s --json "$dir/result" >/dev/null
		after=$(ticks "$2")
		n=$(tr ',' '\n' <"$dir/result" | sed -n 's/.*"200": *\([0-9]*\).*/\1/p' | head -n 1)
		echo "$1 $(((after - before) * 10000 / n)) us of CPU a request, $n requests"
	done
done
