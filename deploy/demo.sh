#!/bin/sh
# make demo: an overload to look at. The argument is the folder of the programs.
# SPILLWAY_LISTEN and SPILLWAY_ADMIN_LISTEN choose other addresses, DEMO_SECONDS
# how long the load lasts. What it writes is removed at the end.
set -eu
bin=$1
seconds=${DEMO_SECONDS:-120}
dir=$(mktemp -d)
service= load=
finish() {
	trap '' INT TERM # the end is not interrupted
	for child in $load $service; do
		kill "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	done
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

: >"$dir/log" # which is read before the service has made it
SPILLWAY_STRATEGY=fifo SPILLWAY_WORKERS=8 SPILLWAY_STORE_DELAY=4ms SPILLWAY_STORE_PARALLEL=8 \
	SPILLWAY_SYNC=never SPILLWAY_DATA_DIR="$dir/data" SPILLWAY_DRAIN_TIMEOUT=2s SPILLWAY_LOG_FORMAT=text \
	"$bin/spillway" 2>"$dir/log" &
service=$!
address() { sed -n "s/.*msg=listening plane=$1 addr=//p" "$dir/log"; }
until [ -n "$(address data)" ]; do
	if ! kill -0 $service 2>/dev/null; then
		cat "$dir/log" >&2
		exit 1
	fi
	sleep 0.1
done
admin=$(address admin) data=$(address data)

# The same requests from five clients, one of which sends more than its share.
"$bin/loadtest" run --url "http://$data" --rate 3000 --connections 1000 --duration "${seconds}s" --timeout 2s \
	--clients 'greedy=60,other*4=40' --priority '2=20,3=60,5=20' >"$dir/result" &
load=$!

cat <<TEXT

8 workers on a store that does 8 operations of 4 ms at once can do at most 2,000
requests a second. For the next $seconds seconds 3,000 a second come
(DEMO_SECONDS=600 make demo runs for ten minutes; Ctrl-C ends it).

    Open    http://$admin/

The strategy fifo lets 256 wait and serves the oldest first. So everybody waits
longer than the objective of 100 ms: hardly an answer is in time. Now switch, in
the console or by

    curl -X PUT -d '{"strategy":"auto"}' http://$admin/strategy

and within seconds nearly all that the workers can do is in time. The rest is
turned away, the least important first: "Who asks" has 20% of priority 2,
60% of 3 and 20% of 5. Also worth a look: lifo, which starves a few; unbounded,
which gets later and later; fair, which turns away the greedy client; and fifo
again.

TEXT
if wait $load; then status=0; else status=$?; fi
load=
cat "$dir/result"
cat <<TEXT

The load has ended. Try next:

    DEMO_SECONDS=600 make demo      # ten minutes, to try each strategy
    $bin/loadtest simulate --strategies fifo,auto --rates 0.8x,1.5x --workers 8 --store-delay exp:4ms --store-parallel 8
    $bin/spillway proxy --upstream http://127.0.0.1:3000 --mode observe      # before a service of yours; refuses nobody
    make run                        # the store on its own, on ./data
TEXT
exit $status
