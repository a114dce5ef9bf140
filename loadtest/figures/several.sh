#!/bin/sh
# Measures the table of docs/proxy.md about several upstreams: four gunicorns with 1, 2, 4 and 8 workers, 20 ms a
# request, behind one proxy that learns, behind two of them that know nothing of each other, and behind HAProxy, which
# goes round and is told no limits.
#
#	loadtest/figures/several.sh cold|warm [RATE...]
#
# It takes make build and, in the PATH, gunicorn, haproxy and jq. Cold counts from the first request on, for 15 seconds;
# warm from the sixteenth second on. The last columns are the parts of all answers that each gunicorn gave.
set -eu
cd "$(dirname "$0")/../.."
case ${1:-} in
cold) warmup=0s ;;
warm) warmup=15s ;;
*)
	echo "$0: cold or warm, not ${1:-nothing}" >&2
	exit 2
	;;
esac
when=$1
shift
[ $# != 0 ] || set -- 600 900 1500 # 0.8, 1.2 and 2 times what they can do
dir=$(mktemp -d)
replicas=
fronts=
finish() {
	trap '' INT TERM
	kill $fronts $replicas 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cat >"$dir/app.py" <<'END'
import time
def app(environ, start_response):
    time.sleep(0.02)
    start_response("200 OK", [("Content-Length", "5")])
    return [b"done\n"]
END
upstreams=
for workers in 1 2 4 8; do
	address=127.0.0.1:1811$workers
	upstreams=$upstreams,http://$address
	echo "  server s$workers $address" >>"$dir/servers"
done
# start starts the gunicorns. What waits in one when its clients leave is done all the same, so each run has its own.
start() {
	replicas=
	for workers in 1 2 4 8; do
		: >"$dir/$workers"
		gunicorn --chdir "$dir" --log-level error --access-logfile "$dir/$workers" --access-logformat . -w $workers \
			-b 127.0.0.1:1811$workers app:app 2>/dev/null &
		replicas="$replicas $!"
	done
	sleep 2
}
{
	cat <<-END
		defaults
		  mode http
		  maxconn 4000
		  timeout connect 5s
		  timeout client 60s
		  timeout server 60s
		listen all
		  bind 127.0.0.1:18121
		  balance roundrobin
	END
	cat "$dir/servers"
} >"$dir/haproxy.cfg"

spillway() {
	bin/spillway proxy --upstream "${upstreams#,}" --listen 127.0.0.1:$1 --admin-listen 127.0.0.1:0 --slo 200ms --log-level error &
	fronts="$fronts $!"
}
printf '%-8s %-4s %6s %8s %7s %8s   %s\n' front when rate goodput p99 refused 'share of 1, 2, 4, 8'
for rate; do
	for front in one two haproxy; do
		fronts=
		ports=18121
		start
		case $front in
		haproxy)
			haproxy -db -f "$dir/haproxy.cfg" 2>/dev/null &
			fronts=$!
			;;
		two)
			ports='18121 18122'
			spillway 18121
			spillway 18122
			;;
		*) spillway 18121 ;;
		esac
		sleep 1
		loads=
		for port in $ports; do
			each=$((rate / $(echo $ports | wc -w)))
			bin/loadtest run --target "GET http://127.0.0.1:$port/" --rate $each --warmup $warmup --duration 15s --connections 1000 \
				--slo 200ms --timeout 10s --json "$dir/$port.json" >/dev/null 2>&1 &
			loads="$loads $!"
		done
		wait $loads || true
		wc -l "$dir/1" "$dir/2" "$dir/4" "$dir/8" | awk '{ n[NR] = $1 } END { for (i = 1; i < 5; i++) printf "%.2f ", n[i] / n[5] }' >"$dir/shares"
		for port in $ports; do
			jq -r '"\(.goodput_rps) \(.served_latency_ms.p99) \([.shed[]?] | add // 0) \(.requests)"' "$dir/$port.json"
		done | awk -v front=$front -v when=$when -v rate=$rate -v shares="$(cat "$dir/shares")" '
			{ good[NR] = $1; p99[NR] = $2; refused[NR] = $3 / $4 }
			END { for (i = 1; i <= NR; i++) printf "%-8s %-4s %6d %8.0f %7.0f %8.2f   %s\n", front, when, rate, good[i], p99[i], refused[i], shares }'
		kill $fronts
		kill -9 $(for master in $replicas; do cat /proc/$master/task/$master/children; echo $master; done)
		wait $fronts $replicas 2>/dev/null || true
		fronts= replicas=
	done
done
