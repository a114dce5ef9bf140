#!/bin/sh
# Measures the CPU that a request costs in spillway proxy, in the least that a Go proxy on the
# same front may do (internal/proxy/bare), in HAProxy with one thread and in nginx, in front of
# the same nginx, for docs/proxy.md:
#
#	loadtest/figures/proxies.sh [ROUNDS [RATE...]]
#
# It takes make build and, in the PATH, go, nginx and haproxy. All keep their connections. For
# each rate it tells the median of the rounds, the least and the most, in microseconds, and the
# same of spillway proxy's ratio to the others of the same round. A round takes 20 seconds a rate.
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-5}
[ $# = 0 ] || shift
[ $# != 0 ] || set -- 1000 6000 20000
rates=$*
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
go build -o "$dir/bare" ./internal/proxy/bare
server upstream 'server { listen 127.0.0.1:18100; location / { return 200 "done\n"; } }'
server nginx 'upstream u { server 127.0.0.1:18100; keepalive 256; }
	server { listen 127.0.0.1:18101; location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; } }'
nginx=$!
cat >"$dir/haproxy.cfg" <<'END'
global
  nbthread 1
  maxconn 4000
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
"$dir/bare" 127.0.0.1:18104 127.0.0.1:18100 &
bare=$!
started="$started $haproxy $spillway $bare"
sleep 2

# spent prints the CPU time of a process and its children, in nanoseconds.
spent() {
	for process in "$1" $(cat "/proc/$1/task/$1/children"); do
		cat "/proc/$process"/task/*/schedstat
	done | awk '{ n += $1 } END { printf "%.0f\n", n }'
}
round=0
while [ $round -lt "$rounds" ]; do
	round=$((round + 1))
	for rate in $rates; do
		for proxy in "nginx $nginx 18101" "haproxy $haproxy 18102" "bare $bare 18104" "spillway $spillway 18103"; do
			set -- $proxy
			before=$(spent "$2")
			bin/loadtest run --target "GET http://127.0.0.1:$3/" --rate "$rate" --connections 64 --warmup 0s --duration 4s --json "$dir/result" >/dev/null
			after=$(spent "$2")
			n=$(tr ',' '\n' <"$dir/result" | sed -n 's/.*"200": *\([0-9]*\).*/\1/p' | head -n 1)
			echo "$rate $1 $round $(((after - before) / n)) $((n / 4))"
		done
	done
done | tee "$dir/all" | awk '{ printf "%s a second, %s: %.1f us, %s answered a second\n", $1, $2, $4 / 1000, $5 }' >&2

echo "median (least to most)"
awk '{ us = $4 / 1000; print $1, $2, us; if ($2 != "spillway") other[$1, $2, $3] = us
	else for (k in other) { split(k, p, SUBSEP); if (p[1] == $1 && p[3] == $3) print $1, "spillway/" p[2], us / other[k] } }' "$dir/all" |
	sort -k1,1n -k2,2 -k3,3n |
	awk 'function tell() { if (n) printf "%6s %-17s %6.2f (%.2f to %.2f)\n", rate, name, n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2, v[1], v[n] }
	{ if ($1 " " $2 != rate " " name) { tell(); n = 0; rate = $1; name = $2 } v[++n] = $3 }
	END { tell() }'
