#!/bin/sh
# Measures what docs/strategies.md shows and writes it there:
#
#	docs/figures.sh simulate   # in virtual time: the same on one architecture, some minutes
#	docs/figures.sh serve      # over HTTP: on a quiet machine, half an hour
#	docs/figures.sh tables     # from what is in reports/, by jq; other pages may be named
#	docs/figures.sh charts     # likewise, by Chromium
#
# It takes make build. A table stands between two comments of a page:
#
#	<!-- table reports/load rows="strategy" columns="rate" cells="{good} · {served_p99_ms}" -->
#	<!-- end of table -->
#
# The first names the folder of a comparison, the settings of its rows and columns (in columns
# also share, for a class, kind of client or operation each), what each cell holds, and, as
# only="rate=0.9x|2x; mix=get=100", the settings that all must have. {NAME} is the median of a
# metric of comparison.json; {good} the goodput, of the lesser of what was asked and what can be
# done; {sent_good} the same from when requests are sent; {good%} the part of a share that was
# good. A figure is marked if in one of its runs 1% of the requests left the generator more than
# a tenth of the objective late.
#
# More flags of serve go to the lab: --restart, say.
set -eu
cd "$(dirname "$0")/.."

simulate() {
	s='bin/loadtest simulate --repetitions 3'
	get="$s --workers 8 --mixes get=100 --duration 30s --store-delay exp:4ms --store-parallel 8"
	$get --strategies all --rates 0.5x,0.8x,0.95x,1.1x,1.5x,2x,4x,10x --out reports/load
	$get --strategies fifo,edf,codel,auto --rates 0.95x,1.1x,2x,4x --timeout-header true --timeout 100ms --out reports/deadlines
	$get --strategies fifo,lifo,adaptive-lifo,codel,auto --rates 0.7x --profiles spike:4x,5s --duration 20s --out reports/spike
	bin/loadtest simulate --scenario retry-storm --repetitions 3 --out reports/retries
	$s --mixes get=100 --duration 60s --slo 200ms --workers 4 --store-delay 20ms --store-parallel 4 --connections 64 \
		--strategies fifo,lifo,codel,auto --rates 0.5x,0.8x,0.95x,1.2x,2x,5x --out reports/few
	$get --strategies codel,priority,auto --rates 1.5x,4x --priorities 0=10,3=60,7=30 --out reports/classes
}

# As simulated: 8 workers, a store that does 8 at once, a queue limit of 256.
serve() {
	s='bin/loadtest compare --workers 8 --capacities 256 --connections 1000 --mixes get=100 --keys 1000 --store-parallel 8'
	$s --store-delay exp:4ms --slo 100ms --duration 5s --warmup 2s --strategies all --rates 0.9x,1.1x,2x,5x,10x --repetitions 3 --out reports/served "$@"
}

# chart REPORT TITLE: the line charts of a report whose titles begin so, as one SVG.
chart() {
	chromium --headless --no-sandbox --disable-gpu --disable-background-networking --user-data-dir=reports/chromium \
		--dump-dom "file://$PWD/reports/$1/report.html#svg=$2"
}

charts() {
	chart load 'Goodput against' >docs/strategies.svg
	chart few 'Goodput against' >docs/strategies-few.svg
	chart spike 'Goodput over time' >docs/strategies-spike.svg
	chart retries 'Goodput over time' >docs/strategies-retries.svg
}

# tables PAGE...: writes the tables of pages.
tables() {
	for page in "$@"; do
		table=
		while IFS= read -r line; do
			case "$line" in
			'<!-- table '*)
				table=${line#<!-- table } rows=strategy columns=rate cells='{good}' only=
				table=${table% -->}
				folder=${table%% *}
				[ "$folder" = "$table" ] || eval "${table#* }"
				printf '%s\n\n' "$line"
				jq -r --arg rows "$rows" --arg columns "$columns" --arg cells "$cells" --arg only "$only" -f docs/table.jq "$folder/comparison.json"
				echo
				;;
			'<!-- end of table -->') table= ;;
			esac
			[ -n "$table" ] || printf '%s\n' "$line"
		done <"$page" >"$page.new"
		[ -z "$table" ] || { echo "$page: the table of $folder has no <!-- end of table -->" >&2; exit 1; }
		mv "$page.new" "$page"
	done
}

command=${1:-}
[ $# = 0 ] || shift
case "$command" in
simulate | charts) "$command" ;;
serve) serve "$@" ;;
tables) [ $# -gt 0 ] || set -- docs/strategies.md && tables "$@" ;;
*) sed -n '2,23s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
