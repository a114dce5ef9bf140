#!/bin/sh
# Measures what docs/strategies.md shows in tables and writes it there:
#
#	docs/figures.sh simulate   # in virtual time: the same anywhere, some minutes
#	docs/figures.sh tables     # from what is in reports/
#
# It takes make build.
set -eu
cd "$(dirname "$0")/.."

simulate() {
	s='bin/loadtest simulate --workers 8 --repetitions 3'
	get="$s --mixes get=100 --duration 30s --store-delay exp:4ms --store-parallel 8"
	$get --strategies all --rates 0.5x,0.8x,0.95x,1.1x,1.5x,2x,4x,10x --out reports/load
	$get --strategies fifo,edf,codel,auto --rates 0.95x,1.1x,2x,4x --timeout-header true --timeout 100ms --out reports/deadlines
	$get --strategies fifo,lifo,adaptive-lifo,codel,auto --rates 0.7x --profiles spike:4x,5s --duration 20s --out reports/spike
	bin/loadtest simulate --scenario retry-storm --repetitions 3 --out reports/retries
	$get --strategies codel,fair,auto --rates 0.9x,2x --clients 'greedy=95,other*19=5' --out reports/greedy
	$get --strategies codel,priority,auto --rates 1.5x,4x --priorities 0=10,3=60,7=30 --out reports/classes
	three="$s --mixes get=100 --strategies fifo,codel,auto --rates 0.95x,1.1x,2x,10x"
	$three --store-delay exp:50us --slo 1250us --duration 2s --warmup 200ms --out reports/speed-50us
	$three --store-delay exp:100ms --slo 2500ms --timeout 60s --duration 900s --warmup 40s --out reports/speed-100ms
}

case "${1:-}" in
simulate) simulate ;;
tables) go run ./loadtest/figures docs/strategies.md ;;
*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
